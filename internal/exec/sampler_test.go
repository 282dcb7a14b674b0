// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/gpu/cuda"
	"github.com/metrale/metrale/internal/gpu/cudatest"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/sample"
	"github.com/metrale/metrale/internal/seq"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights"
	"github.com/metrale/metrale/internal/weights/safetensors"
	"github.com/metrale/metrale/kernels"
)

// lookup is a model whose logits are the row of a table that the token names.
func lookup(t testing.TB, dev gpu.Device, table [][]float32, o Sampling, rows ...int64) *Model {
	t.Helper()
	width := int64(len(table[0]))
	data := make([]byte, 0, 4*int64(len(table))*width)
	for _, row := range table {
		for _, v := range row {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
		}
	}
	store, err := weights.Memory(safetensors.NamedTensor{Name: "table", DType: tensor.F32, Shape: tensor.Shape{int64(len(table)), width}, Data: data})
	if err != nil {
		t.Fatal(err)
	}
	step := func(name string) plan.Arg { return plan.Arg{Param: name, Kind: plan.ArgStep, Step: name} }
	var plans []*plan.Plan
	for _, r := range rows {
		v := plan.Axis{Name: "vocab", Size: width}
		plans = append(plans, &plan.Plan{
			Circuit: "lookup", Class: "hopper", Compute: "float32", KV: tensor.F32,
			Limits:  plan.Limits{Rows: r, Seqs: r, Outs: r, PageSize: 16, Pages: 4},
			Weights: []plan.Weight{{Name: "table", Axes: plan.Axes{{Name: "tokens", Size: int64(len(table))}, v}, DType: tensor.F32, Layout: "dense", Sources: []string{"table"}}},
			Buffers: []plan.Buffer{{Name: "logits", Axes: plan.Axes{{Name: plan.Rows, Size: r}, v}, DType: tensor.F32}},
			Launches: []plan.Launch{{Name: "logits", Kernel: "embed", Attrs: []plan.Attr{{Name: "scale", Kind: plan.FloatAttr, Float: 1}},
				Args: []plan.Arg{step("head"), step("tokens"), {Param: "w", Kind: plan.ArgWeight}, {Param: "y", Access: plan.Out}}}},
			Arena: 4 * r * width,
		})
	}
	m, err := Load(context.Background(), Options{Device: dev, Plans: plans, Store: store, NumPages: 64, NumSlots: 0, Sampling: &o})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// rowsOfTokens is a step of one row of each of so many sequences.
func rowsOfTokens(tokens ...int32) *Step {
	s := &Step{CuRows: []int32{0}}
	for i, t := range tokens {
		s.Tokens, s.Positions, s.RowSeq, s.Slots = append(s.Tokens, t), append(s.Positions, 0), append(s.RowSeq, int32(i)), append(s.Slots, int32(16*i))
		s.CuRows, s.Pages = append(s.CuRows, int32(i+1)), append(s.Pages, []int32{int32(i)})
		s.StateSlot, s.Fresh, s.OutRows = append(s.StateSlot, 0), append(s.Fresh, 0), append(s.OutRows, int32(i))
	}
	return s
}

var (
	posInf = float32(math.Inf(1))
	negInf = float32(math.Inf(-1))
)

// samplerTable are rows of logits of many kinds.
func samplerTable(r *rand.Rand, vocab, width int) (table [][]float32) {
	row := func(f func(i int) float32) {
		l := make([]float32, width)
		for i := range l {
			l[i] = f(i)
		}
		table = append(table, l)
	}
	normal := func(std float64) func(int) float32 {
		return func(int) float32 { return float32(r.NormFloat64() * std) }
	}
	for _, std := range []float64{1e-4, 0.3, 2.5, 30} {
		row(normal(std))
	}
	row(func(i int) float32 { // a model's: a bulk, and some that stand out
		if r.IntN(vocab) < 30 {
			return 18 - float32(r.IntN(60))/3
		}
		return float32(r.NormFloat64() * 2.5)
	})
	row(func(i int) float32 { return float32(r.IntN(5)) }) // ties
	row(func(i int) float32 { return -7 })                 // nothing but ties
	row(func(i int) float32 {                              // impossible ones, zeros of both signs
		return []float32{negInf, 0, float32(math.Copysign(0, -1)), 1, -1}[r.IntN(5)]
	})
	row(func(i int) float32 { // far apart
		return []float32{-1e38, 3e38, 0, 1, 2, -3e38, negInf}[r.IntN(7)]
	})
	row(func(i int) float32 { return []float32{-1e4, float32(r.NormFloat64()) * 1e-3}[min(1, r.IntN(9))] }) // dense, with outliers
	row(func(i int) float32 { return float32(r.IntN(40)) / 20 })                                            // levels of ties
	for _, bits := range []uint32{0x7FC00000, 0xFFC00000} {                                                 // NaN of both signs
		row(normal(1))
		table[len(table)-1][r.IntN(vocab)] = math.Float32frombits(bits)
	}
	row(normal(1))
	table[len(table)-1][r.IntN(vocab)] = posInf
	row(func(i int) float32 { return negInf })
	for i := range table { // what lies past the vocabulary is never looked at
		for j := vocab; j < width; j++ {
			table[i][j] = posInf
		}
	}
	return table
}

// randomSampling is a policy with any of its parts.
func randomSampling(r *rand.Rand, vocab int) seq.Sampling {
	p := seq.Sampling{Temperature: []float32{0, 0.01, 0.3, 1, 1.5, 100, 1e30}[r.IntN(7)], TopP: 1, RepetitionPenalty: 1, Seed: r.Uint64()}
	maybe := func(f func()) {
		if r.IntN(3) == 0 {
			f()
		}
	}
	maybe(func() { p.TopK = 1 + r.IntN([]int{1, 4, 60, vocab + 3}[r.IntN(4)]) })
	maybe(func() { p.TopP = []float32{1e-6, 0.5, 0.9, 0.999, float32(r.Float64()*0.999 + 0.001)}[r.IntN(5)] })
	maybe(func() { p.MinP = float32(r.Float64() * 0.3) })
	maybe(func() { p.TopNSigma = float32(r.Float64() * 3) })
	maybe(func() { p.RepetitionPenalty = float32(0.5 + r.Float64()) })
	maybe(func() { p.PresencePenalty = float32(r.Float64()*4 - 2) })
	maybe(func() { p.FrequencyPenalty = float32(r.Float64()*4 - 2) })
	maybe(func() {
		for t := r.IntN(5); t < vocab && len(p.LogitBias) < 300; t += 1 + r.IntN(30) {
			p.LogitBias = append(p.LogitBias, seq.Bias{Token: int32(t), Value: float32(r.NormFloat64() * 10)})
		}
	})
	return p
}

// place is a sequence that draws, on the host and in a seat of the device.
type place struct {
	policy seq.Sampling
	host   sample.Seq
	banned []int32
	index  uint64
}

// sit begins a sequence with some prompt and text.
func sit(t *testing.T, r *rand.Rand, m *Model, at, vocab int) *place {
	p := &place{policy: randomSampling(r, vocab), index: r.Uint64() >> r.IntN(64)}
	var prompt []int32
	for range 1 + r.IntN(40) {
		prompt = append(prompt, int32(r.IntN(vocab)))
	}
	p.host.Reset(&p.policy, prompt)
	for range r.IntN(40) {
		p.host.Accept(int32(r.IntN(1 + r.IntN(vocab))))
	}
	for range r.IntN(4) {
		p.banned = append(p.banned, int32(r.IntN(vocab)))
	}
	if err := m.Seat(at, &Seating{Bias: p.policy.LogitBias, Banned: p.banned, Counts: p.host.Seen()}); err != nil {
		t.Fatal(err)
	}
	return p
}

// TestTheDeviceDrawsWhatTheHostDraws runs random policies over rows of many kinds, of vocabularies of many sizes, for several
// steps each, so that counts of penalties go on: the token, the error, the logit and the log-probabilities are the host's.
func TestTheDeviceDrawsWhatTheHostDraws(t *testing.T) {
	opened := cudatest.Open(t, kernels.FS)
	dev := opened.Device
	const batch = 6
	for i, c := range []struct{ vocab, width, steps int }{
		{1, 1, 3}, {7, 7, 40}, {33, 40, 60}, {300, 301, 60}, {4096, 4096, 30}, {4100, 4104, 30}, {20_000, 20_003, 12}, {70_000, 70_016, 5},
	} {
		t.Run(fmt.Sprint(c.vocab), func(t *testing.T) {
			r := rand.New(rand.NewPCG(uint64(i), 4))
			table := samplerTable(r, c.vocab, c.width)
			// The table has a row for each token that is looked up, whatever the vocabulary.
			for len(table) < c.vocab && len(table) < 40 {
				table = append(table, table[r.IntN(len(table))])
			}
			m := lookup(t, dev, table, Sampling{Vocab: c.vocab, Seats: batch + 1}, 1, batch)
			var scratch sample.Scratch
			places := make([]*place, batch)
			for step := range c.steps {
				n := 1 + r.IntN(batch)
				s := rowsOfTokens(make([]int32, n)...)
				masks := make([][]uint32, n)
				for j := range n {
					if places[j] == nil || r.IntN(4) == 0 {
						places[j] = sit(t, r, m, j+1, c.vocab)
					}
					p := places[j]
					s.Tokens[j] = int32(r.IntN(min(len(table), c.width)))
					d := Draw{Out: int32(j), Seat: int32(j + 1), Token: -1, Policy: Policy(*p.host.Policy()), Index: p.index, Banned: r.IntN(2) == 0, Logprobs: r.IntN(8) - 6}
					if d.Logprobs > 0 {
						d.Logprobs = 1 + r.IntN(MaxBest)
					}
					if r.IntN(4) == 0 {
						masks[j] = make([]uint32, (c.vocab+31)/32)
						for k := range masks[j] {
							masks[j][k] = r.Uint32() | r.Uint32()
						}
						d.Mask = func(to []uint32) { copy(to, masks[j]) }
					}
					if r.IntN(10) == 0 {
						d.Token, d.Logprobs, d.Mask = int32(r.IntN(c.vocab)), r.IntN(5), nil
					}
					s.Draws = append(s.Draws, d)
				}
				if err := m.Start(s); err != nil {
					t.Fatal(err)
				}
				got, err := m.Finish(nil)
				if err != nil {
					t.Fatal(err)
				}
				for j, d := range s.Draws {
					l, p := table[s.Tokens[j]][:c.vocab], places[j]
					if err := sameDraw(&scratch, l, &d, masks[j], p, &got[j]); err != nil {
						t.Errorf("step %d, row %d of kind %d, %+v, draw %+v: %v", step, j, s.Tokens[j], p.policy, d, err)
						return
					}
				}
			}
		})
	}
	if !t.Failed() {
		opened.Saw(t, "sample_draw", "sample_feed", "sample_greedy")
	}
}

// sameDraw draws on the host and compares.
func sameDraw(scratch *sample.Scratch, l []float32, d *Draw, mask []uint32, p *place, got *Drawn) error {
	id := d.Token
	var err error
	if id < 0 {
		in := sample.Row{Logits: l, Index: d.Index, Allowed: mask}
		if d.Banned {
			in.Banned = p.banned
		}
		if id, err = scratch.Sample(&p.host, in); err == nil {
			p.host.Accept(id)
			p.index++
		}
	}
	var value float32
	var top []seq.Logprob
	scored := d.Logprobs >= 0 || d.Token >= 0
	if err == nil && scored {
		value, top, err = sample.Logprobs(l, id, max(0, d.Logprobs), nil)
	}
	switch {
	case err != nil || got.Err != nil:
		if fmt.Sprint(err) != fmt.Sprint(got.Err) {
			return fmt.Errorf("error %v, want %v", got.Err, err)
		}
		return nil
	case d.Token < 0 && got.Token != id:
		return fmt.Errorf("token %d with logit %v, want %d with %v", got.Token, l[got.Token], id, l[id])
	case math.Float32bits(got.Logit) != math.Float32bits(l[id]):
		return fmt.Errorf("logit %v, want %v", got.Logit, l[id])
	case !scored:
		return nil
	}
	norm := sample.Norm(got.Top, got.Total)
	var best []seq.Logprob
	for _, b := range got.Best {
		best = append(best, seq.Logprob{Token: b.Token, Value: sample.Logprob(b.Value, norm)})
	}
	if v := sample.Logprob(got.Logit, norm); v != value || !slices.Equal(best, top) {
		return fmt.Errorf("log-probability %v, want %v; best\n%v, want\n%v", v, value, best, top)
	}
	return nil
}

// BenchmarkSampler is what the sampler's launches take on the device, replayed back to back, over logits like a model's.
func BenchmarkSampler(b *testing.B) {
	dev := cudatest.Open(b, kernels.FS).Device
	for _, vocab := range []int{32_000, 151_936, 262_144} {
		r := rand.New(rand.NewPCG(3, 4))
		table := make([][]float32, 1)
		table[0] = make([]float32, vocab)
		for i := range table[0] {
			table[0][i] = float32(r.NormFloat64() * 2.5)
		}
		for i := range 30 {
			table[0][r.IntN(vocab)] = 18 - float32(i)/3
		}
		m := lookup(b, dev, table, Sampling{Vocab: vocab, Seats: 64}, 1, 8, 64)
		for _, c := range []struct {
			name     string
			p        seq.Sampling
			logprobs int
		}{
			{"greedy", seq.Greedy(), -1},
			{"temperature", seq.Sampling{Temperature: 1, TopP: 1, RepetitionPenalty: 1}, -1},
			{"topk50-topp0.95", seq.Sampling{Temperature: 0.8, TopK: 50, TopP: 0.95, RepetitionPenalty: 1}, -1},
			{"topp0.9", seq.Sampling{Temperature: 1, TopP: 0.9, RepetitionPenalty: 1}, -1},
			{"topp0.99-hot", seq.Sampling{Temperature: 3, TopP: 0.99, RepetitionPenalty: 1}, -1},
			{"topnsigma1-penalties", seq.Sampling{Temperature: 1, TopP: 1, TopNSigma: 1, RepetitionPenalty: 1.1}, -1},
			{"greedy-logprobs20", seq.Greedy(), 20},
		} {
			for _, rows := range []int{1, 8, 64} {
				b.Run(fmt.Sprintf("%d/%s/%d", vocab, c.name, rows), func(b *testing.B) {
					s := rowsOfTokens(make([]int32, rows)...)
					for i := range rows {
						s.Draws = append(s.Draws, Draw{Out: int32(i), Seat: int32(i), Token: -1, Policy: Policy(sample.NewPolicy(&c.p)), Logprobs: c.logprobs})
						s.Draws[i].Policy.Seed = uint64(i)
					}
					replaySampler(b, dev, m, s)
				})
			}
		}
	}
}

// replaySampler starts the launches of a step's draws b.N times.
func replaySampler(b *testing.B, dev *cuda.Device, m *Model, s *Step) {
	p, err := m.Probe(s)
	if err != nil {
		b.Fatal(err)
	}
	if err := p.Run(0); err != nil {
		b.Fatal(err)
	}
	draws, err := p.RecordDraws()
	if err != nil {
		b.Fatal(err)
	}
	defer draws.Free()
	ms, err := dev.Time(func() error {
		for range b.N {
			if err := draws.Start(); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(1000*ms/float64(b.N), "µs/step")
}
