// SPDX-License-Identifier: MIT OR Apache-2.0

package engine

import (
	"math"

	"github.com/metrale/metrale/internal/sample"
	"github.com/metrale/metrale/internal/sched"
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

// sample draws the tokens of a step whose logits are there, and leaves them as events.
func (d *device) sample(dec *sched.Decision, logits [][]float32) {
	for i := range dec.Work {
		if w := &dec.Work[i]; w.Outs > 0 {
			d.jobs = append(d.jobs, job{stream: d.streams[w.ID], work: w, rows: logits[:w.Outs], vocab: d.cfg.Vocab})
			logits = logits[w.Outs:]
		}
	}
	d.pool.run(d.jobs)
	for i := range d.jobs {
		j := &d.jobs[i]
		if j.err != nil {
			d.events = append(d.events, sched.Event{Kind: sched.Fail, ID: j.work.ID, Err: j.err})
		} else if j.work.Sample {
			d.drawn = append(d.drawn, j.stream)
			d.events = append(d.events, sched.Event{Kind: sched.Token, ID: j.work.ID, Token: j.stream.drawn.ID})
		}
	}
	clear(d.jobs)
	d.jobs = d.jobs[:0]
}

// job is what one sequence does with its rows of a step's logits.
type job struct {
	stream *Stream
	work   *sched.Work
	rows   [][]float32 // those of the prompt for Echo, then the one for the next token
	vocab  int
	err    error
}

// do scores the prompt's rows and draws the next token. A panic is the sequence's failure.
func (j *job) do(scratch *sample.Scratch) {
	defer func() {
		if p := recover(); p != nil {
			j.err = panicked("sampling failed", p)
		}
	}()
	s := j.stream
	first := j.work.First + len(j.work.Tokens) - len(j.rows) // position of rows[0]
	for i, row := range j.rows {
		row = row[:j.vocab]
		if j.work.Sample && i == len(j.rows)-1 {
			j.err = s.draw(scratch, row)
			return
		}
		t := seq.Token{ID: s.request.Prompt[first+i+1]}
		if j.err = score(&t, row, s.request.Logprobs); j.err != nil {
			return
		}
		s.prompt = append(s.prompt, t)
	}
}

// draw draws the stream's next token.
func (s *Stream) draw(scratch *sample.Scratch, row []float32) error {
	r := &s.request
	in := sample.Row{Logits: row, Index: uint64(s.text)}
	if s.text < r.MinTokens && !r.IgnoreStop {
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
