// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// Store is what loading needs of a checkpoint; weights.Store is one.
type Store interface {
	Lookup(name string) (tensor.Info, bool)
	Read(name string, off int64, dst []byte) error
	Drop(name string)
}

const (
	taskBytes   = 32 << 20 // a large weight is shared out in parts of about that many stored bytes
	weightAlign = 256
)

// weightKey is equal for two weights that may share memory: the same rows in the same layout. A tied output matrix is one.
func weightKey(w *plan.Weight) string { return w.Layout + "\x00" + strings.Join(w.Sources, "\x00") }

// placeWeights gives each weight of the plans its place, once, in one buffer: large pages cover it, and freeing is one call.
// stored is their size in the checkpoint.
func (b *binder) placeWeights(plans []*plan.Plan) (jobs []*loadJob, stored int64, err error) {
	var size int64
	for _, p := range plans {
		for i := range p.Weights {
			w := &p.Weights[i]
			if _, ok := b.weights[weightKey(w)]; ok {
				continue
			}
			j, err := b.newJob(w, size)
			if err != nil {
				return nil, 0, diag.Errorf(diag.CodeOf(err), "weight %s: %w", w.Name, err)
			}
			b.weights[weightKey(w)] = j
			jobs = append(jobs, j)
			stored += w.DType.Bytes(w.Axes.Shape().Elems())
			size += (j.size + weightAlign - 1) &^ (weightAlign - 1)
		}
	}
	buf, err := b.alloc("weights", size)
	if err != nil {
		return nil, 0, err
	}
	for _, j := range jobs {
		j.dst = buf
	}
	return jobs, stored, nil
}

// loadWeights packs the weights on all cores, while bind prepares the launches: they need only the weights' places.
func (b *binder) loadWeights(ctx context.Context, jobs []*loadJob, stored int64, bind func() error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var bound error
	var wg sync.WaitGroup
	wg.Go(func() {
		if bound = bind(); bound != nil {
			cancel(bound)
		}
	})
	b.opts.Phase("load")
	jobs, made, err := b.generate(jobs)
	if err == nil {
		err = b.runJobs(ctx, jobs, made, stored)
	}
	b.opts.Phase("bind") // what is left of it
	wg.Wait()
	if bound != nil {
		return bound
	}
	return err
}

// runJobs hands parts of the weights out to one goroutine per core and stops at the first error. Of total stored bytes, done are there.
func (b *binder) runJobs(ctx context.Context, jobs []*loadJob, done, total int64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := make(chan task)
	var wg sync.WaitGroup
	var mu sync.Mutex
	progress := func(n int64) {
		mu.Lock()
		defer mu.Unlock()
		done += n
		if b.opts.Progress != nil {
			b.opts.Progress(done, total)
		}
	}
	progress(0)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			l := newLane(b.opts.Device)
			for t := range queue {
				if err := t.run(ctx, b.opts.Store, l, progress); err != nil {
					cancel(diag.Errorf(diag.CodeOf(err), "weight %s: %w", t.w.Name, err))
				}
			}
			if err := l.end(); err != nil {
				cancel(err)
			}
		})
	}
	for _, j := range jobs {
		for _, t := range j.tasks() {
			select {
			case queue <- t:
			case <-ctx.Done():
			}
		}
	}
	close(queue)
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		if _, ours := diag.As(err); !ours {
			err = diag.Errorf(diag.Canceled, "loading was interrupted: %w", err)
		}
		return err
	}
	return nil
}

// loadJob packs one weight.
type loadJob struct {
	w      *plan.Weight
	layout gpu.Layout
	dst    gpu.Buffer
	off    int64 // of the packed weight in dst, 256-byte aligned
	size   int64 // packed
	// The weight as matrices of rows: [matrices][rows][bytes of a row].
	matrices, rows, rowBytes int64
	sources                  []piece
	left                     atomic.Int64 // tasks that have not ended
}

func (b *binder) newJob(w *plan.Weight, off int64) (*loadJob, error) {
	layout, err := b.opts.Device.Layout(w.Layout)
	if err != nil {
		return nil, err
	}
	shape := w.Axes.Shape()
	size, err := layout.Size(w.DType, shape)
	if err != nil {
		return nil, err
	}
	j := &loadJob{w: w, layout: layout, off: off, size: size, matrices: 1, rows: 1}
	last := len(shape) - 1
	switch {
	case last >= 2:
		j.matrices, j.rows = shape[0], shape[1:last].Elems()
	case last == 1:
		j.rows = shape[0]
	}
	j.rowBytes = w.DType.Bytes(shape.Elems() / (j.matrices * j.rows))
	j.sources, err = j.pieces(b.opts.Store)
	return j, err
}

// task is rows [row, row+n) of one matrix of a weight.
type task struct {
	*loadJob
	m, row, n int64
}

// tasks shares a weight out.
func (j *loadJob) tasks() (out []task) {
	step := j.rowsIn(taskBytes)
	for _, p := range j.sources {
		if p.matrix > 0 {
			step = j.rows // a matrix is turned once
		}
	}
	for m := range j.matrices {
		for row := int64(0); row < j.rows; row += step {
			out = append(out, task{j, m, row, min(step, j.rows-row)})
		}
	}
	j.left.Store(int64(len(out)))
	return out
}

// rowsIn is how many rows fit bytes, at least what Pack takes.
func (j *loadJob) rowsIn(bytes int64) int64 {
	return max(1, bytes/(j.rowBytes*j.layout.Rows())) * j.layout.Rows()
}

// run reads and packs the rows in chunks.
func (t task) run(ctx context.Context, store Store, l lane, progress func(int64)) error {
	src := sourceReader{store: store, pieces: t.sources}
	step := t.rowsIn(l.chunk())
	for row := t.row; row < t.row+t.n; row += step {
		if err := ctx.Err(); err != nil {
			return diag.Errorf(diag.Canceled, "loading was interrupted: %w", err)
		}
		n := min(step, t.row+t.n-row)
		buf, err := l.next(n * t.rowBytes)
		if err != nil {
			return err
		}
		if err := src.read((t.m*t.rows+row)*t.rowBytes, buf); err != nil {
			return err
		}
		if err := l.pack(t.loadJob, t.m, row, n); err != nil {
			return err
		}
		progress(int64(len(buf)))
	}
	if t.left.Add(-1) == 0 {
		for _, p := range t.sources {
			if p.last {
				store.Drop(p.name)
			}
		}
	}
	return nil
}

// WeightBytes is how much of the device's memory a plan's weights take, packed.
func WeightBytes(dev gpu.Device, p *plan.Plan) (total int64, err error) {
	seen := map[string]bool{}
	for i := range p.Weights {
		w := &p.Weights[i]
		if seen[weightKey(w)] {
			continue
		}
		seen[weightKey(w)] = true
		layout, err := dev.Layout(w.Layout)
		if err != nil {
			return 0, err
		}
		n, err := layout.Size(w.DType, w.Axes.Shape())
		if err != nil {
			return 0, diag.Errorf(diag.CodeOf(err), "weight %s: %w", w.Name, err)
		}
		total += n
	}
	return total, nil
}
