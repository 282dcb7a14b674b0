// SPDX-License-Identifier: MIT OR Apache-2.0

package kernel

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/metrale/metrale/internal/tensor"
)

// checkShared looks for launches that the kernels' conditions allow and whose blocks would have more shared memory than the class's
// Build.Shared: the dynamic bytes that they ask for and their entry's static ones. Such a launch would be refused only on the device,
// when the plan is made.
func (t *Target) checkShared(x *Index, report func(error)) {
	most := t.Class.Build.Shared
	if most == 0 {
		return
	}
	for _, k := range sortedKernels(t.Kernels) {
		for i, l := range k.Launches() {
			if at, bytes := t.sharedOver(x, k, l, most); bytes > 0 {
				report(k.file.Errorf(k.launchKey(i)+".shared", "kernel %s on class %s: blocks of %s have %d bytes of shared memory, static ones among them; the device has %d",
					k.Name, t.Class.Name, at, bytes, most))
			}
		}
	}
}

// sharedOver is a place where a launch needs more than most, as "K 4096, R 3", and its bytes; 0 bytes if none was found.
func (t *Target) sharedOver(x *Index, k *Kernel, l *Launch, most int64) (string, int64) {
	for _, c := range k.choices(l) {
		s := &sharedSearch{kernel: k, shared: l.Shared, static: map[string]int64{}, module: c.module, entry: c.entry, sizes: maps.Clone(c.bits)}
		for m := range t.Modules {
			if o := x.Object(t.Name(), m); o != nil {
				for e, u := range o.Entries {
					s.static[m+" "+e] = int64(u.StaticShared)
				}
			}
		}
		if bytes := s.climb(most); bytes > most {
			return s.String(), bytes
		}
	}
	return "", 0
}

// choice is one combination of the element types and attributes that a launch's manifest lists: module and entry with the
// placeholders that stand for numbers left in them, and the bits of the weights.
type choice struct {
	module, entry string
	bits          map[string]int64
}

// choices are the combinations of a launch.
func (k *Kernel) choices(l *Launch) []choice {
	values := k.placeholders(l)
	for i := range k.Args {
		if a := &k.Args[i]; a.Kind == WeightArg && strings.Contains(l.Shared, a.Name+Bits) {
			values[a.Name+".dtype"] = k.seen(a.Name)
		}
	}
	out := []choice{{l.Module, l.Entry, map[string]int64{}}}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		arg, typed := strings.CutSuffix(name, ".dtype")
		var next []choice
		for _, c := range out {
			for _, v := range values[name] {
				d := choice{strings.ReplaceAll(c.module, "{"+name+"}", v), strings.ReplaceAll(c.entry, "{"+name+"}", v), maps.Clone(c.bits)}
				if dtype, ok := tensor.ParseDType(v); ok && typed {
					d.bits[arg+Bits] = dtype.Bits()
				}
				next = append(next, d)
			}
		}
		out = next
	}
	return out
}

// sharedSearch seeks sizes for which blocks of a launch have as much shared memory as they can.
type sharedSearch struct {
	kernel        *Kernel
	shared        string
	module, entry string
	static        map[string]int64 // bytes, by module and entry
	sizes         map[string]int64
	free          []string // the sizes that may vary
}

// Starts of a search, what a size starts as, and how large it may get.
const (
	sharedStarts = 48
	sharedTries  = 4000
	sharedMost   = 1 << 20
)

var sharedSizes = []int64{1, 2, 3, 4, 8, 16, 32, 64, 96, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768}

// climb goes from many places that the conditions allow, by steps of powers of two along one size each, to where blocks have most. It
// stops at the first place above most, which s.sizes then is. The same manifests are always searched the same way.
func (s *sharedSearch) climb(most int64) int64 {
	exprs := append(slices.Clone(s.kernel.Where), s.shared, strings.Join(placeholder.FindAllString(s.module+s.entry, -1), " "))
	for _, name := range identifier.FindAllString(strings.Join(exprs, " "), -1) {
		if _, fixed := s.sizes[name]; !fixed && !slices.Contains([]string{"min", "max", "ceil"}, name) && !slices.Contains(s.free, name) {
			s.free = append(s.free, name)
		}
	}
	random, found := rand.New(rand.NewPCG(1, 2)), int64(0)
	for starts, tries := 0, 0; starts < sharedStarts && tries < sharedTries; tries++ {
		for _, name := range s.free {
			s.sizes[name] = sharedSizes[random.IntN(len(sharedSizes))]
		}
		bytes, ok := s.bytes()
		if !ok {
			continue
		}
		starts++
		for better := true; better && bytes <= most; {
			better = false
			for _, name := range s.free {
				for step := int64(sharedMost); step > 0 && bytes <= most; step /= 2 {
					for _, by := range []int64{step, -step} {
						was := s.sizes[name]
						if was+by < 1 || was+by > sharedMost {
							continue
						}
						s.sizes[name] = was + by
						if b, ok := s.bytes(); ok && b > bytes {
							bytes, better = b, true
						} else {
							s.sizes[name] = was
						}
					}
				}
			}
		}
		if found = max(found, bytes); found > most {
			break
		}
	}
	return found
}

// bytes is the shared memory of a block of s.sizes; false where the launch is another kernel's, or has no such entry.
func (s *sharedSearch) bytes() (int64, bool) {
	env := Env{Sizes: s.sizes}
	for _, c := range s.kernel.Where {
		if ok, err := env.Holds(c); err != nil || !ok {
			return 0, false
		}
	}
	dynamic, err := tensor.Eval(s.shared, s.sizes)
	if err != nil {
		return 0, false
	}
	number := func(name string) (string, error) {
		v, err := tensor.Eval(name, s.sizes)
		return fmt.Sprint(v), err
	}
	module, err := Expand(s.module, number)
	if err != nil {
		return 0, false
	}
	entry, err := Expand(s.entry, number)
	if err != nil {
		return 0, false
	}
	static, ok := s.static[module+" "+entry]
	return dynamic + static, ok
}

// String lists the sizes that the search has reached: "K 4096, R 3".
func (s *sharedSearch) String() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(s.sizes)) {
		out = append(out, fmt.Sprint(name, " ", s.sizes[name]))
	}
	return strings.Join(out, ", ")
}
