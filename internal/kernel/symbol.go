// SPDX-License-Identifier: MIT OR Apache-2.0

package kernel

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/metrale/metrale/internal/tensor"
)

// symbol is a module and an entry that a launch of a kernel can name. A placeholder whose values the manifest lists (an
// element type, an attribute with values) has one of them; any other is a number, written {n}.
type symbol struct {
	kernel        *Kernel
	launch        *Launch
	at            string // the launch's key in the kernel's manifest
	module, entry string
}

// Modules are those that the kernel's launches name; {n} stands for a number.
func (k *Kernel) Modules() (names []string) {
	for _, s := range k.symbols() {
		if !slices.Contains(names, s.module) {
			names = append(names, s.module)
		}
	}
	return names
}

// symbols lists what the launches of a kernel can name: one for each combination of listed values.
func (k *Kernel) symbols() (out []symbol) {
	for i, l := range k.Launches() {
		out = append(out, k.symbolsOf(l, k.launchKey(i))...)
	}
	return out
}

func (k *Kernel) symbolsOf(l *Launch, at string) []symbol {
	texts := [][2]string{{l.Module, l.Entry}}
	for name, values := range k.placeholders(l) {
		var next [][2]string
		for _, t := range texts {
			for _, v := range values {
				next = append(next, [2]string{strings.ReplaceAll(t[0], "{"+name+"}", v), strings.ReplaceAll(t[1], "{"+name+"}", v)})
			}
		}
		texts = next
	}
	slices.SortFunc(texts, func(a, b [2]string) int { return strings.Compare(a[0]+" "+a[1], b[0]+" "+b[1]) })
	var out []symbol
	for _, t := range slices.Compact(texts) {
		out = append(out, symbol{k, l, at, placeholder.ReplaceAllString(t[0], "{n}"), placeholder.ReplaceAllString(t[1], "{n}")})
	}
	return out
}

var placeholder = regexp.MustCompile(`\{[^{}]*\}`)

// match says whether a name is the pattern with decimal numbers for {n}.
func match(pattern, name string) bool {
	for {
		before, after, ok := strings.Cut(pattern, "{n}")
		if !ok {
			return name == pattern
		}
		rest, ok := strings.CutPrefix(name, before)
		name = strings.TrimLeft(rest, "0123456789")
		if !ok || len(name) == len(rest) {
			return false
		}
		pattern = after
	}
}

// placeholders are those of a launch whose values the manifest lists.
func (k *Kernel) placeholders(l *Launch) map[string][]string {
	out := map[string][]string{}
	for _, p := range placeholder.FindAllString(l.Module+l.Entry, -1) {
		name := p[1 : len(p)-1]
		if arg, ok := strings.CutSuffix(name, ".dtype"); ok {
			out[name] = k.seen(arg)
		} else if a := k.Attr(name); a != nil && len(a.Values) > 0 {
			out[name] = a.Values
		}
	}
	return out
}

// seen are the element types that the kernel can find an argument in.
func (k *Kernel) seen(arg string) []string {
	set := map[string]bool{}
	a := k.Arg(arg)
	for _, d := range a.DTypes {
		if a.Kind == WeightArg {
			d = LayoutDType(a.Layout, d)
		}
		set[d.String()] = true
	}
	if a.Optional {
		set["none"] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// LayoutDType is the element type that kernels see of a weight stored as d: a layout keeps it or dequantises it.
func LayoutDType(layout string, d tensor.DType) tensor.DType {
	if layout == "f32" || layout == "dense" && d != tensor.F32 && d != tensor.BF16 && d != tensor.F16 {
		return tensor.F32
	}
	return d
}
