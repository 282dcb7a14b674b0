// SPDX-License-Identifier: MIT OR Apache-2.0

package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/sample"
	"github.com/metrale/metrale/internal/sched"
	"github.com/metrale/metrale/internal/seq"
	"github.com/metrale/metrale/internal/telemetry"
)

// Options bound what an engine takes. Zero means what the runner's limits allow, of MaxQueue 128.
type Options struct {
	MaxBatch         int  // sequences that run at a time (--max-batch-size)
	MaxQueue         int  // sequences that wait when MaxBatch run (--max-num-seqs)
	MaxPrefillTokens int  // prompt tokens in a step (--max-prefill-tokens)
	MaxContext       int  // tokens of a sequence, prompt and text (--max-seq-len)
	Vocab            int  // tokens that may be drawn are below it: the tokenizer's size, when the logits are padded
	Sync             bool // wait for a step's tokens before the next step is decided, also where the device draws them
	Metrics          *telemetry.Engine
}

// Engine runs sequences on one Runner.
type Engine struct {
	cfg     sched.Config
	runner  exec.Runner
	drawer  exec.Drawer // the runner, when it draws tokens itself; else nil
	tower   tower       // the runner, when it takes images; else nil
	metrics *telemetry.Engine
	start   time.Time
	wake    chan struct{} // holds one: the inbox has something, or the engine is to close
	done    chan struct{} // closed when the device thread has ended
	lostTo  chan error    // gets why the device was lost
	closing atomic.Bool

	mu      sync.Mutex
	inbox   []message
	lastID  seq.ID
	live    int           // sequences that have not ended
	refuse  error         // why nothing is taken any more
	drained chan struct{} // closed when live is 0 and nothing is taken any more
	isDry   bool          // drained is closed
	failed  error         // of closing the runner
}

// message is an event from outside and the stream that it is about.
type message struct {
	event  sched.Event
	stream *Stream
}

// New starts an engine, which owns the runner from now on: Close closes it.
func New(runner exec.Runner, o Options) (*Engine, error) {
	drawer, ok := runner.(exec.Drawer)
	if ok && !drawer.Draws() {
		drawer = nil
	}
	cfg, err := config(runner.Limits(), o).Fit()
	if err != nil {
		return nil, err
	}
	cfg.Ahead = drawer != nil && !o.Sync
	e := &Engine{
		cfg: cfg, runner: runner, drawer: drawer, metrics: o.Metrics, start: time.Now(),
		wake: make(chan struct{}, 1), done: make(chan struct{}), lostTo: make(chan error, 1), drained: make(chan struct{}),
	}
	e.tower, _ = runner.(tower)
	if e.metrics == nil {
		e.metrics = &telemetry.Engine{}
	}
	e.metrics.PagesTotal.Set(int64(cfg.Pages))
	e.metrics.SlotsTotal.Set(int64(cfg.Slots))
	go newDevice(e).loop()
	return e, nil
}

// config turns the runner's limits and the options into the scheduler's sizes.
func config(l exec.Limits, o Options) sched.Config {
	or := func(option int, limit int64) int {
		if option > 0 {
			return min(option, int(limit))
		}
		return int(limit)
	}
	c := sched.Config{
		PageSize: int(l.PageSize), Pages: l.NumPages, Slots: l.NumSlots, Rows: int(l.Rows), Outs: int(l.Outs),
		Batch: or(o.MaxBatch, l.Seqs), Prefill: or(o.MaxPrefillTokens, l.Rows), Queue: o.MaxQueue,
		Context: or(o.MaxContext, l.Pages*l.PageSize), Vocab: or(o.Vocab, int64(l.Vocab)),
	}
	if c.Queue == 0 {
		c.Queue = 128
	}
	return c
}

// Context is the most tokens that a sequence may have, prompt and text together.
func (e *Engine) Context() int { return e.cfg.Context }

// Check says whether Submit would refuse the request for what it is, whatever the load: diag.Invalid or diag.TooLong.
func (e *Engine) Check(r *seq.Request) error {
	if err := e.cfg.Check(r); err != nil {
		return err
	}
	if err := e.checkImages(r); err != nil {
		return err
	}
	if e.drawer != nil {
		if err := checkDraws(r); err != nil {
			return err
		}
	}
	return sample.Check(&r.Sampling, e.cfg.Vocab)
}

// Submit starts a sequence. The request must not be changed afterwards. Ending ctx cancels the sequence.
func (e *Engine) Submit(ctx context.Context, r seq.Request) (*Stream, error) {
	if err := e.Check(&r); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, diag.Errorf(diag.Canceled, "the request was canceled: %w", err)
	}
	s := &Stream{engine: e, request: r, notify: make(chan struct{}, 1), submitted: e.now()}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.refuse != nil {
		return nil, e.refuse
	}
	if e.live >= e.cfg.Batch+e.cfg.Queue {
		return nil, sched.Overload(e.cfg)
	}
	e.live++
	e.lastID++
	s.id = e.lastID
	e.post(message{sched.Event{Kind: sched.Submit, ID: s.id, At: s.submitted, Request: &s.request}, s})
	s.unwatch = context.AfterFunc(ctx, s.cancel) // posts after this Submit: it needs mu
	return s, nil
}

// post puts a message into the inbox and wakes the device thread. mu is held.
func (e *Engine) post(m message) {
	e.inbox = append(e.inbox, m)
	e.poke()
}

func (e *Engine) poke() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// now is nanoseconds since the engine started.
func (e *Engine) now() int64 { return int64(time.Since(e.start)) }

// Metrics are the engine's counters.
func (e *Engine) Metrics() *telemetry.Engine { return e.metrics }

// Stats are the numbers that a status line shows. They are read one by one.
type Stats struct {
	Running, Waiting         int
	PagesUsed, PagesTotal    int
	SlotsUsed, SlotsTotal    int
	Steps                    int64
	PromptTokens, TextTokens int64
}

// Stats takes no lock.
func (e *Engine) Stats() Stats {
	m := e.metrics
	return Stats{
		Running: int(m.Running.Load()), Waiting: int(m.Waiting.Load()),
		PagesUsed: int(m.PagesUsed.Load()), PagesTotal: int(m.PagesTotal.Load()),
		SlotsUsed: int(m.SlotsUsed.Load()), SlotsTotal: int(m.SlotsTotal.Load()),
		Steps: m.Steps.Load(), PromptTokens: m.PromptTokens.Load(), TextTokens: m.OutputTokens.Load(),
	}
}

// Drain refuses new sequences with diag.Overloaded and waits until all have ended, or ctx has.
func (e *Engine) Drain(ctx context.Context) error {
	e.stopTaking(errShutdown())
	select {
	case <-e.drained:
		return nil
	case <-ctx.Done():
		return diag.Errorf(diag.Canceled, "draining was interrupted: %w", ctx.Err())
	}
}

// Lost gets one error, of code diag.DeviceLost, when the device is gone: every sequence fails, none is taken any more, and the
// process should end.
func (e *Engine) Lost() <-chan error { return e.lostTo }

// Close ends all sequences, waits for the step that runs, and closes the runner. It may be called more than once.
func (e *Engine) Close() error {
	e.stopTaking(errShutdown())
	e.closing.Store(true)
	e.poke()
	<-e.done
	return e.failed
}

// stopTaking makes Submit fail from now on; the first reason stays.
func (e *Engine) stopTaking(why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.refuse == nil {
		e.refuse = why
	}
	e.settle()
}

// ended counts sequences as over.
func (e *Engine) ended(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.live -= n
	e.settle()
}

// settle closes drained when nothing is left and nothing will come. mu is held.
func (e *Engine) settle() {
	if e.refuse != nil && e.live == 0 && !e.isDry {
		e.isDry = true
		close(e.drained)
	}
}

func errShutdown() error { return diag.Errorf(diag.Overloaded, "the engine is shutting down") }
