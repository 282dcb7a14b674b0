// SPDX-License-Identifier: MIT OR Apache-2.0

package script

import (
	"time"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/exec"
)

// Values of the logits: e^20 is far enough for any temperature that tests use.
const (
	Base = 0
	Peak = 20
)

// Options describe the scripted model. Zero values mean what the field's comment says.
type Options struct {
	Vocab  int                                     // 256
	Limits exec.Limits                             // each zero field: see New
	Next   func(history []int32) int32             // the next token; Count
	Logits func(history []int32, logits []float32) // writes a row of logits; instead of Next
	Delay  time.Duration                           // a step takes at least so long
	Fault  func(step int) error                    // asked before each step, from 0; an error is the step's, a panic too
	Trust  bool                                    // check nothing
}

// Count is the token after the last one, modulo vocab.
func Count(vocab int) func([]int32) int32 {
	return func(h []int32) int32 { return (h[len(h)-1] + 1) % int32(vocab) }
}

// Reply answers what follows the last occurrence of marker (as the end of a chat prompt) with the tokens of reply and then
// with end. A history without the marker gets end.
func Reply(marker, reply []int32, end int32) func([]int32) int32 {
	return func(h []int32) int32 {
		for i := len(h) - len(marker); i >= 0; i-- {
			if equal(h[i:i+len(marker)], marker) {
				if n := len(h) - i - len(marker); n < len(reply) {
					return reply[n]
				}
				return end
			}
		}
		return end
	}
}

func equal(a, b []int32) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// Runner is a scripted exec.Runner.
type Runner struct {
	opts    Options
	limits  exec.Limits
	mem     memory
	rows    [][]float32 // [outs][vocab]
	peaks   []int32     // of each row, to be undone
	history []int32
	steps   int
	closed  bool
}

// New is a scripted model. By default a step has at most 512 rows of 64 sequences with 64 outputs, pages hold 16 tokens, a
// sequence has at most 64 pages, and there are as many pages as 64 sequences need; no state slots.
func New(o Options) *Runner {
	if o.Vocab == 0 {
		o.Vocab = 256
	}
	if o.Next == nil {
		o.Next = Count(o.Vocab)
	}
	l := o.Limits
	or := func(v *int64, def int64) {
		if *v == 0 {
			*v = def
		}
	}
	or(&l.Rows, 512)
	or(&l.Seqs, 64)
	or(&l.Outs, l.Seqs)
	or(&l.PageSize, 16)
	or(&l.Pages, 64)
	if l.NumPages == 0 {
		l.NumPages = int(l.Seqs * l.Pages)
	}
	l.Vocab = o.Vocab
	r := &Runner{opts: o, limits: l, peaks: make([]int32, l.Outs), rows: make([][]float32, l.Outs)}
	if !o.Trust {
		r.mem = newMemory(l)
	}
	for i := range r.rows {
		r.rows[i] = make([]float32, o.Vocab)
	}
	return r
}

// Limits are the sizes of the scripted model.
func (r *Runner) Limits() exec.Limits { return r.limits }

// Steps is how many steps were run; not for use while an engine runs.
func (r *Runner) Steps() int { return r.steps }

// Run checks the step against memory, writes memory and gives scripted logits.
func (r *Runner) Run(s *exec.Step) ([][]float32, error) {
	if r.opts.Delay > 0 {
		time.Sleep(r.opts.Delay)
	}
	return r.run(s)
}

// run is Run without its delay.
func (r *Runner) run(s *exec.Step) ([][]float32, error) {
	if r.closed {
		return nil, diag.Errorf(diag.Internal, "a step after Close")
	}
	step := r.steps
	r.steps++
	if r.opts.Fault != nil {
		if err := r.opts.Fault(step); err != nil {
			return nil, err
		}
	}
	if !r.opts.Trust {
		if err := r.mem.run(s); err != nil {
			return nil, err
		}
	}
	for i, row := range s.OutRows {
		if err := r.logits(s, i, int(row)); err != nil {
			return nil, err
		}
	}
	return r.rows[:len(s.OutRows)], nil
}

// logits writes the i-th row of logits.
func (r *Runner) logits(s *exec.Step, i, row int) error {
	r.history = append(r.history[:0], s.Tokens[row])
	if !r.opts.Trust {
		var err error
		if r.history, err = r.mem.read(r.history[:0], s, row); err != nil {
			return err
		}
	}
	out := r.rows[i]
	if r.opts.Logits != nil {
		r.opts.Logits(r.history, out)
		return nil
	}
	next := r.opts.Next(r.history)
	out[r.peaks[i]] = Base
	out[next] = Peak
	r.peaks[i] = next
	return nil
}

// Close ends the runner; a second Close is an error.
func (r *Runner) Close() error {
	if r.closed {
		return diag.Errorf(diag.Internal, "the runner was closed twice")
	}
	r.closed = true
	return nil
}

var _ exec.Runner = (*Runner)(nil)
