// SPDX-License-Identifier: MIT OR Apache-2.0

package engine

import (
	"runtime"
	"time"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/sched"
	"github.com/metrale/metrale/internal/seq"
)

// device is the state of the device thread.
type device struct {
	*Engine
	sched    *sched.Scheduler
	streams  map[seq.ID]*Stream
	events   []sched.Event // for the next sched.Step: the last step's tokens and failures, then the inbox
	taken    []message     // the inbox, swapped
	drawn    []*Stream     // whose drawn token is not published yet
	step     exec.Step
	jobs     []job // of the step whose logits are there
	pool     *pool
	gallery  gallery
	ranUntil int64 // when the runner ended its last step; 0: it was idle since
	lost     error // the device is gone
}

func newDevice(e *Engine) *device {
	return &device{Engine: e, sched: sched.New(e.cfg), streams: map[seq.ID]*Stream{}, pool: newPool()}
}

// loop is the device thread.
func (d *device) loop() {
	defer close(d.done)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		closing := d.closing.Load()
		if d.turn() {
			continue
		}
		if closing {
			break
		}
		d.ranUntil = 0
		<-d.wake
	}
	d.pool.close()
	d.failed = d.runner.Close()
}

// turn takes what came in, decides, publishes and runs a step; false: there was nothing to run.
func (d *device) turn() bool {
	d.collect()
	now := d.now()
	decision := d.sched.Step(now, d.events)
	d.publish(decision, now)
	if len(decision.Work) == 0 {
		return false
	}
	d.run(decision)
	return true
}

// collect appends the inbox to the events.
func (d *device) collect() {
	d.mu.Lock()
	d.taken, d.inbox = d.inbox, d.taken[:0]
	d.mu.Unlock()
	for i := range d.taken {
		m := &d.taken[i]
		if m.event.Kind == sched.Submit {
			m.stream.admit()
			d.gallery.need(m.stream.request.Images)
			d.streams[m.stream.id] = m.stream
		}
		d.events = append(d.events, m.event)
	}
	clear(d.taken)
	switch {
	case d.lost != nil:
		d.failAll(d.lost)
	case d.closing.Load():
		d.failAll(errShutdown())
	}
}

// failAll makes every sequence fail in the next sched.Step.
func (d *device) failAll(err error) {
	for id := range d.streams {
		d.events = append(d.events, sched.Event{Kind: sched.Fail, ID: id, Err: err})
	}
}

// publish counts, and hands the last step's tokens and the scheduler's verdicts to the streams. Counting comes first, so
// that who reads an end finds its place free.
func (d *device) publish(dec *sched.Decision, now int64) {
	clear(d.events)
	d.events = d.events[:0]
	d.account(dec, now)
	for _, id := range dec.Preempted {
		d.gallery.again(d.streams[id])
	}
	for i := range dec.Ends {
		// A stop token is not part of the text.
		if end := &dec.Ends[i]; end.Finish == seq.Stopped {
			d.streams[end.ID].hold = true
		}
	}
	for _, s := range d.drawn {
		if !s.hold {
			s.push(s.drawn)
		}
		s.drawn = seq.Token{}
	}
	clear(d.drawn)
	d.drawn = d.drawn[:0]
	for i := range dec.Ends {
		end := &dec.Ends[i]
		s := d.streams[end.ID]
		delete(d.streams, end.ID)
		d.gallery.leave(s, len(s.request.Prompt))
		s.unwatch()
		s.finish(end)
	}
}

// account updates the metrics and frees the places of what ended.
func (d *device) account(dec *sched.Decision, now int64) {
	m, u := d.metrics, d.sched.Usage()
	m.Running.Set(int64(u.Running))
	m.Waiting.Set(int64(u.Waiting))
	m.PagesUsed.Set(int64(u.Pages))
	m.SlotsUsed.Set(int64(u.Slots))
	m.OutputTokens.Add(int64(len(d.drawn)))
	m.Preemptions.Add(int64(len(dec.Preempted)))
	for _, st := range dec.Started {
		m.Queue.Observe(time.Duration(st.Waited))
	}
	for _, s := range d.drawn {
		d.count(s, now)
	}
	for i := range dec.Ends {
		end := &dec.Ends[i]
		m.Finished[end.Finish].Add(1)
		m.Duration.Observe(time.Duration(now - d.streams[end.ID].submitted))
	}
	if len(dec.Ends) > 0 {
		d.ended(len(dec.Ends))
	}
}

// count observes the latency of a sequence's new token.
func (d *device) count(s *Stream, now int64) {
	if s.last == 0 {
		d.metrics.FirstToken.Observe(time.Duration(now - s.submitted))
		d.metrics.PromptTokens.Add(int64(len(s.request.Prompt)))
	} else {
		d.metrics.InterToken.Observe(time.Duration(now - s.last))
	}
	s.last = now
}

// run computes the decided work and leaves its tokens, or its failure, in events.
func (d *device) run(dec *sched.Decision) {
	if err := d.compute(dec); err != nil {
		clear(d.drawn)
		clear(d.jobs)
		d.drawn, d.jobs, d.events = d.drawn[:0], d.jobs[:0], d.events[:0]
		if diag.Is(err, diag.DeviceLost) {
			if d.lost == nil {
				d.Engine.lost <- err
			}
			d.lost = err
			d.stopTaking(err)
		}
		for i := range dec.Work {
			d.events = append(d.events, sched.Event{Kind: sched.Fail, ID: dec.Work[i].ID, Err: err})
		}
	}
}

// compute runs one step and samples. A panic becomes an error.
func (d *device) compute(dec *sched.Decision) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = panicked("the step failed", p)
		}
	}()
	d.build(dec)
	if err := d.see(dec); err != nil {
		return err
	}
	began := d.now()
	if d.ranUntil > 0 {
		d.metrics.Overhead.Observe(time.Duration(began - d.ranUntil))
	}
	logits, err := d.runner.Run(&d.step)
	if err != nil {
		return err
	}
	d.ranUntil = d.now()
	if len(logits) != len(d.step.OutRows) {
		return diag.Errorf(diag.Internal, "the step gave %d rows of logits, %d were asked for", len(logits), len(d.step.OutRows))
	}
	d.seen(dec)
	d.sample(dec, logits)
	d.metrics.Steps.Add(1)
	d.metrics.Rows.Add(int64(len(d.step.Tokens)))
	d.metrics.Step.Observe(time.Duration(d.ranUntil - began))
	return nil
}

// build writes the step that the decision describes.
func (d *device) build(dec *sched.Decision) {
	s := &d.step
	s.Tokens, s.Positions, s.RowSeq, s.Slots = s.Tokens[:0], s.Positions[:0], s.RowSeq[:0], s.Slots[:0]
	s.CuRows, s.Pages, s.StateSlot, s.Fresh, s.OutRows = append(s.CuRows[:0], 0), s.Pages[:0], s.StateSlot[:0], s.Fresh[:0], s.OutRows[:0]
	size := d.cfg.PageSize
	for i := range dec.Work {
		w := &dec.Work[i]
		s.Tokens = append(s.Tokens, w.Tokens...)
		for j := range w.Tokens {
			pos := w.First + j
			s.Positions = append(s.Positions, int32(pos))
			s.RowSeq = append(s.RowSeq, int32(i))
			s.Slots = append(s.Slots, w.Pages[pos/size]*int32(size)+int32(pos%size))
		}
		rows := int32(len(s.Tokens))
		for r := rows - int32(w.Outs); r < rows; r++ {
			s.OutRows = append(s.OutRows, r)
		}
		s.CuRows = append(s.CuRows, rows)
		s.Pages = append(s.Pages, w.Pages)
		s.StateSlot = append(s.StateSlot, max(w.Slot, 0))
		fresh := int32(0)
		if w.Fresh {
			fresh = 1
		}
		s.Fresh = append(s.Fresh, fresh)
	}
}
