// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/gpu/record"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights"
	"github.com/metrale/metrale/internal/weights/safetensors"
)

// tinyPlan embeds, remembers K and V, and multiplies by the tied embedding: one of each kind of argument.
func tinyPlan(rows int64) *plan.Plan {
	r, o := plan.Axis{Name: plan.Rows, Size: rows}, plan.Axis{Name: plan.Outs, Size: rows}
	h, v := plan.Axis{Name: "hidden", Size: 4}, plan.Axis{Name: "vocab", Size: 6}
	step := func(name string) plan.Arg { return plan.Arg{Param: name, Kind: plan.ArgStep, Step: name} }
	return &plan.Plan{
		Circuit: "tiny", Class: "cpu", Compute: "float32", KV: tensor.F32,
		Limits: plan.Limits{Rows: rows, Seqs: 2, Outs: rows, PageSize: 4, Pages: 3},
		Consts: []plan.Const{{Name: "freq", Values: []float32{1, 0.5}}},
		Weights: []plan.Weight{
			{Name: "embed", Axes: plan.Axes{v, h}, DType: tensor.BF16, Layout: "panel", Sources: []string{"a", "b"}, Split: plan.Replicated},
			{Name: "head", Axes: plan.Axes{v, h}, DType: tensor.BF16, Layout: "panel", Sources: []string{"a", "b"}, Split: plan.Replicated},
		},
		States: []plan.State{
			{Name: "k", Kind: plan.Paged, DType: tensor.F32, Axes: plan.Axes{h}},
			{Name: "conv", Kind: plan.Slot, DType: tensor.F32, Axes: plan.Axes{h}},
		},
		Buffers: []plan.Buffer{{Name: "x", Axes: plan.Axes{r, h}, DType: tensor.F32}, {Name: "logits", Axes: plan.Axes{o, v}, DType: tensor.F32, Offset: 64 * rows}},
		Launches: []plan.Launch{
			{Name: "embed", Kernel: "embed", Args: []plan.Arg{step("head"), step("tokens"), {Param: "w", Kind: plan.ArgWeight, Index: 0}, {Param: "y", Access: plan.Out}}},
			{Name: "mix", Kernel: "mix", Args: []plan.Arg{{Param: "x", Access: plan.InOut}, {Param: "f", Kind: plan.ArgConst}, {Param: "k", Kind: plan.ArgState, Access: plan.InOut}, {Param: "s", Kind: plan.ArgState, Index: 1, Access: plan.InOut}}},
			{Name: "logits", Kernel: "linear", Args: []plan.Arg{{Param: "x"}, {Param: "w", Kind: plan.ArgWeight, Index: 1}, {Param: "y", Index: 1, Access: plan.Out}}},
		},
		Arena: 64*rows + 24*rows, Logits: 1,
	}
}

// tinyStore holds the embedding in two halves.
func tinyStore(t *testing.T) weights.Store { return twoTensors(t, make([]byte, 48)) }

// twoTensors are a and b, of three rows each.
func twoTensors(t testing.TB, data []byte) weights.Store {
	t.Helper()
	s, err := weights.Memory(
		safetensors.NamedTensor{Name: "a", DType: tensor.BF16, Shape: tensor.Shape{3, 4}, Data: data[:24]},
		safetensors.NamedTensor{Name: "b", DType: tensor.BF16, Shape: tensor.Shape{3, 4}, Data: data[24:]},
	)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func tinyOptions(t *testing.T, d gpu.Device) Options {
	return Options{Device: d, Plans: []*plan.Plan{tinyPlan(8), tinyPlan(2)}, Store: tinyStore(t), NumPages: 5, NumSlots: 2}
}

func TestTiedWeightsArePackedOnce(t *testing.T) {
	dev := record.New("cpu")
	var last, total int64
	o := tinyOptions(t, dev)
	o.Progress = func(d, t int64) { last, total = d, t }
	m, err := Load(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if last != 48 || total != 48 {
		t.Errorf("progress ended at %d of %d bytes, want 48 of 48: two plans and two names share one matrix", last, total)
	}
	want := Limits{Limits: tinyPlan(8).Limits, Vocab: 6, NumPages: 5, NumSlots: 2}
	if got := m.Limits(); got != want {
		t.Errorf("limits %+v, want %+v", got, want)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if live := dev.Live(); len(live) > 0 {
		t.Errorf("still allocated after Close: %v", live)
	}
}

func TestAStepRunsTheSmallestPlanThatHoldsIt(t *testing.T) {
	m, err := Load(context.Background(), tinyOptions(t, record.New("cpu")))
	if err != nil {
		t.Fatal(err)
	}
	for rows, want := range map[int]int64{1: 2, 2: 2, 3: 8, 8: 8} {
		if got := m.Plan(rows).Limits.Rows; got != want {
			t.Errorf("%d rows run the plan of %d, want %d", rows, got, want)
		}
	}
	if m.Plan(9) != nil {
		t.Error("9 rows have a plan")
	}
	logits, ids, err := Evaluate(m, []int32{1, 2, 3, 4, 5}, 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	if len(logits) != 5 || len(logits[0]) != 6 || len(ids) != 3 {
		t.Errorf("%d rows of %d logits, %d ids; want 5 of 6 and 3", len(logits), len(logits[0]), len(ids))
	}
	ended, end := context.WithCancel(context.Background())
	end()
	if _, err := m.Evaluate(ended, Sequence{Prompt: []int32{1, 2}}); !diag.Is(err, diag.Canceled) {
		t.Errorf("an interrupted evaluation gives %v, want diag.Canceled", err)
	}
}

// Pieces of tensors give the rows that they name, in order, however they are read.
func TestPiecesOfTensors(t *testing.T) {
	data := make([]byte, 24) // bf16, element i holds i
	for i := range 12 {
		data[2*i] = byte(i)
	}
	store, err := weights.Memory(
		safetensors.NamedTensor{Name: "a", DType: tensor.BF16, Shape: tensor.Shape{6, 1}, Data: data[:12]},
		safetensors.NamedTensor{Name: "b", DType: tensor.BF16, Shape: tensor.Shape{2, 3, 2}, Data: data})
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1, 3, 4, 16} {
		for _, c := range []struct {
			sources []string
			want    []byte
		}{
			{[]string{"a[1:3:3]", "a[0:1:3]", "a[0:2:6]"}, []byte{1, 0, 2, 0, 4, 0, 5, 0, 0, 0, 3, 0, 0, 0, 1, 0}},
			{[]string{"b#1^T", "b#0[1:2:3]"}, []byte{6, 0, 8, 0, 10, 0, 7, 0, 9, 0, 11, 0, 2, 0, 3, 0}},
			{[]string{"b#0^T[0:1:2]", "b#1^T[0:1:2]", "b#1^T[1:2:2]", "a[5:6:6]"}, []byte{0, 0, 2, 0, 4, 0, 6, 0, 8, 0, 10, 0, 7, 0, 9, 0, 11, 0, 5, 0}},
		} {
			n := len(c.want)
			w := plan.Weight{Axes: plan.Axes{{Name: "rows", Size: int64(n / 2)}, {Name: "k", Size: 1}}, DType: tensor.BF16, Sources: c.sources}
			j := loadJob{w: &w}
			pieces, err := j.pieces(store)
			if err != nil {
				t.Error(err)
				continue
			}
			r := sourceReader{store: store, pieces: pieces}
			var got []byte
			for len(got) < n {
				part := make([]byte, min(size, n-len(got)))
				if err := r.read(int64(len(got)), part); err != nil {
					t.Fatal(err)
				}
				got = append(got, part...)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%v read %d at a time: %v, want %v", c.sources, size, got, c.want)
			}
		}
	}
	for source, want := range map[string]string{"a[0:1:4]": "no whole groups of 4 rows", "b#2": "nothing at index 2", "b^T": "no matrix", "c": "has no tensor c"} {
		w := plan.Weight{Axes: plan.Axes{{Name: "rows", Size: 8}}, DType: tensor.BF16, Sources: []string{source}}
		if _, err := (&loadJob{w: &w}).pieces(store); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", source, err, want)
		}
	}
}

// Whatever call to the device fails while loading, the error reaches the caller and nothing stays allocated.
func TestEveryFailureWhileLoadingFreesEverything(t *testing.T) {
	for _, op := range []record.Op{record.Alloc, record.Layout, record.Pack, record.Bind} {
		count := record.Fail(record.New("cpu"), op, 0, nil)
		if m, err := Load(context.Background(), tinyOptions(t, count)); err != nil {
			t.Fatal(err)
		} else if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		for n := 1; n <= count.Count(op); n++ {
			dev := record.New("cpu")
			_, err := Load(context.Background(), tinyOptions(t, record.Fail(dev, op, n, diag.Errorf(diag.IO, "broken"))))
			if !diag.Is(err, diag.IO) || !strings.Contains(err.Error(), "broken") {
				t.Errorf("%v %d: %v", op, n, err)
			}
			if live := dev.Live(); len(live) > 0 {
				t.Errorf("%v %d: still allocated: %v", op, n, live)
			}
		}
	}
}

func TestLoadNamesWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*plan.Plan)
		want   string
	}{
		"missing tensor": {func(p *plan.Plan) { p.Weights[0].Sources = []string{"a", "c"} }, "weight embed: the checkpoint has no tensor c"},
		"other type":     {func(p *plan.Plan) { p.Weights[0].DType = tensor.F16 }, "tensor a is bf16, the plan says f16"},
		"other shape":    {func(p *plan.Plan) { p.Weights[0].Sources = []string{"a"} }, "hold 12 elements"},
		"other groups":   {func(p *plan.Plan) { p.Weights[0].Sources = []string{"a[0:1:2]", "b"} }, "no whole groups of 2 rows"},
		"past the arena": {func(p *plan.Plan) { p.Buffers[0].Offset = 1 << 20 }, "launch embed (embed), argument y"},
		"unknown field":  {func(p *plan.Plan) { p.Launches[0].Args[1].Step = "tokenz" }, `no field "tokenz"`},
	} {
		o := tinyOptions(t, record.New("cpu"))
		o.Plans = o.Plans[:1]
		c.change(o.Plans[0])
		if _, err := Load(context.Background(), o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Load(ctx, tinyOptions(t, record.New("cpu"))); !diag.Is(err, diag.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// goodStep is two sequences: three rows at position 3 of pages 0 and 4, one row at position 0 of page 2.
func goodStep() *Step {
	return &Step{
		Tokens: []int32{1, 2, 3, 4}, Positions: []int32{3, 4, 5, 0}, RowSeq: []int32{0, 0, 0, 1}, Slots: []int32{3, 16, 17, 8},
		CuRows: []int32{0, 3, 4}, Pages: [][]int32{{0, 4}, {2}}, StateSlot: []int32{1, 0}, Fresh: []int32{0, 1}, OutRows: []int32{2, 3},
	}
}

func TestStepsThatBreakTheContractAreRefused(t *testing.T) {
	dev := record.New("cpu")
	m, err := Load(context.Background(), tinyOptions(t, dev))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Run(goodStep()); err != nil {
		t.Fatal(err)
	}
	dev.Reset()
	for name, change := range map[string]func(*Step){
		"no rows":             func(s *Step) { *s = Step{CuRows: []int32{0}} },
		"fewer positions":     func(s *Step) { s.Positions = s.Positions[:3] },
		"page out of range":   func(s *Step) { s.Pages[1][0] = 5 },
		"page too far":        func(s *Step) { s.Positions[2], s.Slots[2] = 8, 0 },
		"slot of other page":  func(s *Step) { s.Slots[0] = 4 },
		"state slot":          func(s *Step) { s.StateSlot[0] = 2 },
		"empty sequence":      func(s *Step) { s.CuRows[1] = 0 },
		"other row's seq":     func(s *Step) { s.RowSeq[1] = 1 },
		"out rows not rising": func(s *Step) { s.OutRows = []int32{3, 2} },
		"out row too far":     func(s *Step) { s.OutRows = []int32{4} },
		"negative token":      func(s *Step) { s.Tokens[0] = -1 },
		"token too large":     func(s *Step) { s.Tokens[0] = 6 },
		"negative position":   func(s *Step) { s.Positions[3], s.Slots[3] = -1, 7 },
		"falling positions":   func(s *Step) { s.Positions[0], s.Positions[2] = 5, 3 },
		"first row too far":   func(s *Step) { s.Positions = []int32{9, 10, 0, 0} },
		"too many sequences":  func(s *Step) { s.Pages = append(s.Pages, nil) },
	} {
		s := goodStep()
		change(s)
		if _, err := m.Run(s); !diag.Is(err, diag.Internal) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if events := dev.Events(); len(events) > 0 {
		t.Errorf("a refused step reached the device: %v", events)
	}
}

func TestAFailedLaunchNamesItsPlace(t *testing.T) {
	m, err := Load(context.Background(), tinyOptions(t, record.Fail(record.New("cpu"), record.Launch, 2, diag.Errorf(diag.DeviceLost, "gone"))))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := m.Run(goodStep()); !diag.Is(err, diag.DeviceLost) || !strings.Contains(err.Error(), "gone") {
			t.Errorf("%v, want the device lost for good", err)
		}
	}
}

func TestAStepThatDoesNotEndIsNamed(t *testing.T) {
	m, err := Load(context.Background(), tinyOptions(t, record.Fail(record.New("cpu"), record.Sync, 1, diag.Errorf(diag.DeviceLost, "gone"))))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Run(goodStep()); !diag.Is(err, diag.DeviceLost) || err.Error() != "a step of tiny of 8 rows: gone" {
		t.Errorf("%v", err)
	}
}

func TestRunAllocatesNothing(t *testing.T) {
	m, err := Load(context.Background(), tinyOptions(t, quiet{record.New("cpu")}))
	if err != nil {
		t.Fatal(err)
	}
	s := goodStep()
	if n := testing.AllocsPerRun(100, func() {
		if _, err := m.Run(s); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations a step", n)
	}
}

// quiet is a device that keeps nothing.
type quiet struct{ gpu.Device }

func (q quiet) Stream() gpu.Stream                        { return q }
func (quiet) Launch(gpu.Launch) error                     { return nil }
func (quiet) Sync() error                                 { return nil }
func (quiet) Alloc(_ string, n int64) (gpu.Buffer, error) { return still(n), nil }
func (quiet) Layout(string) (gpu.Layout, error)           { return flat{}, nil }

type still int64

func (s still) Size() int64             { return int64(s) }
func (still) Write(int64, []byte) error { return nil }
func (still) Read(int64, []byte) error  { return nil }
func (still) Free()                     {}

// flat packs nothing.
type flat struct{}

func (flat) Rows() int64                                    { return 1 }
func (flat) DType(d tensor.DType) tensor.DType              { return d }
func (flat) Size(tensor.DType, tensor.Shape) (int64, error) { return 64, nil }
func (flat) Pack(gpu.Buffer, int64, tensor.DType, tensor.Shape, int64, int64, int64, []byte) error {
	return nil
}
