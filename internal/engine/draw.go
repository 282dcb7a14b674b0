// SPDX-License-Identifier: MIT OR Apache-2.0

package engine

import (
	"fmt"
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
		w := &dec.Work[i]
		if w.Outs == 0 {
			continue
		}
		s, rows := d.streams[w.ID], logits[:w.Outs]
		logits = logits[w.Outs:]
		if err := d.sampleOne(s, w, rows); err != nil {
			d.events = append(d.events, sched.Event{Kind: sched.Fail, ID: w.ID, Err: err})
		} else if w.Sample {
			d.drawn = append(d.drawn, s)
			d.events = append(d.events, sched.Event{Kind: sched.Token, ID: w.ID, Token: s.drawn.ID})
		}
	}
}

// sampleOne uses the rows of one sequence: those of the prompt for Echo, the last one for the next token.
func (d *device) sampleOne(s *Stream, w *sched.Work, rows [][]float32) error {
	r := &s.request
	first := w.First + len(w.Tokens) - len(rows) // position of rows[0]
	for j, row := range rows {
		row = row[:d.cfg.Vocab]
		if w.Sample && j == len(rows)-1 {
			return d.next(s, row)
		}
		t := seq.Token{ID: r.Prompt[first+j+1]}
		if err := score(&t, row, r.Logprobs); err != nil {
			return err
		}
		s.prompt = append(s.prompt, t)
	}
	return nil
}

// next draws a sequence's next token.
func (d *device) next(s *Stream, row []float32) error {
	r := &s.request
	in := sample.Row{Logits: row, Index: uint64(s.text)}
	if s.text < r.MinTokens && !r.IgnoreStop {
		in.Banned = r.Stop
	}
	id, err := d.scratch.Sample(&s.sampler, in)
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

// panicError is a recovered panic, for the log.
type panicError struct {
	value any
	stack []byte
}

func (p *panicError) Error() string { return fmt.Sprintf("panic: %v\n%s", p.value, p.stack) }
