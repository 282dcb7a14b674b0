// SPDX-License-Identifier: MIT OR Apache-2.0

package bench

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/sample"
	"github.com/metrale/metrale/internal/seq"
)

// Subject is a model on a device: its plans hold a row for each sequence of a batch.
type Subject struct {
	Name     string
	Model    *exec.Model
	Instance *circuit.Instance // that its plans were lowered from
	Device   gpu.Device
	Sweep    float64       // GB/s of the device; 0: not known
	Policy   *seq.Sampling // by which Decode draws; nil: the likeliest token
}

// Room is how many pages of a class's size a batch needs that decodes so many steps behind a context.
func Room(batch, context, steps int, pageSize int64) (perSeq int64, all int) {
	perSeq = (int64(context+steps+warm+1) + pageSize) / pageSize
	return perSeq, batch * int(perSeq)
}

// warm is the number of steps before those that count: the first loads code, the second records.
const warm = 4

// Decoding is one batch's figures.
type Decoding struct {
	Model    string  `json:"model"`
	Batch    int     `json:"batch"`
	Context  int     `json:"context"`     // tokens before the first step
	Steps    int     `json:"steps"`       // that count
	TokS     float64 `json:"tok_s"`       // of all sequences
	Step     float64 `json:"step_us"`     // median from one step's start, or tokens, to the next one's: plan, logits, sampling
	Device   float64 `json:"device_us"`   // median of the plan alone, replayed back to back
	Host     float64 `json:"host_us"`     // median of what the host does before it waits for the device
	Sampling float64 `json:"sampling_us"` // on the host, or where the device draws its launches alone
	Drawn    bool    `json:"drawn"`       // by the device: the next step starts before the host has seen the tokens
	Launches int     `json:"launches"`
	Bytes    int64   `json:"bytes"`     // weights that a step reads; experts as rows take them that choose at random
	Floor    float64 `json:"floor_us"`  // Bytes at the sweep
	Sweep    float64 `json:"sweep_gbs"` // 0: none
	Share    float64 `json:"share"`     // Floor of Step

	Kernels float64 `json:"kernels_us"` // the plan's, each kind timed alone (Subject.Kernels), summed
	Gaps    float64 `json:"gaps_us"`    // Step without Kernels and Sampling; below 0 where launches overlap more than that
}

// Decode runs batch sequences for some steps behind a context of keys that are 0.
func (s *Subject) Decode(ctx context.Context, batch, context, steps int) (*Decoding, error) {
	r := newRun(s.Model.Limits(), s.Policy, batch, context)
	p := s.Model.Plan(batch)
	if p == nil {
		return nil, diag.Errorf(diag.Internal, "no plan holds a batch of %d", batch)
	}
	d := &Decoding{Model: s.Name, Batch: batch, Context: context, Steps: steps, Launches: launches(p), Sweep: s.Sweep}
	costs, err := s.Instance.Costs(p, circuit.Load{Rows: int64(batch), Seqs: int64(batch), Outs: int64(batch), Context: int64(context)})
	if err != nil {
		return nil, err
	}
	for _, c := range costs {
		d.Bytes += c.WeightBytes
	}
	d.Drawn = s.Model.Draws()
	var t *times
	if d.Drawn {
		t, err = r.ahead(ctx, s.Model, steps)
	} else {
		t, err = r.awaited(ctx, s.Model, steps)
	}
	if err != nil {
		return nil, err
	}
	d.Step, d.Host, d.Sampling = micros(median(t.whole)), micros(median(t.host)), micros(median(t.sampling))
	d.TokS, d.Share = 1e6*float64(batch)/d.Step, share(d.Bytes, s.Sweep, d.Step)
	if s.Sweep > 0 {
		d.Floor = float64(d.Bytes) / s.Sweep / 1000
	}
	probe, err := s.Model.Probe(r.step)
	if err != nil {
		return nil, err
	}
	all, err := probe.Record(span(len(p.Launches)))
	if err != nil {
		return nil, err
	}
	defer all.Free()
	if d.Device, err = repeat(s.Device, 5, 5, all.Start); err != nil {
		return nil, err
	}
	if d.Drawn {
		draws, err := probe.RecordDraws()
		if err != nil {
			return nil, err
		}
		defer draws.Free()
		if d.Sampling, err = repeat(s.Device, 5, 100, draws.Start); err != nil {
			return nil, err
		}
	}
	kernels, err := s.Kernels(ctx, batch, context)
	if err != nil {
		return nil, err
	}
	for _, k := range kernels {
		d.Kernels += k.Each * float64(k.Count)
	}
	d.Gaps = d.Step - d.Kernels - d.Sampling
	return d, nil
}

// times are those of the steps that count.
type times struct{ whole, host, sampling []time.Duration }

// interrupted is the error of a context that has ended.
func interrupted(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return diag.Errorf(diag.Canceled, "the benchmark was interrupted: %w", err)
	}
	return nil
}

// awaited runs steps one after the other and draws from their logits.
func (r *run) awaited(ctx context.Context, m *exec.Model, steps int) (*times, error) {
	t := &times{}
	for i := range warm + steps {
		if err := interrupted(ctx); err != nil {
			return nil, err
		}
		began := time.Now()
		logits, err := m.Run(r.step)
		if err != nil {
			return nil, err
		}
		ran := time.Now()
		if err := r.sample(logits); err != nil {
			return nil, err
		}
		r.advance()
		if end := time.Now(); i >= warm {
			t.whole, t.host, t.sampling = append(t.whole, end.Sub(began)), append(t.host, m.Submitted()), append(t.sampling, end.Sub(ran))
		}
	}
	return t, nil
}

// ahead lets the device draw: each step is started while the one before runs, whose tokens feed it.
func (r *run) ahead(ctx context.Context, m *exec.Model, steps int) (*times, error) {
	t := &times{}
	feed := make([]int32, len(r.seqs))
	for i := range r.seqs {
		feed[i] = int32(i)
		g := exec.Seating{}
		if r.seqs[i].Policy().Penalizes() {
			g.Counts = r.seqs[i].Seen()
		}
		if err := m.Seat(i, &g); err != nil {
			return nil, err
		}
		r.step.Draws = append(r.step.Draws, exec.Draw{Out: int32(i), Seat: int32(i), Token: -1, Policy: exec.Policy(*r.seqs[i].Policy()), Logprobs: -1})
	}
	var drawn []exec.Drawn
	var last time.Time
	for i := range warm + steps + 1 {
		if err := interrupted(ctx); err != nil {
			return nil, err
		}
		if err := m.Start(r.step); err != nil {
			return nil, err
		}
		r.advance()
		r.step.Feed = feed
		for j := range r.step.Draws {
			r.step.Draws[j].Index++
		}
		if i == 0 {
			continue
		}
		var err error
		if drawn, err = m.Finish(drawn[:0]); err != nil {
			return nil, err
		}
		for j := range drawn {
			if drawn[j].Err != nil {
				return nil, drawn[j].Err
			}
		}
		now := time.Now()
		if i > warm {
			t.whole, t.host, t.sampling = append(t.whole, now.Sub(last)), append(t.host, m.Submitted()), append(t.sampling, 0)
		}
		last = now
	}
	_, err := m.Finish(drawn[:0])
	return t, err
}

// launches counts what the driver starts: a launch of a plan may be several.
func launches(p *plan.Plan) (n int) {
	for i := range p.Launches {
		n += max(1, len(p.Launches[i].Grid)/5)
	}
	return n
}

// span is 0 … n-1.
func span(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// run is a batch in progress.
type run struct {
	limits  exec.Limits
	step    *exec.Step
	seqs    []sample.Seq
	scratch []sample.Scratch
	errs    []error
}

// newRun begins batch sequences of one row each, whose context tokens are in their pages. Their states are fresh in the first step: what
// is there comes from kernels that were timed alone, on any numbers.
func newRun(l exec.Limits, p *seq.Sampling, batch, context int) *run {
	if p == nil {
		greedy := seq.Greedy()
		p = &greedy
	}
	r := &run{limits: l, seqs: make([]sample.Seq, batch), scratch: make([]sample.Scratch, batch), errs: make([]error, batch)}
	s := &exec.Step{CuRows: []int32{0}}
	for i := range batch {
		r.seqs[i].Reset(p, []int32{int32(i + 1)})
		s.Tokens, s.Positions, s.RowSeq = append(s.Tokens, int32(i+1)), append(s.Positions, int32(context)), append(s.RowSeq, int32(i))
		s.CuRows, s.StateSlot, s.Fresh, s.OutRows = append(s.CuRows, int32(i+1)), append(s.StateSlot, int32(i)), append(s.Fresh, 1), append(s.OutRows, int32(i))
		pages := make([]int32, l.Pages)
		for j := range pages {
			pages[j] = int32(i*int(l.Pages) + j)
		}
		s.Pages = append(s.Pages, pages)
	}
	s.Slots = make([]int32, batch)
	r.step = s
	r.place()
	return r
}

// place finds the slots of the rows' positions.
func (r *run) place() {
	size := int32(r.limits.PageSize)
	for i, pos := range r.step.Positions {
		r.step.Slots[i] = r.step.Pages[i][pos/size]*size + pos%size
	}
}

// sample takes each sequence's next token, a goroutine a sequence where there are several.
func (r *run) sample(logits [][]float32) error {
	one := func(i int) {
		r.step.Tokens[i], r.errs[i] = r.scratch[i].Sample(&r.seqs[i], sample.Row{Logits: logits[i]})
	}
	var wg sync.WaitGroup
	for i := 1; i < len(logits); i++ {
		wg.Go(func() { one(i) })
	}
	one(0)
	wg.Wait()
	for _, err := range r.errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// advance moves every sequence on by a token, from the state that a step left.
func (r *run) advance() {
	clear(r.step.Fresh)
	for i := range r.step.Positions {
		r.step.Positions[i]++
	}
	r.place()
}

// PrintDecoding writes the batches of models as a table.
func PrintDecoding(w io.Writer, list []*Decoding) error {
	rows := [][]string{{"MODEL", "BATCH", "CONTEXT", "TOK/S", "MS/STEP", "FLOOR MS", "OF SWEEP", "DEVICE MS", "OF SWEEP", "HOST µS", "SAMPLING µS", "LAUNCHES", "GAPS µS", "READS GB"}}
	for _, d := range list {
		floor := "-"
		if d.Floor > 0 {
			floor = fmt.Sprintf("%.3f", d.Floor/1000)
		}
		rows = append(rows, []string{d.Model, fmt.Sprint(d.Batch), fmt.Sprint(d.Context), fmt.Sprintf("%.1f", d.TokS), fmt.Sprintf("%.3f", d.Step/1000), floor,
			percent(d.Share), fmt.Sprintf("%.3f", d.Device/1000), percent(share(d.Bytes, d.Sweep, d.Device)), fmt.Sprintf("%.0f", d.Host),
			fmt.Sprintf("%.0f", d.Sampling), fmt.Sprint(d.Launches), fmt.Sprintf("%.0f", d.Gaps), fmt.Sprintf("%.3f", float64(d.Bytes)/1e9)})
	}
	return table(w, rows)
}
