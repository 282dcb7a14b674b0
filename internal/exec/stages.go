// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/metrale/metrale/internal/gpu"
)

const (
	windowBytes = 16 << 20 // of the weights' memory, that one copy fills
	numStages   = 4        // windows that are filled or on their way; more would not stay in the processor's cache
	fewReaders  = 12       // keep up with the copies if they only read; more would take turns at waiting
)

// ring fills the weights' memory window by window. Windows take the stages in turn, and their tasks go to whatever goroutine is
// free, in order: so reading is spread over cores, copies are few and large, and the next ones wait behind the one on its way.
//
//	memory    weight 0 | weight 1 | weight 2 …
//	tasks     0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 …       a window ends with a task
//	windows       0     |     1     |     2 …
//	stages        0     |     1     |     0 …       of two
type ring struct {
	dev     gpu.Device
	stager  gpu.Stager
	dst     gpu.Buffer
	windows []*window
	bytes   int64 // of the largest

	readers atomic.Int64 // that have not left
	making  sync.WaitGroup
}

// window is a run of the weights' memory.
type window struct {
	number     int
	off, bytes int64
	left       atomic.Int64  // tasks that have not ended
	found      atomic.Bool   // someone looks for the stage
	ready      chan struct{} // closed when it is there, or err
	stage      gpu.Stage
	err        error
	sent       chan struct{} // closed when the copy is queued
}

// newRing puts tasks, which are in the order of their memory, into windows of at most so many bytes. What lies between two weights
// may be written too, but no weight that is not among them.
func newRing(dev gpu.Device, stager gpu.Stager, tasks []*task, most int64) *ring {
	r := &ring{dev: dev, stager: stager}
	var w *window
	for _, t := range tasks {
		if w == nil || t.off+t.size-w.off > most || t.off >= w.off+w.bytes+weightAlign {
			w = &window{number: len(r.windows), off: t.off, ready: make(chan struct{}), sent: make(chan struct{})}
			r.windows = append(r.windows, w)
		}
		w.bytes = t.off + t.size - w.off
		w.left.Add(1)
		r.bytes, r.dst, t.window = max(r.bytes, w.bytes), t.dst, w
	}
	return r
}

// begin starts making the stages: the first one is used while the next are made.
func (r *ring) begin() {
	for _, w := range r.windows[:min(numStages, len(r.windows))] {
		w.found.Store(true)
		r.making.Go(func() {
			nearTo(r.dev)
			w.stage, w.err = r.stager.Stage("loading", r.bytes)
			close(w.ready)
		})
	}
}

// open waits for a window's stage. The first who comes waits for the copy of the window that had it, and wakes the others at once.
func (r *ring) open(ctx context.Context, w *window) error {
	if w.found.CompareAndSwap(false, true) {
		last := r.windows[w.number-numStages]
		select {
		case <-last.sent:
			w.stage, w.err = last.stage, last.stage.Wait()
		case <-ctx.Done():
			w.err = context.Cause(ctx)
		}
		close(w.ready)
	}
	<-w.ready
	return w.err
}

// close ends a task of a window; the last one sends it.
func (r *ring) close(w *window) error {
	if w.left.Add(-1) > 0 {
		return nil
	}
	err := w.stage.Send(r.dst, w.off, w.bytes)
	if err == nil {
		close(w.sent)
	}
	return err
}

// staff is how many readers begin on so many cores. Others bind launches meanwhile, and wait for copies: a reader that waits for a core
// keeps a window.
func (r *ring) staff(cores int) int {
	n := max(1, cores*3/4)
	r.readers.Store(int64(n))
	return n
}

// leave says that a reader may end: enough of them are left.
func (r *ring) leave() bool {
	for n := r.readers.Load(); n > fewReaders; n = r.readers.Load() {
		if r.readers.CompareAndSwap(n, n-1) {
			return true
		}
	}
	return false
}

// end waits for what is on its way, and frees the stages.
func (r *ring) end() (err error) {
	r.making.Wait()
	for _, w := range r.windows[:min(numStages, len(r.windows))] {
		if w.stage == nil {
			continue
		}
		if e := w.stage.Wait(); err == nil {
			err = e
		}
		w.stage.Free()
	}
	return err
}

// stagedWorker reads into stages.
type stagedWorker struct {
	ring   *ring
	raw    []byte // stored rows that must be packed
	began  time.Time
	waited time.Duration // for stages that were on their way
}

// spare: one that waits for a quarter of its time, since the copies are what takes long. Where packing does, all stay.
func (s *stagedWorker) spare() bool { return 4*s.waited > time.Since(s.began) && s.ring.leave() }

func (s *stagedWorker) load(ctx context.Context, t *task, store Store) error {
	w, asked := t.window, time.Now()
	if s.began.IsZero() {
		s.began = asked
	}
	if err := s.ring.open(ctx, w); err != nil {
		return err
	}
	if w.number >= numStages { // whose stage was not made just now
		s.waited += time.Since(asked)
	}
	to := w.stage.Bytes()[t.off-w.off:][:t.size]
	layout := t.layout.(gpu.RowLayout) // as a Stager's are
	if layout.Keeps(t.w.DType) {
		if err := t.read(store, to); err != nil {
			return err
		}
	} else {
		s.raw = grown(s.raw, t.n*t.rowBytes)
		if err := t.read(store, s.raw); err != nil {
			return err
		}
		if err := layout.PackRows(to, t.w.DType, t.k, s.raw); err != nil {
			return err
		}
	}
	return s.ring.close(w)
}

// hostWorker packs where the weights lie.
type hostWorker struct{ raw []byte }

func (h *hostWorker) spare() bool { return false }

func (h *hostWorker) load(_ context.Context, t *task, store Store) error {
	h.raw = grown(h.raw, t.n*t.rowBytes)
	if err := t.read(store, h.raw); err != nil {
		return err
	}
	return t.layout.Pack(t.dst, t.loadJob.off, t.w.DType, t.w.Axes.Shape(), t.m, t.row, t.n, h.raw)
}

// grown is b with n bytes, whatever they are.
func grown(b []byte, n int64) []byte {
	if int64(cap(b)) < n {
		b = make([]byte, max(n, pieceBytes))
	}
	return b[:n]
}
