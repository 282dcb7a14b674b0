// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/metrale/metrale/internal/fixture"
	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// TestFusionLosesNothing: with and without fusion, each node is in exactly one launch; unfused, each launch is one node
// and a reference; the plans differ in nothing but launches and arena.
func TestFusionLosesNothing(t *testing.T) {
	for _, family := range fixture.Families(t) {
		cfg, cat := tiny(t, family)
		in := instantiate(t, cfg)
		fused, plain := lower(t, in, cat, false), lower(t, in, cat, true)
		if a, b := ops(in, fused), ops(in, plain); !slices.Equal(a, b) || len(a) != len(in.Nodes) {
			t.Errorf("%s: fused %d ops, unfused %d, instance %d", family, len(a), len(b), len(in.Nodes))
		}
		for _, l := range plain.Launches {
			if len(l.Ops) != 1 || l.Numerics != plan.Reference {
				t.Errorf("%s: without fusion, launch %s covers %v as %s", family, l.Name, l.Ops, l.Numerics)
			}
		}
		if len(fused.Launches) >= len(plain.Launches) {
			t.Errorf("%s: %d launches fused, %d not", family, len(fused.Launches), len(plain.Launches))
		}
		if a, b := sources(fused), sources(plain); !slices.Equal(a, b) {
			t.Errorf("%s: fused reads %v\nunfused %v", family, a, b)
		}
		if again := lower(t, in, cat, false); again.Digest() != fused.Digest() {
			t.Errorf("%s: lowering twice gives two plans", family)
		}
	}
}

// ops are the op names that a plan's launches cover, sorted.
func ops(in *Instance, p *plan.Plan) []string {
	byID := map[string]string{}
	for _, n := range in.Nodes {
		byID[n.ID] = n.Op.Name
	}
	var out []string
	for _, l := range p.Launches {
		for _, id := range l.Ops {
			out = append(out, byID[id])
			delete(byID, id)
		}
	}
	slices.Sort(out)
	return out
}

// sources are the checkpoint tensors that a plan reads, sorted.
func sources(p *plan.Plan) []string {
	var out []string
	for _, w := range p.Weights {
		for _, s := range w.Sources {
			piece, _ := plan.ParsePiece(s)
			out = append(out, piece.Tensor)
		}
	}
	slices.Sort(out)
	return out
}

// TestBitIdenticalRulesNameTheirTest looks for each microtest in the packages of devices.
func TestBitIdenticalRulesNameTheirTest(t *testing.T) {
	files, _ := filepath.Glob("../gpu/*/*_test.go")
	var src strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		src.Write(b)
	}
	for class, rules := range lib(t).Rules {
		for _, r := range rules {
			if r.Numerics == plan.BitIdentical && !regexp.MustCompile(`func `+r.Microtest+`\(`).MatchString(src.String()) {
				t.Errorf("class %s: rule %s names %s, which is no test of a device", class, r.Name, r.Microtest)
			}
		}
	}
}

// TestFusionKeepsItsDistance: what rules must not fuse stays apart.
func TestFusionKeepsItsDistance(t *testing.T) {
	cfg, cat := tiny(t, "llama")
	in := instantiate(t, cfg)
	kernels := func(p *plan.Plan, layer string) (out []string) {
		for _, l := range p.Launches {
			if strings.HasPrefix(l.Name, layer) {
				out = append(out, l.Kernel)
			}
		}
		return out
	}
	const all = "rms_norm linear_n rope rope kv_append attention linear_add rms_norm linear_glu linear_add"
	if got := strings.Join(kernels(lower(t, in, cat, false), "L00"), " "); got != all {
		t.Errorf("layer 0 is %s", got)
	}
	// A gate in another format is computed another way, so it is not one launch with up.
	other := &Synthetic{names: cat.names, shapes: cat.shapes, dtypes: map[string]tensor.DType{}}
	for n, d := range cat.dtypes {
		other.dtypes[n] = d
	}
	other.dtypes["model.layers.0.mlp.gate_proj.weight"] = tensor.Q8_0
	p, err := in.Lower(lib(t), other, Options{Class: "cpu", Compute: Declared, Limits: small})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(kernels(p, "L00"), " "); got != "rms_norm linear_n rope rope kv_append attention linear_add rms_norm linear linear glu linear_add" {
		t.Errorf("with a q8_0 gate, layer 0 is %s", got)
	}
	for _, l := range p.Launches {
		if l.Name == "L00.mlp.gate" && l.Attrs[0].Str != "q16" || l.Name == "L00.mlp.up" && l.Attrs[0].Str != "f32" {
			t.Errorf("%s computes as %s", l.Name, l.Attrs[0].Str)
		}
	}
	p, err = in.Lower(lib(t), other, Options{Class: "cpu", Compute: Float32, Limits: small})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(kernels(p, "L00"), " "); got != all {
		t.Errorf("in float32, layer 0 is %s", got)
	}
}

// TestRandomDiagramsLower builds diagrams of random ops and checks their plans by the verifiers, which Lower runs, and by a
// slow look at every pair of buffers.
func TestRandomDiagramsLower(t *testing.T) {
	l := lib(t)
	rapid.Check(t, func(t *rapid.T) {
		in := randomDiagram(t)
		if err := in.Verify(); err != nil {
			t.Fatal(err)
		}
		cat := in.SyntheticCatalog(tensor.BF16)
		for _, noFusion := range []bool{false, true} {
			p, err := in.Lower(l, cat, Options{Class: "cpu", Compute: Float32, KV: tensor.F32, Limits: small, NoFusion: noFusion})
			if err != nil {
				t.Fatal(err)
			}
			if got := ops(in, p); len(got) != len(in.Nodes) {
				t.Fatalf("%d of %d ops", len(got), len(in.Nodes))
			}
			noOverlap(t, p)
			if back, err := plan.Parse("p", p.Print()); err != nil || back.Print() != p.Print() {
				t.Fatalf("the text does not read back: %v", err)
			}
		}
	})
}

// noOverlap compares every pair of buffers at every launch.
func noOverlap(t *rapid.T, p *plan.Plan) {
	live := func(b, at int) bool { // touched at or before and at or after
		before, after := false, b == p.Logits
		for i, l := range p.Launches {
			for _, a := range l.Args {
				if a.Kind == plan.ArgBuffer && a.Index == b {
					before, after = before || i <= at, after || i >= at
				}
			}
		}
		return before && after
	}
	for at := range p.Launches {
		var ends []int64
		for b, x := range p.Buffers {
			if live(b, at) {
				ends = append(ends, x.Offset, x.Offset+x.DType.Bytes(x.Axes.Shape().Elems()))
			}
		}
		for i := 0; i < len(ends); i += 2 {
			for j := i + 2; j < len(ends); j += 2 {
				if ends[i] < ends[j+1] && ends[j] < ends[i+1] {
					t.Fatalf("launch %s: [%d, %d) and [%d, %d) overlap", p.Launches[at].Name, ends[i], ends[i+1], ends[j], ends[j+1])
				}
			}
		}
	}
}

// randomDiagram wires ops to random earlier edges. An add overwrites its first input, so that one is not read again.
func randomDiagram(t *rapid.T) *Instance {
	in := &Instance{Circuit: "random", ModelType: "random", Prefixes: []string{"model."}}
	var open []int // edges that may still be read
	add := func(op string, attrs []plan.Attr, ins []int, weights []Weight, axes ...[]kernel.Axis) []int {
		n := &Node{ID: fmt.Sprintf("n%d", len(in.Nodes)), Op: sigma[op], Layer: -1, In: ins}
		for _, spec := range n.Op.attrs {
			a, _ := spec.value()
			if i := slices.IndexFunc(attrs, func(given plan.Attr) bool { return given.Name == spec.name }); i >= 0 {
				a = attrs[i]
			}
			n.Attrs = append(n.Attrs, a)
		}
		for range n.Op.weights {
			n.Weights = append(n.Weights, -1)
		}
		for i, w := range weights {
			w.Name = fmt.Sprintf("w%d", len(in.Weights))
			w.From, w.Split = [][]string{{"{P}" + w.Name}}, plan.Replicated
			n.Weights[i] = len(in.Weights)
			in.Weights = append(in.Weights, w)
		}
		for _, a := range axes {
			n.Out = append(n.Out, len(in.Edges))
			in.Edges = append(in.Edges, Edge{Name: fmt.Sprintf("e%d", len(in.Edges)), Axes: a, DType: tensor.F32, Split: plan.Replicated})
		}
		in.Nodes = append(in.Nodes, n)
		open = append(open, n.Out...)
		return n.Out
	}
	rows := func(width int64) []kernel.Axis {
		return []kernel.Axis{{Name: plan.Rows, Size: varying[plan.Rows]}, {Name: "w", Size: width}}
	}
	matrix := func(n, k int64) []Weight {
		return []Weight{{Axes: []kernel.Axis{{Name: "n", Size: n}, {Name: "k", Size: k}}}}
	}
	width := func(e int) int64 { return in.Edges[e].Axes[1].Size }
	pick := func(same int64) int {
		var fit []int
		for _, e := range open {
			if same == 0 || width(e) == same {
				fit = append(fit, e)
			}
		}
		if len(fit) == 0 {
			return -1
		}
		return rapid.SampledFrom(fit).Draw(t, "edge")
	}
	integer := func(name string, v int64) plan.Attr { return plan.Attr{Name: name, Kind: plan.IntAttr, Int: v} }
	add("embed", nil, nil, matrix(32, 8), rows(8))
	for range rapid.IntRange(1, 25).Draw(t, "ops") {
		x := pick(0)
		w := width(x)
		switch rapid.IntRange(0, 4).Draw(t, "op") {
		case 0:
			add("linear", nil, []int{x}, matrix(rapid.SampledFrom([]int64{8, 16}).Draw(t, "n"), w), rows(0))
			e := &in.Edges[len(in.Edges)-1]
			e.Axes = rows(in.Weights[len(in.Weights)-1].Axes[0].Size)
		case 1:
			attrs := []plan.Attr{{Name: "eps", Kind: plan.FloatAttr, Float: 1e-6}, integer("group", w)}
			add("rms_norm", attrs, []int{x}, nil, rows(w))
		case 2:
			if y := pick(w); y != x {
				open = slices.DeleteFunc(open, func(e int) bool { return e == x })
				add("add", nil, []int{x, y}, nil, rows(w))
			}
		case 3:
			add("glu", []plan.Attr{{Name: "act", Kind: plan.StrAttr, Str: "silu"}}, []int{x, pick(w)}, nil, rows(w))
		case 4:
			if w < 2 {
				continue
			}
			add("split", []plan.Attr{integer("groups", 1), integer("a", w/2), integer("b", w-w/2)}, []int{x}, nil, rows(w/2), rows(w-w/2))
		}
	}
	outs := func(width int64) []kernel.Axis {
		return []kernel.Axis{{Name: plan.Outs, Size: varying[plan.Outs]}, {Name: "w", Size: width}}
	}
	x := pick(0)
	g := add("gather_rows", nil, []int{x}, nil, outs(width(x)))
	in.Logits = add("linear", nil, g, matrix(32, width(x)), outs(32))[0]
	return in
}

// TestLayoutIsTight: a chain needs room for two buffers at a time, whatever its length.
func TestLayoutIsTight(t *testing.T) {
	var chain []life
	for i := range 100 {
		chain = append(chain, life{first: i, last: i + 1, bytes: 1000})
	}
	if got := layout(chain); got != 2*1024 {
		t.Errorf("a chain of 1000-byte buffers spans %d", got)
	}
	nested := []life{{0, 9, 100, 0}, {1, 2, 6400, 0}, {3, 4, 6400, 0}, {2, 3, 64, 0}}
	if got := layout(nested); got != 128+6400+64 {
		t.Errorf("nested lifetimes span %d", got)
	}
}
