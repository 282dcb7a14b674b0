// SPDX-License-Identifier: MIT OR Apache-2.0

package engine

import (
	"runtime"
	"time"

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
	step     exec.Step     // the newest one
	feed     []int32       // of its rows
	router   router
	flights  [2]flight // in turn
	launched int       // steps so far
	landed   int
	gallery  gallery
	ranUntil int64 // when the last step ended; 0: the runner was idle since
	lost     error // the device is gone
}

func newDevice(e *Engine) *device {
	d := &device{Engine: e, sched: sched.New(e.cfg), streams: map[seq.ID]*Stream{}}
	if e.drawer != nil {
		d.router = newDeviceRouter(e.drawer, e.cfg.Batch)
	} else {
		d.router = newHostRouter(e.runner, e.cfg.Vocab)
	}
	return d
}

// loop is the device thread. It is locked where a device draws, whose driver knows threads. Where the host draws it yields before
// every step, which would cost two switches of threads if it were locked.
func (d *device) loop() {
	defer close(d.done)
	if d.drawer != nil {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
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
	d.router.close()
	d.failed = d.runner.Close()
}

// turn takes what came in, decides, publishes, launches a step and lands one: that one, or when the scheduler decides ahead the one
// before. false: there was nothing to do.
func (d *device) turn() bool {
	d.collect()
	now := d.now()
	decision := d.sched.Step(now, d.events)
	d.publish(decision, now)
	work := len(decision.Work) > 0
	if work && d.drawer == nil {
		runtime.Gosched() // the step computes on the processors that the readers need: they come first
	}
	flies := work && d.launch(decision)
	if under := d.launched - d.landed; under > 1 || under > 0 && !(flies && d.cfg.Ahead) {
		d.land()
		return true
	}
	return work
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
		d.router.leave(d.streams[id])
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
		d.router.leave(s)
		s.gone = true
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
