// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/seq"
	"github.com/metrale/metrale/internal/tensor"
)

// Sampling says that the device draws tokens: Start and Finish instead of Run.
type Sampling struct {
	Vocab int // tokens that may be drawn are below it; 0: all that have logits
	Seats int // sequences that are sampled from at a time
}

// Sizes that the kernels share (kernels/cuda/common/sample/row.cuh).
const (
	samplerTile    = 4096
	samplerBuckets = 2048
	samplerList    = 4096
	resultWords    = 8
	tileWords      = 8
	stateWords     = 4
)

// mode is what a step's draws need of the sampler.
type mode uint8

const (
	noDraws mode = iota
	greedy       // all take the largest logit
	drawing      // some draw
	scoring      // some want log-probabilities: two rows of the sampler a row of logits
	numModes
)

// String names a mode in the name of what is recorded for it.
func (m mode) String() string { return [...]string{"", ", greedy", ", drawing", ", scoring"}[m] }

// sampler is the device's memory and work of drawing tokens.
//
//	per seat            counts [stride] of penalties, edits [MaxEdits] of bias and bans, the newest token
//	per row of logits   mask [stride/32]
//	per sampler row     results [8], best [MaxBest]; and what the kernels hand on among themselves
type sampler struct {
	Sampling
	stride int64 // width of the logits
	draws  int64 // most rows of the sampler
	outs   int64
	seats  []seat

	arrays map[string]gpu.Arg
	counts gpu.Buffer
	edits  gpu.Buffer
	masks  gpu.Buffer
	zeroed []byte // a row of counts, zero between uses

	rows    []drawRow // of the step that is being prepared
	words   []uint32  // of a mask
	flights [2]flight // in turn
	started int       // steps so far
	ended   int
}

// seat is what the host remembers of a sequence's place.
type seat struct{ biases, bans int32 }

// flight is a step that was started and is not finished.
type flight struct {
	of           *bucket
	done         gpu.Mark
	masks        gpu.Pinned
	results      gpu.Pinned
	best         gpu.Pinned
	rows         []rowsOf
	used, ranked int // rows of the sampler; ranked: up to the last one with a list
	lists        []seq.Logprob
}

// rowsOf are a Draw's rows of the sampler; -1: none.
type rowsOf struct{ draw, rank int32 }

// SamplingBytes is how much of the device's memory drawing takes, beside a plan of those limits.
func SamplingBytes(o Sampling, l plan.Limits, stride int) (total int64) {
	s := sampler{Sampling: o, stride: int64(stride), outs: l.Outs, draws: 2 * l.Outs}
	for _, a := range s.sizes() {
		total += 4 * a.axes.Shape().Elems()
	}
	return total
}

// array is an array of 32-bit words that the kernels know by name.
type array struct {
	name string
	axes plan.Axes
}

func (s *sampler) sizes() []array {
	n := func(name string, size int64) plan.Axis { return plan.Axis{Name: name, Size: size} }
	rows, seats := n("draws", s.draws), n("seats", int64(s.Seats))
	pair := n("words", 2)
	return []array{
		{"counts", plan.Axes{seats, n("vocab", s.stride)}},
		{"edits", plan.Axes{seats, n("edits", MaxEdits), pair}},
		{"masks", plan.Axes{n("outs", s.outs), n("words", (s.stride+31)/32)}},
		{"newest", plan.Axes{seats}},
		{"results", plan.Axes{rows, n("words", resultWords)}},
		{"best", plan.Axes{rows, n("best", MaxBest), pair}},
		{"tiles", plan.Axes{rows, n("tiles", (int64(s.Vocab)+samplerTile-1)/samplerTile), n("words", tileWords)}},
		{"bucket_counts", plan.Axes{rows, n("buckets", samplerBuckets)}},
		{"bucket_masses", plan.Axes{rows, n("buckets", samplerBuckets), pair}},
		{"list", plan.Axes{rows, n("list", samplerList), pair}},
		{"state", plan.Axes{rows, n("words", stateWords)}},
	}
}

// newSampler allocates. free is called on error, too.
func (b *binder) newSampler(o Sampling, l *Limits) (*sampler, error) {
	if o.Vocab == 0 {
		o.Vocab = l.Vocab
	}
	s := &sampler{Sampling: o, stride: int64(l.Vocab), outs: l.Outs, draws: 2 * l.Outs, arrays: map[string]gpu.Arg{}}
	pinner, pins := b.opts.Device.(gpu.Pinner)
	marker, marks := b.opts.Device.(gpu.Marker)
	switch {
	case !pins || !marks:
		return s, diag.Errorf(diag.Unsupported, "the device %s does not draw tokens", b.opts.Device.Info().Name)
	case o.Seats < 1 || o.Vocab < 1 || o.Vocab > l.Vocab:
		return s, diag.Errorf(diag.Internal, "drawing of %d tokens of %d logits for %d sequences", o.Vocab, l.Vocab, o.Seats)
	}
	for _, a := range s.sizes() {
		buf, err := b.alloc(a.name, 4*a.axes.Shape().Elems())
		if err != nil {
			return s, err
		}
		s.arrays[a.name] = gpu.Arg{Param: a.name, Buf: buf, DType: tensor.I32, Axes: a.axes, Access: plan.InOut}
	}
	s.counts, s.edits, s.masks = s.arrays["counts"].Buf, s.arrays["edits"].Buf, s.arrays["masks"].Buf
	s.seats, s.zeroed, s.words = make([]seat, o.Seats), make([]byte, 4*s.stride), make([]uint32, (s.stride+31)/32)
	s.rows = make([]drawRow, 0, s.draws)
	for i := range s.flights {
		f := &s.flights[i]
		f.rows, f.lists = make([]rowsOf, 0, s.outs), make([]seq.Logprob, s.draws*MaxBest)
		var err error
		if f.done, err = marker.Mark(); err != nil {
			return s, err
		}
		for _, p := range []struct {
			to   *gpu.Pinned
			name string
		}{{&f.masks, "masks"}, {&f.results, "results"}, {&f.best, "best"}} {
			if *p.to, err = pinner.Pinned(p.name, s.arrays[p.name].Buf.Size()); err != nil {
				return s, err
			}
		}
	}
	return s, nil
}

func (s *sampler) free() {
	for i := range s.flights {
		f := &s.flights[i]
		if f.done != nil {
			f.done.Free()
		}
		for _, p := range []gpu.Pinned{f.masks, f.results, f.best} {
			if p != nil {
				p.Free()
			}
		}
	}
}

// bind prepares the launches of each mode for a bucket of the decoder, and that which feeds it.
func (s *sampler) bind(b *binder, k *bucket) (err error) {
	l := k.plan.Limits
	logits := k.plan.Buffers[k.plan.Logits]
	block := func(field string) gpu.Arg {
		f := k.layout.fields[field]
		return gpu.Arg{Param: field, Buf: b.model.step.buf, Off: f.off, DType: tensor.I32, Axes: f.axes}
	}
	launch := func(kernel string, draws int64, args ...gpu.Arg) (gpu.Launch, error) {
		g := gpu.Binding{Name: "sampler", Kernel: kernel, Limits: l, Args: args}
		if draws > 0 {
			g.Attrs = []plan.Attr{{Name: "vocab", Kind: plan.IntAttr, Int: int64(s.Vocab)}}
			g.Args = append(g.Args, block("head"), gpu.Arg{Param: "logits", Buf: b.arena, Off: logits.Offset, DType: tensor.F32,
				Axes: plan.Axes{{Name: plan.Outs, Size: l.Outs}, {Name: "vocab", Size: s.stride}}})
			for _, name := range []string{"counts", "edits", "masks", "newest"} {
				g.Args = append(g.Args, s.arrays[name])
			}
			of := []string{"results", "tiles", "bucket_counts", "bucket_masses", "state"}
			if kernel == "sample_draw" {
				of = append(of, "list", "best")
			}
			for _, name := range of {
				a := s.arrays[name]
				a.Axes = append(plan.Axes{{Name: "draws", Size: draws}}, a.Axes[1:]...)
				g.Args = append(g.Args, a)
			}
			a := block("draws")
			a.Axes = plan.Axes{{Name: "draws", Size: draws}, a.Axes[1]}
			g.Args = append(g.Args, a)
		}
		return b.opts.Device.Bind(g)
	}
	tokens := block("tokens")
	tokens.Access = plan.InOut
	if k.feed, err = launch("sample_feed", 0, block("head"), tokens, block("feed"), s.arrays["newest"]); err != nil {
		return err
	}
	for m, of := range [numModes]struct {
		kernel string
		draws  int64
	}{greedy: {"sample_greedy", l.Outs}, drawing: {"sample_draw", l.Outs}, scoring: {"sample_draw", 2 * l.Outs}} {
		if of.kernel == "" {
			continue
		}
		if k.draws[m], err = launch(of.kernel, of.draws); err != nil {
			return err
		}
	}
	return nil
}

// prepare makes the step's rows of the sampler, and says what they need.
func (s *sampler) prepare(step *Step) (mode, error) {
	f := &s.flights[s.started%2]
	f.rows, s.rows = f.rows[:0], s.rows[:0]
	f.ranked = 0
	need, masks := noDraws, int32(0)
	for i := range step.Draws {
		d := &step.Draws[i]
		at := rowsOf{-1, -1}
		switch {
		case d.Out < 0 || int(d.Out) >= len(step.OutRows) || int(d.Seat) >= s.Seats || int(d.Token) >= s.Vocab:
			return 0, badStep("draw %d is of row %d of %d, seat %d of %d, token %d of %d", i, d.Out, len(step.OutRows), d.Seat, s.Seats, d.Token, s.Vocab)
		case d.Logprobs > MaxBest || len(f.rows) == int(s.outs):
			return 0, badStep("draw %d of at most %d wants %d of the likeliest tokens, at most %d", i, s.outs, d.Logprobs, MaxBest)
		}
		if d.Token < 0 {
			at.draw = int32(len(s.rows))
			s.rows = append(s.rows, drawRow{})
			mask, place := int32(-1), seat{}
			if d.Mask != nil {
				mask = masks
				masks++
			}
			if d.Seat >= 0 {
				place = s.seats[d.Seat]
			}
			s.rows[at.draw].draw(d, &place, mask)
			kind := drawing
			if d.Policy.Greedy {
				kind = greedy
			}
			need = max(need, kind)
		}
		if d.Token >= 0 || d.Logprobs >= 0 {
			at.rank = int32(len(s.rows))
			s.rows = append(s.rows, drawRow{})
			s.rows[at.rank].rank(d)
			need = scoring
			if d.Logprobs > 0 {
				f.ranked = len(s.rows)
			}
		}
		f.rows = append(f.rows, at)
	}
	f.used = len(s.rows)
	return need, nil
}

// putMasks asks for the masks of a step's draws and sends them.
func (s *sampler) putMasks(draws []Draw) error {
	p := s.flights[s.started%2].masks
	raw := p.Bytes()
	n := 0
	for i := range draws {
		if draws[i].Mask == nil || draws[i].Token >= 0 {
			continue
		}
		clear(s.words)
		draws[i].Mask(s.words)
		for _, w := range s.words {
			binary.LittleEndian.PutUint32(raw[n:], w)
			n += 4
		}
	}
	return p.Upload(s.masks, 0, int64(n))
}

// results queues the copies of a step's outcome behind it.
func (s *sampler) results() error {
	f := &s.flights[s.started%2]
	if err := f.results.Download(s.arrays["results"].Buf, 0, int64(4*resultWords*f.used)); err != nil {
		return err
	}
	if f.ranked > 0 {
		if err := f.best.Download(s.arrays["best"].Buf, 0, int64(8*MaxBest*f.ranked)); err != nil {
			return err
		}
	}
	return f.done.Set()
}

// read appends the outcome of a step that has ended.
func (f *flight) read(out []Drawn) []Drawn {
	for _, at := range f.rows {
		var d Drawn
		if at.rank >= 0 {
			r := f.result(at.rank)
			d.Logit, d.Top, d.Total, d.Err = r.float(2), r.float(3), r.long(4), r.fault()
			if d.Err == nil {
				d.Best = f.list(int(at.rank), int(r.int(0)))
			}
		}
		if at.draw >= 0 {
			r := f.result(at.draw)
			d.Token, d.Logit = r.int(0), r.float(2)
			if err := r.fault(); err != nil {
				d.Err = err
			}
		}
		out = append(out, d)
	}
	return out
}

// result is what a row of the sampler left; row.cuh draws it.
type result []byte

func (f *flight) result(row int32) result {
	return result(f.results.Bytes()[4*resultWords*int(row):][:4*resultWords])
}

func (r result) int(at int) int32 { return int32(binary.LittleEndian.Uint32(r[4*at:])) }
func (r result) float(at int) float32 {
	return math.Float32frombits(binary.LittleEndian.Uint32(r[4*at:]))
}
func (r result) long(at int) uint64 { return binary.LittleEndian.Uint64(r[4*at:]) }

// fault is why there is no token.
func (r result) fault() error {
	switch r.int(0) {
	case -1:
		return diag.Errorf(diag.Internal, "no token is allowed: every logit is -Inf")
	case -2:
		return diag.Errorf(diag.Internal, "the model computed %v as the logit of token %d", r.float(2), r.int(1))
	}
	return nil
}

// list reads the n likeliest tokens of a row.
func (f *flight) list(row, n int) []seq.Logprob {
	raw := f.best.Bytes()[8*MaxBest*row:]
	out := f.lists[MaxBest*row:][:n:n]
	for i := range out {
		r := result(raw[8*i:])
		out[i] = seq.Logprob{Token: r.int(0), Value: r.float(1)}
	}
	return out
}

// Seat says who draws in a seat from the next Start on. Steps in flight still draw for the one before.
func (m *Model) Seat(at int, g *Seating) error {
	s := m.sampler
	biases, bans := len(g.Bias), len(g.Banned)
	if at < 0 || at >= s.Seats || biases+bans > MaxEdits {
		return diag.Errorf(diag.Internal, "seat %d of %d, %d biased and %d banned tokens of at most %d", at, s.Seats, biases, bans, MaxEdits)
	}
	s.seats[at] = seat{int32(biases), int32(bans)}
	if biases+bans > 0 {
		raw := make([]byte, 0, 8*(biases+bans))
		for _, b := range g.Bias {
			raw = binary.LittleEndian.AppendUint32(raw, uint32(b.Token))
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(b.Value))
		}
		for _, t := range g.Banned {
			raw = binary.LittleEndian.AppendUint32(raw, uint32(t))
			raw = binary.LittleEndian.AppendUint32(raw, 0)
		}
		if err := s.edits.Write(int64(at)*MaxEdits*8, raw); err != nil {
			return err
		}
	}
	if g.Counts == nil {
		return nil
	}
	const seen = 1 << 31
	for _, c := range g.Counts {
		if int64(c.Token) < s.stride {
			binary.LittleEndian.PutUint32(s.zeroed[4*c.Token:], seen|uint32(c.Text))
		}
	}
	err := s.counts.Write(int64(at)*4*s.stride, s.zeroed)
	for _, c := range g.Counts {
		if int64(c.Token) < s.stride {
			binary.LittleEndian.PutUint32(s.zeroed[4*c.Token:], 0)
		}
	}
	return err
}

// Draws says whether the model draws tokens itself.
func (m *Model) Draws() bool { return m.sampler != nil }

// Start queues a step of the decoder and what its Draws ask for, and returns while it runs. At most two steps may be under way.
// Where the device draws the token of a step's row, the next step may name it by Feed before anybody has seen it.
func (m *Model) Start(s *Step) error {
	began := time.Now()
	p := m.sampler
	if s.Part != "" || p.started-p.ended == len(p.flights) {
		return badStep("part %q is started, %d steps are under way", s.Part, p.started-p.ended)
	}
	need, err := p.prepare(s)
	if err != nil {
		return err
	}
	b, err := m.prepare(s, p.rows)
	if err != nil {
		return err
	}
	masked := false
	for i := range s.Draws {
		masked = masked || s.Draws[i].Mask != nil
	}
	v := variant(noDraws)
	if s.Feed != nil {
		v |= fed
	}
	if !masked {
		v |= variant(need)
	}
	if err := m.launch(b, v); err != nil {
		return err
	}
	if masked {
		if err := p.putMasks(s.Draws); err != nil {
			return err
		}
		if err := m.stream.Launch(b.draws[need]); err != nil {
			return err
		}
	}
	if err := p.results(); err != nil {
		return err
	}
	p.flights[p.started%2].of = b
	p.started++
	m.submitted = time.Since(began)
	return nil
}

// Finish waits for the oldest step under way and appends what became of its Draws, in their order.
func (m *Model) Finish(out []Drawn) ([]Drawn, error) {
	p := m.sampler
	if p.started == p.ended {
		return out, badStep("no step is under way")
	}
	f := &p.flights[p.ended%2]
	p.ended++
	if err := f.done.Wait(); err != nil {
		return out, f.of.failed(err)
	}
	return f.read(out), nil
}
