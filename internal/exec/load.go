// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"slices"
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
	pieceBytes  = 512 << 10 // stored bytes that are read and packed at a time, about
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
func (b *binder) runJobs(ctx context.Context, jobs []*loadJob, done, total int64) (err error) {
	progress := b.progress(done, total)
	progress(0)
	var tasks []*task
	for _, j := range jobs {
		own, err := j.tasks()
		if err != nil {
			return diag.Errorf(diag.CodeOf(err), "weight %s: %w", j.w.Name, err)
		}
		tasks = append(tasks, own...)
	}
	workers := runtime.GOMAXPROCS(0)
	newWorker := func() worker { return &hostWorker{} }
	if s, ok := b.opts.Device.(gpu.Stager); ok {
		r := newRing(b.opts.Device, s, tasks, windowBytes)
		defer func() {
			if e := r.end(); err == nil {
				err = e
			}
		}()
		r.begin()
		newWorker = func() worker { return &stagedWorker{ring: r} }
		workers = r.staff(workers)
	}
	return b.runTasks(ctx, tasks, workers, newWorker, progress)
}

// progress gives what counts n more stored bytes as loaded, of total, of which done are.
func (b *binder) progress(done, total int64) func(n int64) {
	var mu sync.Mutex
	return func(n int64) {
		mu.Lock()
		defer mu.Unlock()
		done += n
		if b.opts.Progress != nil {
			b.opts.Progress(done, total)
		}
	}
}

// runTasks has workers take the tasks in order, until all have ended or one has failed.
func (b *binder) runTasks(ctx context.Context, tasks []*task, workers int, newWorker func() worker, progress func(n int64)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			nearTo(b.opts.Device)
			w := newWorker()
			for ctx.Err() == nil {
				i := next.Add(1) - 1
				if i >= int64(len(tasks)) {
					return
				}
				t := tasks[i]
				if err := try(ctx, w, t, b.opts.Store); err != nil {
					cancel(err)
					return
				}
				t.end(b.opts.Store)
				progress(t.n * t.rowBytes)
				if w.spare() {
					return
				}
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		if _, ours := diag.As(err); !ours {
			err = diag.Errorf(diag.Canceled, "loading was interrupted: %w", err)
		}
		return err
	}
	return nil
}

// try has a worker load a task; an error names the weight. A panic is one that names the tensor too: files come from anywhere.
func try(ctx context.Context, w worker, t *task, store Store) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = diag.Errorf(diag.Internal, "weight %s: at tensor %s: %v", t.w.Name, t.tensor(), p).Because(errors.New(string(debug.Stack())))
		}
	}()
	if err := w.load(ctx, t, store); err != nil {
		return diag.Errorf(diag.CodeOf(err), "weight %s: %w", t.w.Name, err)
	}
	return nil
}

// nearTo keeps a goroutine by the device, if that makes a difference: on a thread that ends with it.
func nearTo(dev gpu.Device) {
	if d, ok := dev.(gpu.Neighbour); ok {
		if runtime.LockOSThread(); !d.Near() {
			runtime.UnlockOSThread()
		}
	}
}

// worker loads tasks, one after the other.
type worker interface {
	load(ctx context.Context, t *task, store Store) error
	spare() bool // the others do without it
}

// loadJob packs one weight.
type loadJob struct {
	w      *plan.Weight
	layout gpu.Layout
	dst    gpu.Buffer
	off    int64 // of the packed weight in dst, 256-byte aligned
	size   int64 // packed
	// The weight as matrices of rows: [matrices][rows][k], and bytes of a stored row.
	matrices, rows, k, rowBytes int64
	sources                     []piece
	left                        atomic.Int64 // tasks that have not ended
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
	j := &loadJob{w: w, layout: layout, off: off, size: size}
	j.matrices, j.rows, j.k = gpu.Matrices(shape)
	j.rowBytes = w.DType.Bytes(j.k)
	j.sources, err = j.pieces(b.opts.Store)
	return j, err
}

// task is rows [row, row+n) of one matrix of a weight.
type task struct {
	*loadJob
	m, row, n int64
	off, size int64 // packed, in dst
	window    *window
}

// tasks shares a weight out, in the order of its memory.
func (j *loadJob) tasks() (out []*task, err error) {
	step := max(1, pieceBytes/(j.rowBytes*j.layout.Rows())) * j.layout.Rows()
	for _, p := range j.sources {
		if p.matrix > 0 {
			step = j.rows // a matrix is turned once
		}
	}
	list := make([]task, j.matrices*((j.rows+step-1)/step))
	out = make([]*task, len(list))
	part, n := tensor.Shape{0, j.k}, 0
	for m := range j.matrices {
		off := j.off + m*(j.size/j.matrices)
		for row, from := int64(0), int64(0); row < j.rows; row += step {
			part[0] = min(row+step, j.rows)
			to, err := j.layout.Size(j.w.DType, part) // packed rows follow each other
			if err != nil {
				return nil, err
			}
			list[n] = task{loadJob: j, m: m, row: row, n: part[0] - row, off: off + from, size: to - from}
			out[n] = &list[n]
			n, from = n+1, to
		}
	}
	j.left.Store(int64(len(out)))
	return out, nil
}

// tensor is the one that the task's rows begin in.
func (t *task) tensor() string {
	off := (t.m*t.rows + t.row) * t.rowBytes
	i := slices.IndexFunc(t.sources, func(p piece) bool { off -= p.groups * p.run; return off < 0 })
	return t.sources[i].name
}

// read reads the stored rows.
func (t *task) read(store Store, buf []byte) error {
	src := sourceReader{store: store, pieces: t.sources}
	return src.read((t.m*t.rows+t.row)*t.rowBytes, buf)
}

// end says that the rows are loaded.
func (t *task) end(store Store) {
	if t.left.Add(-1) > 0 {
		return
	}
	for _, p := range t.sources {
		if p.last {
			store.Drop(p.name)
		}
	}
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
