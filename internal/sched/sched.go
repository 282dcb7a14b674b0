// SPDX-License-Identifier: MIT OR Apache-2.0

package sched

import (
	"slices"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/kv"
	"github.com/metrale/metrale/internal/seq"
)

// sequence is a request on its way. Finished ones are kept for reuse, with their memory.
type sequence struct {
	id       seq.ID
	req      *seq.Request
	history  []int32 // prompt and generated tokens; the last ones may be unknown
	unknown  int     // how many are
	owed     int     // tokens that were decided to be drawn and did not come: those unknown, and the newest step's
	computed int     // tokens of history that are in pages and state, as of the end of the decided step
	echoed   int     // prompt rows whose logits were delivered
	table    kv.Table
	slot     int32
	arrived  int64
	worked   int  // the last step that it had work in
	started  bool // was running before
}

// keepTokens bounds the memory that a finished sequence keeps for the next one.
const keepTokens = 1 << 16

// generated is how many tokens were generated.
func (s *sequence) generated() int { return len(s.history) - len(s.req.Prompt) }

// echoRows is how many of the prompt's rows have logits that are wanted, each for the log-probability of the token after it.
func (s *sequence) echoRows() int {
	if s.req.Echo && s.req.Logprobs >= 0 {
		return len(s.req.Prompt) - 1
	}
	return 0
}

// target is how many tokens are to be computed: all, or without text to generate only what Echo needs.
func (s *sequence) target() int {
	if s.req.MaxTokens == 0 {
		return s.echoRows()
	}
	return len(s.history)
}

// decoding says that one token is to be computed and nothing of the prompt is owed.
func (s *sequence) decoding() bool {
	return s.computed > 0 && s.target()-s.computed == 1 && s.generated() > 0
}

// Scheduler holds all sequences and all pages.
type Scheduler struct {
	cfg      Config
	pool     *kv.Pool
	byID     map[seq.ID]*sequence
	running  []*sequence // oldest first
	waiting  queue
	unused   []*sequence
	steps    int // decided so far
	decision Decision
}

// New is a scheduler within the given sizes, which Config.Fit must have passed.
func New(cfg Config) *Scheduler {
	return &Scheduler{cfg: cfg, pool: kv.NewPool(cfg.PageSize, cfg.Pages, cfg.Slots), byID: map[seq.ID]*sequence{}}
}

// Usage says how much is in use after the last step.
func (s *Scheduler) Usage() Usage {
	return Usage{
		Running: len(s.running), Waiting: s.waiting.len(),
		Pages: s.pool.Pages() - s.pool.Free(), Slots: s.pool.Slots() - s.pool.FreeSlots(),
	}
}

// Step takes what happened since the last step and decides the next one. now is any clock that does not run backwards.
func (s *Scheduler) Step(now int64, events []Event) *Decision {
	d := &s.decision
	clear(d.Ends) // drop errors
	d.Work, d.Ends, d.Started, d.Preempted = d.Work[:0], d.Ends[:0], d.Started[:0], d.Preempted[:0]
	for i := range events {
		s.apply(&events[i])
	}
	s.steps++
	s.sweep()
	s.assume()
	s.growDecoding()
	s.fill(now)
	s.check()
	return d
}

// apply updates the sequences by one event.
func (s *Scheduler) apply(e *Event) {
	if e.Kind == Submit {
		s.submit(e)
		return
	}
	q, ok := s.byID[e.ID]
	if !ok {
		return
	}
	switch e.Kind {
	case Token:
		s.token(q, e.Token)
	case Cancel:
		s.end(q, seq.Canceled, -1, nil)
	case Fail:
		s.end(q, seq.Failed, -1, e.Err)
	}
}

func (s *Scheduler) submit(e *Event) {
	err := s.cfg.Check(e.Request)
	if err == nil && len(s.byID) >= s.cfg.Batch+s.cfg.Queue {
		err = Overload(s.cfg)
	}
	if err != nil {
		s.decision.Ends = append(s.decision.Ends, End{ID: e.ID, Finish: seq.Failed, StopToken: -1, Err: err})
		return
	}
	q := s.reuse()
	q.id, q.req, q.arrived, q.slot = e.ID, e.Request, e.At, kv.NoSlot
	q.history = append(q.history[:0], e.Request.Prompt...)
	s.byID[q.id] = q
	s.waiting.pushBack(q)
	if q.target() == 0 {
		s.end(q, seq.Length, -1, nil)
	}
}

// Overload is the error for a request beyond Batch and Queue.
func Overload(c Config) error {
	return diag.Errorf(diag.Overloaded, "the engine holds %d sequences, its most; try again later", c.Batch+c.Queue)
}

// token appends a generated token and ends the sequence when its limits say so. A stop token wins over the length.
func (s *Scheduler) token(q *sequence, t int32) {
	l := &q.req.Limits
	known := q.generated() - q.unknown
	if known >= l.MinTokens && slices.Contains(l.Stop, t) {
		s.end(q, seq.Stopped, t, nil)
		return
	}
	if q.unknown > 0 {
		q.history[len(q.history)-q.unknown] = t
		q.unknown--
	} else {
		q.history = append(q.history, t)
	}
	q.owed--
	if known+1 >= l.MaxTokens {
		s.end(q, seq.Length, -1, nil)
	}
}

// assume lets every running sequence whose token is being drawn go on with that token, unless it is the last one.
func (s *Scheduler) assume() {
	if !s.cfg.Ahead {
		return
	}
	for _, q := range s.running {
		if q.owed > q.unknown && q.generated()+1 < q.req.MaxTokens {
			q.history = append(q.history, Unknown)
			q.unknown++
		}
	}
}

// end reports a sequence as over and frees what it holds. It leaves running or waiting in sweep.
func (s *Scheduler) end(q *sequence, f seq.Finish, stop int32, err error) {
	s.release(q)
	delete(s.byID, q.id)
	q.req = nil
	s.decision.Ends = append(s.decision.Ends, End{ID: q.id, Finish: f, StopToken: stop, Err: err})
}

// release gives back pages and slot; what was computed is lost.
func (s *Scheduler) release(q *sequence) {
	q.table.Release(s.pool)
	s.pool.FreeSlot(q.slot)
	q.slot, q.computed = kv.NoSlot, 0
}

// sweep removes ended sequences, and ends those that had only to be echoed, when the step that did it is over.
func (s *Scheduler) sweep() {
	over := s.steps - 1
	if s.cfg.Ahead {
		over--
	}
	for _, q := range s.running {
		if q.req != nil && q.req.MaxTokens == 0 && q.computed == q.target() && q.worked <= over {
			s.end(q, seq.Length, -1, nil)
		}
	}
	if len(s.decision.Ends) == 0 {
		return
	}
	kept := s.running[:0]
	for _, q := range s.running {
		if q.req != nil {
			kept = append(kept, q)
		} else {
			s.unused = append(s.unused, q)
		}
	}
	clear(s.running[len(kept):])
	s.running = kept
	s.unused = s.waiting.dropEnded(s.unused)
}

func (s *Scheduler) reuse() *sequence {
	n := len(s.unused)
	if n == 0 {
		return &sequence{}
	}
	q := s.unused[n-1]
	s.unused = s.unused[:n-1]
	*q = sequence{history: q.history, table: q.table}
	if cap(q.history) > keepTokens {
		q.history, q.table = nil, kv.Table{}
	}
	return q
}

// growDecoding makes room for one more token of every decoding sequence, oldest first; the youngest pay (policy 3).
func (s *Scheduler) growDecoding() {
	for i := 0; i < len(s.running); i++ {
		q := s.running[i]
		for q.decoding() && !q.table.Grow(s.pool, q.computed+1) {
			last := len(s.running) - 1
			s.preempt(s.running[last])
			s.running[last] = nil
			s.running = s.running[:last]
			if last == i {
				break
			}
		}
	}
}

func (s *Scheduler) preempt(q *sequence) {
	s.release(q)
	s.waiting.pushFront(q)
	s.decision.Preempted = append(s.decision.Preempted, q.id)
}

// budget is what is left of a step.
type budget struct{ rows, prefill, outs int }

// fill hands out the step's rows (policy 1).
func (s *Scheduler) fill(now int64) {
	b := budget{rows: s.cfg.Rows, prefill: s.cfg.Prefill, outs: s.cfg.Outs}
	chunks := 0
	for _, q := range s.running {
		if q.decoding() {
			s.work(q, 1, &b)
		} else {
			chunks++
		}
	}
	if chunks > 0 {
		for _, q := range s.running {
			if !q.decoding() && q.computed < q.target() {
				chunks--
				s.chunk(q, &b, chunks)
			}
		}
	}
	for s.waiting.len() > 0 && len(s.running) < s.cfg.Batch && b.rows > 0 && b.prefill > 0 && b.outs > 0 && s.start(now) {
		s.chunk(s.running[len(s.running)-1], &b, 0)
	}
}

// start lets the first waiting sequence run if it fits (policy 2).
func (s *Scheduler) start(now int64) bool {
	q := s.waiting.front()
	if q.owed > 0 { // it was put back, and what it is to compute is not known yet
		return false
	}
	need := s.pool.PagesFor(q.target())
	if len(s.running) > 0 {
		need += len(s.running)
	}
	if need > s.pool.Free() || s.pool.Slots() > 0 && s.pool.FreeSlots() == 0 {
		return false
	}
	s.waiting.popFront()
	q.table.Grow(s.pool, q.target())
	if s.pool.Slots() > 0 {
		q.slot, _ = s.pool.AllocSlot()
	}
	if !q.started {
		q.started = true
		s.decision.Started = append(s.decision.Started, Start{ID: q.id, Waited: now - q.arrived})
	}
	s.running = append(s.running, q)
	return true
}

// chunk gives a prefilling sequence as many rows as are left. others is how many more prefill and come later.
func (s *Scheduler) chunk(q *sequence, b *budget, others int) {
	n := min(q.target()-q.computed, b.rows, b.prefill)
	// Rows from echoed on want logits, so outputs bound how far beyond it a chunk may reach. A long echo leaves one output
	// to each of the others, and if it can one to the sequence that may start.
	if q.echoed < q.echoRows() {
		outs := b.outs - others
		if outs > 1 && s.waiting.len() > 0 && len(s.running) < s.cfg.Batch {
			outs--
		}
		n = min(n, max(0, q.echoed-q.computed)+outs)
	}
	if n > 0 {
		b.prefill -= n
		s.work(q, n, b)
	}
}

// work adds the next n rows of a sequence to the step.
func (s *Scheduler) work(q *sequence, n int, b *budget) {
	first := q.computed
	q.computed += n
	q.worked = s.steps
	sample := q.computed == len(q.history)
	outs := 0
	if sample {
		outs = 1
		q.owed++
	}
	if rows := q.echoRows(); q.echoed < rows && q.computed > q.echoed {
		outs = q.computed - max(first, q.echoed)
		q.echoed = min(rows, q.computed)
	}
	b.rows -= n
	b.outs -= outs
	s.decision.Work = append(s.decision.Work, Work{
		ID: q.id, Tokens: q.history[first:q.computed], First: first, Outs: outs, Sample: sample,
		Pages: q.table.Pages(), Slot: q.slot, Fresh: first == 0,
	})
}
