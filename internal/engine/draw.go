// SPDX-License-Identifier: MIT OR Apache-2.0

package engine

import (
	"math"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/sample"
	"github.com/metrale/metrale/internal/seq"
)

// admit prepares a stream's sampling state on the device thread.
func (s *Stream) admit() {
	s.sampler.Reset(&s.request.Sampling, s.request.Prompt)
	if !s.request.Echo {
		return
	}
	s.prompt = make([]seq.Token, 1, len(s.request.Prompt))
	s.prompt[0] = unscored(s.request.Prompt[0])
	if s.request.Logprobs < 0 {
		for _, id := range s.request.Prompt[1:] {
			s.prompt = append(s.prompt, unscored(id))
		}
	}
}

// unscored is a token without a log-probability.
func unscored(id int32) seq.Token { return seq.Token{ID: id, Logprob: float32(math.NaN())} }

// hostRouter runs a step to its end, and draws its tokens from the logits.
type hostRouter struct {
	runner exec.Runner
	vocab  int
	pool   *pool
	jobs   []job
}

func newHostRouter(r exec.Runner, vocab int) *hostRouter {
	return &hostRouter{runner: r, vocab: vocab, pool: newPool()}
}

func (h *hostRouter) join(*Stream) error { return nil }
func (h *hostRouter) leave(s *Stream)    { s.joined = false }
func (h *hostRouter) close()             { h.pool.close() }

// launch does everything.
func (h *hostRouter) launch(f *flight, s *exec.Step) error {
	logits, err := h.runner.Run(s)
	if err != nil {
		return err
	}
	if len(logits) != len(s.OutRows) {
		return diag.Errorf(diag.Internal, "the step gave %d rows of logits, %d were asked for", len(logits), len(s.OutRows))
	}
	for i := range f.parts {
		if p := &f.parts[i]; p.outs > 0 {
			h.jobs = append(h.jobs, job{part: p, rows: logits[:p.outs], vocab: h.vocab})
			logits = logits[p.outs:]
		}
	}
	h.pool.run(h.jobs)
	clear(h.jobs)
	h.jobs = h.jobs[:0]
	return nil
}

func (h *hostRouter) land(*flight) error { return nil }

// job is what one sequence does with its rows of a step's logits.
type job struct {
	*part
	rows  [][]float32
	vocab int
}

// do scores the prompt's rows and draws the next token. A panic is the sequence's failure.
func (j *job) do(scratch *sample.Scratch) {
	defer func() {
		if p := recover(); p != nil {
			j.fault = panicked("sampling failed", p)
		}
	}()
	s := j.stream
	for i, row := range j.rows {
		row = row[:j.vocab]
		if j.sample && i == len(j.rows)-1 {
			j.fault = s.draw(scratch, row)
			return
		}
		t := seq.Token{ID: s.request.Prompt[j.first+i+1]}
		if j.fault = score(&t, row, s.request.Logprobs); j.fault != nil {
			return
		}
		s.prompt = append(s.prompt, t)
	}
}

// draw draws the stream's next token.
func (s *Stream) draw(scratch *sample.Scratch, row []float32) error {
	r := &s.request
	in := sample.Row{Logits: row, Index: uint64(s.text)}
	if s.bans(s.text) {
		in.Banned = r.Stop
	}
	id, err := scratch.Sample(&s.sampler, in)
	if err != nil {
		return err
	}
	s.drawn = seq.Token{ID: id}
	if r.Logprobs >= 0 {
		if err := score(&s.drawn, row, r.Logprobs); err != nil {
			return err
		}
	}
	s.sampler.Accept(id)
	s.text++
	return nil
}

// bans says that the token of that index must not be a stop token.
func (s *Stream) bans(index int) bool { return index < s.request.MinTokens }

// score adds a token's log-probability and the n likeliest tokens.
func score(t *seq.Token, row []float32, n int) error {
	var top []seq.Logprob
	if n > 0 {
		top = make([]seq.Logprob, 0, n)
	}
	var err error
	t.Logprob, t.Top, err = sample.Logprobs(row, t.ID, n, top)
	return err
}
