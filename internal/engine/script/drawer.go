// SPDX-License-Identifier: MIT OR Apache-2.0

package script

import (
	"slices"
	"time"

	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/sample"
	"github.com/metrale/metrale/internal/seq"
)

// Drawer is a scripted exec.Drawer: a Runner whose tokens stay where they were drawn. Steps run one after the other, each Delay
// long, while the host does other things; what Options.Fault says of a step is told when it is finished.
type Drawer struct {
	*Runner
	seats  []drawerSeat
	under  []outcome // steps under way
	busy   time.Time // until then steps run
	tokens []int32
	spare  []outcome
	work   sample.Scratch

	Deepest int // most steps that were under way at a time
	Fed     int // rows that were fed
}

// drawerSeat is a sequence's place.
type drawerSeat struct {
	given  exec.Seating
	state  sample.Seq
	fresh  bool // state is to be made of given
	newest int32
}

// outcome is a step that was computed and is not finished.
type outcome struct {
	drawn []exec.Drawn
	err   error
	ready time.Time
}

// NewDrawer is New with a seat for each sequence of a step.
func NewDrawer(o Options) *Drawer {
	r := New(o)
	return &Drawer{Runner: r, seats: make([]drawerSeat, r.limits.Seqs)}
}

// Draws says that this is no mere Runner.
func (d *Drawer) Draws() bool { return true }

// Seat keeps what a sequence brings.
func (d *Drawer) Seat(at int, g *exec.Seating) error {
	if at < 0 || at >= len(d.seats) {
		return bad("seat %d of %d", at, len(d.seats))
	}
	s := &d.seats[at]
	s.given.Bias = append(s.given.Bias[:0], g.Bias...)
	s.given.Banned = append(s.given.Banned[:0], g.Banned...)
	s.given.Counts = append(s.given.Counts[:0], g.Counts...)
	s.fresh = true
	return nil
}

// Start runs a step, as a device would later, and draws.
func (d *Drawer) Start(s *exec.Step) error {
	if len(d.under) == 2 {
		return bad("a third step is started")
	}
	run := *s
	if s.Feed != nil {
		d.tokens = append(d.tokens[:0], s.Tokens...)
		for r, seat := range s.Feed {
			if seat >= 0 {
				d.tokens[r] = d.seats[seat].newest
				d.Fed++
			}
		}
		run.Tokens = d.tokens
	}
	o := outcome{}
	if n := len(d.spare); n > 0 {
		o, d.spare = d.spare[n-1], d.spare[:n-1]
	}
	o.drawn, o.err = o.drawn[:0], nil
	var logits [][]float32
	if logits, o.err = d.run(&run); o.err == nil {
		for i := range s.Draws {
			o.drawn = append(o.drawn, d.draw(&s.Draws[i], logits))
		}
	}
	now := time.Now()
	if d.busy.Before(now) {
		d.busy = now
	}
	d.busy = d.busy.Add(d.opts.Delay)
	o.ready = d.busy
	d.under = append(d.under, o)
	d.Deepest = max(d.Deepest, len(d.under))
	return nil
}

// draw does what a Draw asks for.
func (d *Drawer) draw(w *exec.Draw, logits [][]float32) (out exec.Drawn) {
	row := logits[w.Out]
	out.Token = w.Token
	if w.Token < 0 {
		s := &d.seats[w.Seat]
		if s.fresh {
			s.state.Restore(sample.Policy(w.Policy), s.given.Bias, s.given.Counts)
			s.fresh = false
		}
		in := sample.Row{Logits: row, Index: w.Index}
		if w.Banned {
			in.Banned = s.given.Banned
		}
		if out.Token, out.Err = d.work.Sample(&s.state, in); out.Err != nil {
			s.newest = 0
			return out
		}
		s.state.Accept(out.Token)
		s.newest = out.Token
	}
	out.Logit = row[out.Token]
	if w.Token >= 0 || w.Logprobs >= 0 {
		var best []seq.Logprob
		out.Top, out.Total, best, out.Err = sample.Likeliest(row, max(0, w.Logprobs), nil)
		out.Best = slices.Clip(best)
	}
	return out
}

// Finish waits for the oldest step.
func (d *Drawer) Finish(out []exec.Drawn) ([]exec.Drawn, error) {
	if len(d.under) == 0 {
		return out, bad("no step is under way")
	}
	o := d.under[0]
	d.under = append(d.under[:0], d.under[1:]...)
	if wait := time.Until(o.ready); wait > 0 {
		time.Sleep(wait)
	}
	d.spare = append(d.spare, o)
	if o.err != nil {
		return out, o.err
	}
	return append(out, o.drawn...), nil
}

var _ exec.Drawer = (*Drawer)(nil)
