// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/gpu/record"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/seq"
)

// words are the 32-bit words of an argument.
func words(l *gpu.Binding, name string) func(i int) *uint32 {
	x, _ := l.Arg(name)
	data := x.Buf.(*ownBuffer).data[x.Off:]
	return func(i int) *uint32 { return (*uint32)(unsafe.Pointer(&data[4*i])) }
}

// feed and drawLargest are the sampler's kernels, for greedy draws.
func feed(l *gpu.Binding) {
	head, tokens, from, newest := words(l, "head"), words(l, "tokens"), words(l, "feed"), words(l, "newest")
	for r := range int(*head(0)) {
		if s := int32(*from(r)); s >= 0 {
			*tokens(r) = *newest(int(s))
		}
	}
}

func drawLargest(l *gpu.Binding) {
	head, draws, logits, newest, results := words(l, "head"), words(l, "draws"), words(l, "logits"), words(l, "newest"), words(l, "results")
	x, _ := l.Arg("logits")
	width := int(x.Axes[1].Size)
	for i := range int(*head(3)) {
		row, best := int(*draws(drawWords * i)), 0
		at := func(j int) float32 { return math.Float32frombits(*logits(width*row + j)) }
		for j := range width {
			if at(j) > at(best) {
				best = j
			}
		}
		*results(resultWords * i), *results(resultWords*i + 2) = uint32(best), math.Float32bits(at(best))
		if s := int32(*draws(drawWords*i + 2)); s >= 0 {
			*newest(int(s)) = uint32(best)
		}
	}
}

func (d *own) Mark() (gpu.Mark, error) {
	if d.fail["mark"] {
		return nil, diag.Errorf(diag.Unsupported, "no marks")
	}
	d.live.Add(1)
	return &ownMark{d: d}, nil
}

// ownMark is a place in the queue.
type ownMark struct {
	d  *own
	at int
}

func (m *ownMark) Set() error  { m.at = m.d.ran + len(m.d.queue); return nil }
func (m *ownMark) Free()       { m.d.live.Add(-1) }
func (m *ownMark) Wait() error { m.d.run(m.at - m.d.ran); return nil }

// run runs the first n of what is queued.
func (d *own) run(n int) {
	for range n {
		d.queue[0]()
		d.queue = d.queue[1:]
		d.ran++
	}
}

// sampling is ownOptions whose device draws, for two sequences.
func sampling(t *testing.T, d gpu.Device) Options {
	o := ownOptions(t, d)
	o.Sampling = &Sampling{Vocab: 6, Seats: 2}
	return o
}

// continued is a step of the next row of each sequence of goodStep, whose tokens are those that were drawn.
func continued(at int32) *Step {
	s := &Step{
		Tokens: []int32{-1, -1}, Positions: []int32{6 + at, 1 + at}, RowSeq: []int32{0, 1},
		CuRows: []int32{0, 1, 2}, Pages: [][]int32{{0, 4, 1}, {2, 3}}, StateSlot: []int32{1, 0}, Fresh: []int32{0, 0}, OutRows: []int32{0, 1},
		Feed: []int32{0, 1},
	}
	for r, p := range s.Positions {
		s.Slots = append(s.Slots, s.Pages[r][p/4]*4+p%4)
	}
	return draw(s)
}

// draw asks for a greedy token of each wanted row, in seats 0, 1, ….
func draw(s *Step) *Step {
	for i := range s.OutRows {
		s.Draws = append(s.Draws, Draw{Out: int32(i), Seat: int32(i), Token: -1, Policy: Policy{Greedy: true, Scale: 1, Repetition: 1}, Logprobs: -1})
	}
	return s
}

// TestStepsAreStartedBeforeTheTokensOfTheLastOneAreSeen: logits are token+10*column, so the drawn token is always 5, and its logit
// tells which token the row had.
func TestStepsAreStartedBeforeTheTokensOfTheLastOneAreSeen(t *testing.T) {
	for _, eager := range []bool{false, true} {
		dev := &own{}
		o := sampling(t, dev)
		o.Eager = eager
		m, err := Load(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		if !m.Draws() {
			t.Fatal("the model does not draw")
		}
		if err := m.Start(draw(goodStep())); err != nil {
			t.Fatal(err)
		}
		if err := m.Start(continued(0)); err != nil {
			t.Fatal(err)
		}
		if err := m.Start(continued(1)); err == nil || !strings.Contains(err.Error(), "2 steps are under way") {
			t.Errorf("a third step: %v", err)
		}
		logits := func() (out []float32) {
			drawn, err := m.Finish(nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range drawn {
				if d.Token != 5 || d.Err != nil {
					t.Errorf("%+v", d)
				}
				out = append(out, d.Logit)
			}
			return
		}
		if got := logits(); !slices.Equal(got, []float32{53, 54}) {
			t.Errorf("the first step's rows had tokens 3 and 4, logits are %v", got)
		}
		for at := int32(1); at < 5; at++ {
			if err := m.Start(continued(at)); err != nil {
				t.Fatal(err)
			}
			if got := logits(); !slices.Equal(got, []float32{55, 55}) {
				t.Errorf("rows were fed with tokens 5, logits are %v", got)
			}
		}
		logits()
		if _, err := m.Finish(nil); err == nil {
			t.Error("a step that nobody started is finished")
		}
		if n := len(dev.graphs); eager && n != 0 || !eager && (n != 1 || dev.graphs[0] != "tiny of 2 rows, greedy, fed") {
			t.Errorf("eager %v: graphs %v", eager, dev.graphs)
		}
		if err := m.Close(); err != nil || dev.live.Load() != 0 {
			t.Errorf("%d things are left, %v", dev.live.Load(), err)
		}
	}
}

// A mask is asked for while the step runs: what it does not depend on is queued before.
func TestMasksAreMadeWhileTheStepRuns(t *testing.T) {
	dev := &own{}
	m, err := Load(context.Background(), sampling(t, dev))
	if err != nil {
		t.Fatal(err)
	}
	s := draw(goodStep())
	queued := 0
	s.Draws[1].Mask = func(to []uint32) { queued, to[0] = len(dev.queue), 0b1010 }
	if err := m.Start(s); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Finish(nil); err != nil {
		t.Fatal(err)
	}
	if queued != 2 { // the step block and the logits
		t.Errorf("%d things were queued before the mask was asked for", queued)
	}
	if got := m.sampler.masks.(*ownBuffer).data[0]; got != 0b1010 {
		t.Errorf("the mask on the device is %b", got)
	}
}

// Seats hold biases, bans and counts; a sequence that has none changes no memory.
func TestSeats(t *testing.T) {
	m, err := Load(context.Background(), sampling(t, &own{}))
	if err != nil {
		t.Fatal(err)
	}
	word := func(b gpu.Buffer, at int) uint32 { return *(*uint32)(unsafe.Pointer(&b.(*ownBuffer).data[4*at])) }
	g := &Seating{Bias: []seq.Bias{{Token: 3, Value: 2}}, Banned: []int32{4}, Counts: []seq.Count{{Token: 2}, {Token: 5, Text: 7}, {Token: 9, Text: 1}}}
	if err := m.Seat(1, g); err != nil {
		t.Fatal(err)
	}
	s := m.sampler
	for i, want := range []uint32{3, math.Float32bits(2), 4} {
		if got := word(s.edits, 2*MaxEdits+i); got != want {
			t.Errorf("word %d of the edits is %d, want %d", i, got, want)
		}
	}
	for i, want := range []uint32{0, 0, 1 << 31, 0, 0, 1<<31 | 7} {
		if got := word(s.counts, 6+i); got != want {
			t.Errorf("the count of token %d is %#x, want %#x", i, got, want)
		}
	}
	if err := m.Seat(1, &Seating{Counts: []seq.Count{{Token: 0}}}); err != nil || word(s.counts, 6) != 1<<31 || word(s.counts, 8) != 0 {
		t.Errorf("%v: counts of the sequence before are left", err)
	}
	if s.seats[1] != (seat{}) {
		t.Errorf("%+v", s.seats[1])
	}
	for _, at := range []int{-1, 2} {
		if err := m.Seat(at, g); err == nil {
			t.Errorf("seat %d is taken", at)
		}
	}
	g.Banned = make([]int32, MaxEdits)
	if err := m.Seat(0, g); err == nil {
		t.Error("more edits than a seat has")
	}
}

func TestDrawsThatBreakTheContractAreRefused(t *testing.T) {
	m, err := Load(context.Background(), sampling(t, &own{}))
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Step){
		"no such row":                    func(s *Step) { s.Draws[1].Out = 2 },
		"no such seat":                   func(s *Step) { s.Draws[1].Seat = 2 },
		"no such token":                  func(s *Step) { s.Draws[0].Token = 6 },
		"too many wanted":                func(s *Step) { s.Draws[0].Logprobs = MaxBest + 1 },
		"short feed":                     func(s *Step) { s.Feed = []int32{0} },
		"a seat that is not there feeds": func(s *Step) { s.Feed = []int32{0, 0, 0, 2} },
		"another part":                   func(s *Step) { s.Part = "mtp" },
		"no token":                       func(s *Step) { s.Tokens[0] = -1 },
	} {
		s := draw(goodStep())
		spoil(s)
		if err := m.Start(s); !diag.Is(err, diag.Internal) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := m.Start(draw(goodStep())); err != nil {
		t.Error(err)
	}
}

func TestWhoCannotDraw(t *testing.T) {
	for what, o := range map[string]Options{
		"no memory of its own": sampling(t, record.New("cpu")),
		"no marks":             sampling(t, &own{fail: map[string]bool{"mark": true}}),
		"no results":           sampling(t, &own{fail: map[string]bool{"results": true}}),
	} {
		if _, err := Load(context.Background(), o); !diag.Is(err, diag.Unsupported) {
			t.Errorf("%s: %v", what, err)
		}
		if d, ok := o.Device.(*own); ok && d.live.Load() != 0 {
			t.Errorf("%s: %d things are left", what, d.live.Load())
		}
	}
}

func TestDrawingAllocatesNothing(t *testing.T) {
	m, err := Load(context.Background(), sampling(t, &own{still: true}))
	if err != nil {
		t.Fatal(err)
	}
	first, next := draw(goodStep()), continued(0)
	var out []Drawn
	round := func() {
		for _, s := range []*Step{first, next} {
			if err := m.Start(s); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if out, err = m.Finish(out[:0]); err != nil {
				t.Fatal(err)
			}
		}
	}
	round()
	round()
	if n := testing.AllocsPerRun(100, round); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkHostTimeOfAStep is what a step of 8 sequences of 4096 tokens costs the host beside the driver's calls, when logits come
// back and when tokens are drawn on the device.
func BenchmarkHostTimeOfAStep(b *testing.B) {
	p := tinyPlan(8)
	p.Limits.Seqs, p.Limits.PageSize, p.Limits.Pages = 8, 16, 256
	for i := range 400 {
		p.Launches = append(p.Launches, plan.Launch{Name: "x" + string(rune('a'+i%26)), Kernel: "none"})
	}
	m, err := Load(context.Background(), Options{Device: &own{still: true}, Plans: []*plan.Plan{p}, Store: twoTensors(b, make([]byte, 48)), NumPages: 2048, NumSlots: 8,
		Sampling: &Sampling{Vocab: 6, Seats: 8}})
	if err != nil {
		b.Fatal(err)
	}
	s := &Step{CuRows: []int32{0}}
	for q := range int32(8) {
		pages := make([]int32, 256)
		for i := range pages {
			pages[i] = q*256 + int32(i)
		}
		s.Tokens, s.Positions, s.RowSeq = append(s.Tokens, 1), append(s.Positions, 4095), append(s.RowSeq, q)
		s.Slots, s.CuRows, s.Pages = append(s.Slots, (q*256+255)*16+15), append(s.CuRows, q+1), append(s.Pages, pages)
		s.StateSlot, s.Fresh, s.OutRows = append(s.StateSlot, q), append(s.Fresh, 0), append(s.OutRows, q)
	}
	b.Run("logits", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := m.Run(s); err != nil {
				b.Fatal(err)
			}
		}
	})
	draw(s)
	s.Feed = []int32{0, 1, 2, 3, 4, 5, 6, 7}
	var out []Drawn
	b.Run("drawn", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := m.Start(s); err != nil {
				b.Fatal(err)
			}
			if out, err = m.Finish(out[:0]); err != nil {
				b.Fatal(err)
			}
		}
	})
}
