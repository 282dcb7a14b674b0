// SPDX-License-Identifier: MIT OR Apache-2.0

package kernel

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
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
	static := map[string]int64{}
	for m := range t.Modules {
		if o := x.Object(t.Name(), m); o != nil {
			for e, u := range o.Entries {
				static[m+" "+e] = int64(u.StaticShared)
			}
		}
	}
	for _, k := range sortedKernels(t.Kernels) {
		if t.Model != nil && !slices.ContainsFunc(x.Entries(t, k), func(e Entry) bool { return x.Targets[t.Name()][e.Module] != nil }) {
			continue // the class's
		}
		for i, l := range k.Launches() {
			switch at, bytes, err := k.sharedOver(l, static, most); {
			case err != nil:
				report(k.file.Errorf(k.launchKey(i)+".entry", "kernel %s on class %s: %s", k.Name, t.Class.Name, err))
			case bytes > most:
				report(k.file.Errorf(k.launchKey(i)+".shared", "kernel %s on class %s: blocks of %s have %d bytes of shared memory, static ones among them; the device has %d",
					k.Name, t.Class.Name, at, bytes, most))
			}
		}
	}
}

// sharedOver is a place where a launch needs more than most, as "K 4096, R 3", and its bytes; 0 bytes if none was found. Where the search
// cannot even begin, nothing is known: an error.
func (k *Kernel) sharedOver(l *Launch, static map[string]int64, most int64) (string, int64, error) {
	for _, c := range k.choices(l) {
		s := &sharedSearch{kernel: k, shared: l.Shared, static: static, module: c.module, entry: c.entry, sizes: maps.Clone(c.bits)}
		bytes, ok := s.climb(most)
		if !ok {
			return "", 0, fmt.Errorf("no sizes were found for which it starts entry %s, so what its blocks need is not known", c.entry)
		}
		if bytes > most {
			return s.String(), bytes, nil
		}
	}
	return "", 0, nil
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
}

// Starts of a search, what a size starts as, and how large it may get.
const (
	sharedStarts = 48
	sharedTries  = 4000
	sharedMost   = 1 << 20
)

var number = regexp.MustCompile(`\b[0-9]+\b`)

var sharedSizes = []int64{1, 2, 3, 4, 8, 16, 32, 64, 96, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768}

// climb looks from many places that the conditions allow for where blocks have most: along each size alone, then along all. It stops at the
// first place above most, which s.sizes then is; false if it tried none that the conditions allow. Numbers of the conditions are tried, too,
// and a size that one of them gives has that alone. The same manifests are always searched the same way.
func (s *sharedSearch) climb(most int64) (int64, bool) {
	exprs := append(placeholder.FindAllString(s.module+s.entry, -1), s.shared)
	if !identifier.MatchString(strings.Join(exprs, " ")) {
		s.kernel = &Kernel{} // all launches have the same, whatever the conditions are
		return s.bytes()
	}
	exprs = append(exprs, s.kernel.Where...)
	from := slices.Clone(sharedSizes)
	for _, c := range s.kernel.Where {
		left, op, right, err := splitCondition(c)
		if v, bad := strconv.ParseInt(right, 10, 64); err == nil && bad == nil && op == "==" && isName(left) {
			s.sizes[left] = v
		}
		for _, literal := range number.FindAllString(c, -1) {
			if v, err := strconv.ParseInt(literal, 10, 64); err == nil && v > 0 && v <= sharedMost && !slices.Contains(from, v) {
				from = append(from, v)
			}
		}
	}
	var free []string
	for _, name := range identifier.FindAllString(strings.Join(exprs, " "), -1) {
		if _, fixed := s.sizes[name]; !fixed && !slices.Contains([]string{"min", "max", "ceil"}, name) && !slices.Contains(free, name) {
			free = append(free, name)
		}
	}
	random, found, starts := rand.New(rand.NewPCG(1, 2)), int64(0), 0
	for tries := 0; starts < sharedStarts && tries < sharedTries; tries++ {
		for _, name := range free {
			s.sizes[name] = from[random.IntN(len(from))]
		}
		bytes, ok := s.bytes()
		if !ok {
			continue
		}
		starts++
		start := maps.Clone(s.sizes)
		for i := range free {
			maps.Copy(s.sizes, start)
			if found = max(found, s.ascend(free[i:i+1], bytes, most)); found > most {
				return found, true
			}
		}
		maps.Copy(s.sizes, start)
		if found = max(found, s.ascend(free, bytes, most)); found > most {
			return found, true
		}
	}
	return found, starts > 0
}

// ascend goes from s.sizes, of that many bytes, by steps of powers of two along one of the names at a time, as long as there is more; until
// it is above most.
func (s *sharedSearch) ascend(names []string, bytes, most int64) int64 {
	for better := true; better && bytes <= most; {
		better = false
		for _, name := range names {
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
	return bytes
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
	value := func(name string) (string, error) {
		v, err := tensor.Eval(name, s.sizes)
		return fmt.Sprint(v), err
	}
	module, err := Expand(s.module, value)
	if err != nil {
		return 0, false
	}
	entry, err := Expand(s.entry, value)
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
	if len(out) == 0 {
		return "any size"
	}
	return strings.Join(out, ", ")
}
