// SPDX-License-Identifier: MIT OR Apache-2.0

package engine

import (
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/sample"
	"github.com/metrale/metrale/internal/seq"
)

// deviceRouter lets the device draw. A sequence has a seat there while it runs.
type deviceRouter struct {
	drawer exec.Drawer
	free   []int32 // seats
	draws  []exec.Draw
	drawn  []exec.Drawn
	seat   exec.Seating // being handed over
}

func newDeviceRouter(d exec.Drawer, seats int) *deviceRouter {
	r := &deviceRouter{drawer: d}
	for i := range seats {
		r.free = append(r.free, int32(seats-1-i))
	}
	return r
}

func (r *deviceRouter) close() {}

// join gives a sequence a seat, with what it was penalized for so far.
func (r *deviceRouter) join(s *Stream) error {
	last := len(r.free) - 1
	s.seat = r.free[last]
	r.free = r.free[:last]
	q := &s.request
	r.seat = exec.Seating{Bias: q.Sampling.LogitBias}
	if q.MinTokens > 0 {
		r.seat.Banned = q.Stop
	}
	if s.sampler.Policy().Penalizes() {
		r.seat.Counts = s.sampler.Seen()
	}
	return r.drawer.Seat(int(s.seat), &r.seat)
}

// leave frees the seat. A step under way may still draw there; what the next one in it needs is put there behind that step.
func (r *deviceRouter) leave(s *Stream) {
	if s.joined {
		r.free = append(r.free, s.seat)
		s.joined = false
	}
}

func (r *deviceRouter) launch(f *flight, s *exec.Step) error {
	r.draws = r.draws[:0]
	for i := range f.parts {
		p := &f.parts[i]
		q := &p.stream.request
		for j := range p.outs {
			d := exec.Draw{Out: int32(len(r.draws)), Seat: -1, Logprobs: q.Logprobs}
			if p.sample && j == p.outs-1 {
				index := p.first + j + 1 - len(q.Prompt)
				d.Seat, d.Token, d.Policy, d.Index, d.Banned = p.stream.seat, -1, exec.Policy(*p.stream.sampler.Policy()), uint64(index), p.stream.bans(index)
			} else {
				d.Token = q.Prompt[p.first+j+1]
			}
			r.draws = append(r.draws, d)
		}
	}
	s.Draws = r.draws
	return r.drawer.Start(s)
}

func (r *deviceRouter) land(f *flight) error {
	var err error
	if r.drawn, err = r.drawer.Finish(r.drawn[:0]); err != nil {
		return err
	}
	at := 0
	for i := range f.parts {
		p := &f.parts[i]
		mine := r.drawn[at : at+p.outs]
		at += p.outs
		if !p.stream.gone {
			p.fault = p.take(mine)
		}
	}
	return nil
}

// take gives the part's stream its tokens.
func (p *part) take(drawn []exec.Drawn) error {
	s := p.stream
	for j := range drawn {
		d := &drawn[j]
		if d.Err != nil {
			return d.Err
		}
		if !p.sample || j < len(drawn)-1 {
			s.prompt = append(s.prompt, scored(d, s.request.Prompt[p.first+j+1], s.request.Logprobs))
			continue
		}
		s.drawn = scored(d, d.Token, s.request.Logprobs)
		s.sampler.Accept(d.Token)
		s.text++
	}
	return nil
}

// scored is a token with the log-probabilities that were asked for.
func scored(d *exec.Drawn, id int32, logprobs int) seq.Token {
	t := seq.Token{ID: id}
	if logprobs < 0 {
		return t
	}
	norm := sample.Norm(d.Top, d.Total)
	t.Logprob = sample.Logprob(d.Logit, norm)
	if logprobs > 0 {
		t.Top = make([]seq.Logprob, len(d.Best))
		for i, b := range d.Best {
			t.Top[i] = seq.Logprob{Token: b.Token, Value: sample.Logprob(b.Value, norm)}
		}
	}
	return t
}

// checkDraws refuses what the device cannot draw by.
func checkDraws(r *seq.Request) error {
	if r.Logprobs > exec.MaxBest {
		return diag.Errorf(diag.Invalid, "logprobs is %d, it must be at most %d", r.Logprobs, exec.MaxBest).For("logprobs")
	}
	n := len(r.Sampling.LogitBias)
	if n > exec.MaxEdits {
		return diag.Errorf(diag.Invalid, "logit_bias names %d tokens, at most %d may be", n, exec.MaxEdits).For("logit_bias")
	}
	if n += len(r.Stop); r.MinTokens > 0 && n > exec.MaxEdits { // the first tokens may not be stop tokens: a seat bans them
		return diag.Errorf(diag.Invalid, "stop and logit_bias name %d tokens, at most %d may be where min_tokens is above 0", n, exec.MaxEdits).For("stop")
	}
	return nil
}
