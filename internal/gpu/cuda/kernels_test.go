// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/kernels"
)

// TestKernels holds every kernel of the device's class against its reference on the CPU, within the manifest's tolerance; what
// lies past the step's rows stays as it was.
func TestKernels(t *testing.T) {
	gpu, ref := machines(t)
	all, wants := stories(), map[string][]map[string][]byte{} // of a story and what is rounded for it
	var table strings.Builder
	var right []string // kernels that ran all of their stories
	for _, name := range slices.Sorted(maps.Keys(gpu.class.Kernels)) {
		k := gpu.class.Kernels[name]
		if k.Reference == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			if module := gpu.lacks(k); module != "" {
				t.Skip("there is no code of module ", module)
			}
			if k.Tolerance == nil {
				t.Fatal("it states no tolerance")
			}
			list, worst, ran := gpu.fitting(all[k.Reference], k), 0.0, 0
			if len(list) == 0 {
				t.Error("no story fits it")
			}
			if testing.Short() {
				list = brief(list)
			}
			for _, s := range list {
				t.Run(s.name, func(t *testing.T) {
					rounded := gpu.rounded(s, k)
					key := fmt.Sprintf("%p %v", s, rounded)
					if wants[key] == nil {
						wants[key] = ref.run(t, s.rounded(rounded), nil)
					}
					got := gpu.run(t, s, k)
					for i, p := range s.steps {
						worst = max(worst, compare(t, s, p, gpu.tolerance(p, k), got[i], wants[key][i]))
					}
					ran++
				})
			}
			if ran == len(list) && !testing.Short() && !t.Failed() {
				right = append(right, name)
			}
			fmt.Fprintf(&table, "%-24s %3d stories, worst error %.2f of the tolerance\n", name, len(list), worst)
		})
	}
	gpu.saw(right...)
	t.Logf("%s\n%s", gpu.dev.Info().Name, table.String())
}

// TestEveryKernelHasAStory: each kernel of the CUDA classes that has a reference takes all steps of some story.
func TestEveryKernelHasAStory(t *testing.T) {
	tree, err := kernel.Load(kernels.FS)
	if err != nil {
		t.Fatal(err)
	}
	all := stories()
	for _, class := range []string{"cuda", "hopper"} {
		m := machine{class: tree.Classes[class]}
		for name, k := range m.class.Kernels {
			if k.Reference != "" && !slices.ContainsFunc(all[k.Reference], func(s *story) bool { return m.plays(s, k) }) {
				t.Errorf("class %s: no story fits kernel %s", class, name)
			}
		}
	}
}

// TestThePortableClassComputesEveryOp: what the reference rules of the CPU lower, those of portable CUDA lower too.
func TestThePortableClassComputesEveryOp(t *testing.T) {
	lib, err := circuit.LoadLibrary(kernels.FS)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range lib.Rules["cpu"] {
		if r.Numerics != plan.Reference {
			continue
		}
		if !slices.ContainsFunc(lib.Rules["cuda"], func(x *circuit.Rule) bool { return x.Numerics == plan.Reference && slices.Equal(x.Match, r.Match) }) {
			t.Errorf("no kernel of class cuda is the reference of %q", r.Match)
		}
	}
}

// TestAStepWithALimitIsNoneOfAKernelWithout: an attribute that a kernel lacks has to be at the value at which it does nothing.
func TestAStepWithALimitIsNoneOfAKernelWithout(t *testing.T) {
	tree, err := kernel.Load(kernels.FS)
	if err != nil {
		t.Fatal(err)
	}
	list, tried := stories()["linear_glu"], 0
	for name, k := range tree.Classes["hopper"].Kernels {
		if k.Reference != "linear_glu" || k.Attr("limit") != nil {
			continue
		}
		for _, s := range list {
			p := *s.steps[0]
			if refuses(k, &p) != nil {
				continue
			}
			tried++
			p.attrs = slices.Clone(p.attrs)
			p.attrs[slices.IndexFunc(p.attrs, func(a plan.Attr) bool { return a.Name == "limit" })].Float = 7
			if refuses(k, &p) == nil {
				t.Errorf("%s, which knows no limit, takes %s with one", name, s.name)
			}
		}
	}
	if tried == 0 {
		t.Error("no story fits such a kernel")
	}
}

// plays says whether the class's kernels, k among them, take all steps of a story.
func (m *machine) plays(s *story, k *kernel.Kernel) bool {
	return !slices.ContainsFunc(s.steps, func(p *step) bool {
		x := m.kernelOf(p, k)
		return x == nil || refuses(x, p) != nil
	})
}

// fitting are the stories that the kernel plays.
func (m *machine) fitting(all []*story, k *kernel.Kernel) (out []*story) {
	for _, s := range all {
		if m.plays(s, k) {
			out = append(out, s)
		}
	}
	return out
}

// tolerance is that of a step.
func (m *machine) tolerance(p *step, k *kernel.Kernel) *kernel.Tolerance {
	var rows int64
	for _, a := range p.arrays {
		if a.kind != kernel.StateArg && a.access != plan.In {
			rows = max(rows, a.axes[0].Size)
		}
	}
	return m.kernelOf(p, k).ToleranceOf(rows)
}

// rounded are the arguments, of each step, that the kernels' tolerances want rounded for the reference.
func (m *machine) rounded(s *story, k *kernel.Kernel) (out [][]string) {
	for _, p := range s.steps {
		var params []string
		if t := m.tolerance(p, k); t != nil {
			params = t.Rounded
		}
		out = append(out, params)
	}
	return out
}

// rounded is the story with the named arguments of its steps rounded to bf16.
func (s *story) rounded(params [][]string) *story {
	c := *s
	c.steps = nil
	for i, p := range s.steps {
		q := *p
		q.arrays = nil
		for _, a := range p.arrays {
			if slices.Contains(params[i], a.param) {
				b := *a
				b.data = make([]byte, len(a.data))
				tensor.RoundBF16(b.data, a.data)
				a = &b
			}
			q.arrays = append(q.arrays, a)
		}
		c.steps = append(c.steps, &q)
	}
	return &c
}

// brief are the stories of -short, for tools that slow every access: the smallest of each mix of arguments, element types and
// words, and the largest of up to 4 MiB.
func brief(all []*story) (out []*story) {
	all = slices.SortedStableFunc(slices.Values(all), func(a, b *story) int { return a.bytes() - b.bytes() })
	seen := map[string]bool{}
	var last *story
	for _, s := range all {
		mix := ""
		for _, a := range s.steps[0].arrays {
			mix += fmt.Sprint(a.param, a.dtype, " ")
		}
		for _, x := range s.steps[0].attrs {
			mix += x.Str + " "
		}
		switch {
		case !seen[mix]:
			seen[mix] = true
			out = append(out, s)
		case s.bytes() <= 4<<20:
			last = s
		}
	}
	if last != nil {
		out = append(out, last)
	}
	return out
}

// bytes are those of the story's arrays.
func (s *story) bytes() (n int) {
	for _, p := range s.steps {
		for _, a := range p.arrays {
			n += len(a.data)
		}
	}
	return n
}

// compare gives the largest error as a share of the tolerance, and faults what is beyond.
func compare(t *testing.T, s *story, p *step, tol *kernel.Tolerance, got, want map[string][]byte) (worst float64) {
	t.Helper()
	for _, a := range p.arrays {
		g, ok := got[a.param]
		if !ok {
			continue
		}
		w := want[a.param]
		real := 4 * p.counts[a.axes[0].Name] * int(a.axes[1:].Shape().Elems())
		if !bytes.Equal(g[real:], a.data[real:]) {
			t.Errorf("%s: %s is written past the step's %s", s.name, a.param, a.axes[0].Name)
		}
		for at := 0; at < real; at += 4 {
			x, y := binary.LittleEndian.Uint32(g[at:]), binary.LittleEndian.Uint32(w[at:])
			if a.dtype == tensor.I32 {
				if x != y {
					t.Errorf("%s: %s[%d] is %d, the reference's %d", s.name, a.param, at/4, int32(x), int32(y))
					return math.Inf(1)
				}
				continue
			}
			u, v := float64(math.Float32frombits(x)), float64(math.Float32frombits(y))
			allowed := tol.Abs + tol.Rel*math.Abs(v)
			if d := math.Abs(u - v); !(d <= allowed) || math.IsInf(d, 0) { // of an infinite reference all would be allowed
				t.Errorf("%s: %s[%d] is %v, the reference's %v, off by %.3g where %.3g is allowed", s.name, a.param, at/4, u, v, d, allowed)
				return math.Inf(1)
			} else if d > 0 {
				worst = max(worst, d/allowed)
			}
		}
	}
	return worst
}

// floats are the real rows of what a step wrote.
func (p *step) floats(wrote map[string][]byte, param string) []float32 {
	for _, a := range p.arrays {
		if a.param != param {
			continue
		}
		out := make([]float32, p.counts[a.axes[0].Name]*int(a.axes[1:].Shape().Elems()))
		for i := range out {
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(wrote[param][4*i:]))
		}
		return out
	}
	return nil
}

func (p *step) has(param string) bool {
	return slices.ContainsFunc(p.arrays, func(a *array) bool { return a.param == param })
}

func sameBits(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Errorf("%s: element %d is %v (%#x), want the bits of %v (%#x)", what, i, got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
			return
		}
	}
}

// alone is the story with only one row in its last step.
func (s *story) alone(row int) *story {
	c := *s
	c.steps = slices.Clone(s.steps)
	last := *s.steps[len(s.steps)-1]
	full := last.limits.Rows
	last.limits.Rows = 1
	last.counts = maps.Clone(last.counts)
	last.counts[plan.Rows] = 1
	last.arrays = nil
	for _, a := range s.steps[len(s.steps)-1].arrays {
		b := *a
		rowwise := a.axes[0].Name == plan.Rows || a.kind == kernel.StepArg && a.axes[0].Size == full && a.param != "block_table"
		switch {
		case a.param == "head":
			b.data = slices.Clone(a.data)
			binary.LittleEndian.PutUint32(b.data, 1)
		case rowwise:
			n := int64(len(a.data)) / full
			b.data = a.data[int64(row)*n : int64(row+1)*n]
			b.axes = slices.Clone(a.axes)
			b.axes[0].Size = 1
		}
		last.arrays = append(last.arrays, &b)
	}
	c.steps[len(c.steps)-1] = &last
	return &c
}

// promised are the class's kernels whose rules say that they define the numbers, if so asked, or that this test shows their bits.
func (m *machine) promised(t *testing.T, test string, reference bool) (list []*kernel.Kernel) {
	t.Helper()
	lib, err := circuit.LoadLibrary(kernels.FS)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range lib.Rules[m.class.Name] {
		k := m.class.Kernels[r.Kernel]
		if (r.Microtest == test || reference && r.Numerics == plan.Reference) && m.lacks(k) == "" && !slices.Contains(list, k) {
			list = append(list, k)
		}
	}
	return list
}

// TestRowsDoNotMeet: a row has the same bits alone as among others, whichever of the reference kernels and of those that agree
// with them computes it.
func TestRowsDoNotMeet(t *testing.T) {
	gpu, _ := machines(t)
	all := stories()
	for _, k := range gpu.promised(t, "TestRowsDoNotMeet", true) {
		gpu.rowsDoNotMeet(t, k, all[k.Reference], (*story).alone, nil)
	}
}

// rowsDoNotMeet holds some rows of each story that ends with k against what by gives for the story of that row alone; nil is the class's kernel.
func (m *machine) rowsDoNotMeet(t *testing.T, k *kernel.Kernel, list []*story, only func(s *story, row int) *story, by *kernel.Kernel) {
	t.Helper()
	for _, s := range list {
		last := s.steps[len(s.steps)-1]
		n := last.counts[plan.Rows]
		gathers := slices.ContainsFunc(last.arrays, func(a *array) bool { return a.axes[0].Name == plan.Outs })
		if n < 2 || k.Arg("cu_rows") != nil || gathers || m.kernelOf(last, k) != k || !m.plays(s, k) {
			continue
		}
		got := m.run(t, s, k)[len(s.steps)-1]
		for _, row := range []int{0, n / 2, n - 1} {
			one := only(s, row)
			p := one.steps[len(one.steps)-1]
			alone := m.run(t, one, by)[len(one.steps)-1]
			for param := range alone {
				width := len(p.floats(alone, param))
				sameBits(t, fmt.Sprintf("%s of %s: row %d of %s", k.Name, s.name, row, param), last.floats(got, param)[row*width:][:width], p.floats(alone, param))
			}
		}
	}
}

// first is the story with only one row in its last step, in the same bucket.
func (s *story) first(row int) *story {
	c := *s
	c.steps = slices.Clone(s.steps)
	last := *s.steps[len(s.steps)-1]
	last.counts = maps.Clone(last.counts)
	last.counts[plan.Rows] = 1
	last.arrays = nil
	for _, a := range s.steps[len(s.steps)-1].arrays {
		b := *a
		switch {
		case a.param == "head":
			b.data = slices.Clone(a.data)
			binary.LittleEndian.PutUint32(b.data, 1)
		case a.axes[0].Name == plan.Rows:
			n := len(a.data) / int(last.limits.Rows)
			b.data = slices.Clone(a.data)
			copy(b.data, a.data[row*n:(row+1)*n])
		}
		last.arrays = append(last.arrays, &b)
	}
	c.steps[len(c.steps)-1] = &last
	return &c
}

// TestRowsDoNotMeetInTiles: on tensor cores a row has the same bits alone in its bucket as among others.
func TestRowsDoNotMeetInTiles(t *testing.T) {
	gpu, _ := machines(t)
	all := stories()
	for _, name := range slices.Sorted(maps.Keys(gpu.class.Kernels)) {
		k := gpu.class.Kernels[name]
		if gpu.class.Families[k.Family].Compute != "tensor" || gpu.lacks(k) != "" {
			continue
		}
		gpu.rowsDoNotMeet(t, k, all[k.Reference], (*story).first, k)
	}
}

// TestChunksDoNotMatter: a sequence's rows have the same bits in one step as in several.
func TestChunksDoNotMatter(t *testing.T) {
	gpu, _ := machines(t)
	for name, make_ := range map[string]func(steps [][]int) *story{
		"conv":                  func(steps [][]int) *story { return convStory(40, 4, "silu", true, steps) },
		"delta_rule":            func(steps [][]int) *story { return deltaStory(1, 2, 32, 24, 1, steps) },
		"delta_rule by channel": func(steps [][]int) *story { return deltaStory(1, 2, 32, 24, 32, steps) },
		"ssd":                   func(steps [][]int) *story { return ssdStory(2, 1, 24, 32, steps) },
	} {
		whole := make_([][]int{{7}})
		want := whole.steps[0].floats(gpu.run(t, whole, nil)[0], "y")
		cut := make_([][]int{{1}, {4}, {2}})
		at := 0
		for i, p := range cut.steps { // the same rows
			for _, a := range p.arrays {
				for _, b := range whole.steps[0].arrays {
					if a.param != b.param {
						continue
					} else if n := 4 * int(a.axes[1:].Shape().Elems()); a.axes[0].Name == plan.Rows && a.access == plan.In {
						copy(a.data, b.data[at*n:(at+p.counts[plan.Rows])*n])
					} else if a.kind == kernel.WeightArg {
						a.data = b.data
					}
				}
			}
			at += p.counts[plan.Rows]
			cut.steps[i] = p
		}
		var got []float32
		for i, wrote := range gpu.run(t, cut, nil) {
			got = append(got, cut.steps[i].floats(wrote, "y")...)
		}
		sameBits(t, name, got, want)
	}
}

// part is a launch whose arrays come from another story's step, some under other names, some with other bytes.
func part(s *story, p *step, name string, names map[string]string, data map[string][]byte) *story {
	c := &story{name: s.name + " by " + name, limits: s.limits, states: map[string]*array{}}
	q := &step{kernel: name, limits: p.limits, counts: p.counts, attrs: p.attrs}
	for to, from := range names {
		for _, a := range p.arrays {
			if a.param != from {
				continue
			}
			b := *a
			b.param, b.access = to, plan.In
			if d, ok := data[to]; ok {
				b.data = d
			}
			q.arrays = append(q.arrays, &b)
		}
	}
	c.steps = []*step{q}
	return c
}

// access says how the part's kernel uses some of its arrays, which start as poison unless they are read.
func (s *story) access(a plan.Access, params ...string) *story {
	for _, x := range s.steps[0].arrays {
		if slices.Contains(params, x.param) {
			if x.access = a; a == plan.Out {
				x.data = bytes.Repeat([]byte{0xff}, len(x.data))
			}
		}
	}
	return s
}

// TestFusedKernelsGiveTheBitsOfTheirParts: what the rules call bit_identical.
func TestFusedKernelsGiveTheBitsOfTheirParts(t *testing.T) {
	gpu, _ := machines(t)
	all := stories()
	run := func(s *story) map[string][]byte { return gpu.run(t, s, nil)[0] }
	chains := map[string]func(s *story, p *step) map[string][]byte{
		"linear_add": func(s *story, p *step) map[string][]byte {
			d := run(part(s, p, "linear", map[string]string{"head": "head", "x": "x", "w": "w", "scale": "scale", "bias": "bias", "y": "y"}, nil).access(plan.Out, "y"))["y"]
			y := run(part(s, p, "add", map[string]string{"head": "head", "x": "y", "y": "y"}, map[string][]byte{"y": d}).access(plan.InOut, "x"))["x"]
			return map[string][]byte{"y": y}
		},
		"linear_n": func(s *story, p *step) map[string][]byte {
			out := map[string][]byte{}
			for i := range 4 {
				n := func(name string) string { return fmt.Sprint(name, i) }
				if p.has(n("w")) {
					names := map[string]string{"head": "head", "x": "x", "w": n("w"), "scale": n("scale"), "bias": n("bias"), "y": n("y")}
					out[n("y")] = run(part(s, p, "linear", names, nil).access(plan.Out, "y"))["y"]
				}
			}
			return out
		},
		"linear_glu": func(s *story, p *step) map[string][]byte {
			linear := func(w, scale string) []byte {
				return run(part(s, p, "linear", map[string]string{"head": "head", "x": "x", "w": w, "scale": scale, "y": "y"}, nil).access(plan.Out, "y"))["y"]
			}
			return run(part(s, p, "glu", map[string]string{"head": "head", "g": "y", "u": "y", "y": "y"}, map[string][]byte{"g": linear("wg", "sg"), "u": linear("wu", "su")}).access(plan.Out, "y"))
		},
		"add_rms_norm": func(s *story, p *step) map[string][]byte {
			x := run(part(s, p, "add", map[string]string{"head": "head", "x": "x", "y": "d"}, nil).access(plan.InOut, "x"))["x"]
			y := run(part(s, p, "rms_norm", map[string]string{"head": "head", "x": "x", "w": "w", "y": "y"}, map[string][]byte{"x": x}).access(plan.Out, "y"))["y"]
			return map[string][]byte{"x": x, "y": y}
		},
		"rope_pair": func(s *story, p *step) map[string][]byte {
			out := map[string][]byte{}
			for _, i := range []string{"0", "1"} {
				one := part(s, p, "rope", map[string]string{"head": "head", "x": "x" + i, "angles": "angles"}, nil).access(plan.InOut, "x")
				for _, a := range p.attrs {
					if a.Name == "heads"+i {
						one.steps[0].attr("heads", int(a.Int))
					}
				}
				out["x"+i] = run(one)["x"]
			}
			return out
		},
	}
	for _, k := range gpu.promised(t, "TestFusedKernelsGiveTheBitsOfTheirParts", false) {
		chain := chains[k.Reference]
		for _, s := range all[k.Reference] {
			if chain == nil || !gpu.plays(s, k) {
				continue
			}
			p := s.steps[0]
			got, want := gpu.run(t, s, k)[0], chain(s, p)
			for param := range got {
				sameBits(t, fmt.Sprintf("%s of %s: %s", k.Name, s.name, param), p.floats(got, param), p.floats(want, param))
			}
		}
	}
}
