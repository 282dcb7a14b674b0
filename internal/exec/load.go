// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import (
	"context"
	"runtime"
	"strings"
	"sync"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/weights"
)

// Store is what loading needs of a checkpoint; weights.Store is one.
type Store interface {
	Lookup(name string) (weights.Tensor, bool)
	Read(name string, off int64, dst []byte) error
	Drop(name string)
}

// chunk is how many stored bytes are read and packed at a time.
const chunk = 1 << 20

// weightKey is equal for two weights that may share memory: the same rows in the same layout. A tied output matrix is one.
func weightKey(w *plan.Weight) string { return w.Layout + "\x00" + strings.Join(w.Sources, "\x00") }

// loadWeights packs each weight of the plans once, on all cores, into one buffer: large pages cover it, and freeing is one call.
func (b *binder) loadWeights(ctx context.Context, plans []*plan.Plan) error {
	var jobs []*loadJob
	var stored, size int64
	for _, p := range plans {
		for i := range p.Weights {
			w := &p.Weights[i]
			if _, ok := b.weights[weightKey(w)]; ok {
				continue
			}
			j, err := b.newJob(w, size)
			if err != nil {
				return diag.Errorf(diag.CodeOf(err), "weight %s: %w", w.Name, err)
			}
			b.weights[weightKey(w)] = j
			jobs = append(jobs, j)
			stored += w.DType.Bytes(w.Axes.Shape().Elems())
			size += (j.size + 63) &^ 63
		}
	}
	buf, err := b.alloc("weights", size)
	if err != nil {
		return err
	}
	for _, j := range jobs {
		j.dst = buf
	}
	return b.runJobs(ctx, jobs, stored)
}

// runJobs hands the weights out to one goroutine per core and stops at the first error.
func (b *binder) runJobs(ctx context.Context, jobs []*loadJob, total int64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	queue := make(chan *loadJob)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var done int64
	progress := func(n int64) {
		mu.Lock()
		defer mu.Unlock()
		done += n
		if b.opts.Progress != nil {
			b.opts.Progress(done, total)
		}
	}
	for range min(runtime.GOMAXPROCS(0), len(jobs)) {
		wg.Go(func() {
			buf := make([]byte, 0, chunk)
			for j := range queue {
				if err := j.run(ctx, b.opts.Store, buf, progress); err != nil {
					cancel(diag.Errorf(diag.CodeOf(err), "weight %s: %w", j.w.Name, err))
				}
			}
		})
	}
	for _, j := range jobs {
		select {
		case queue <- j:
		case <-ctx.Done():
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
	off    int64 // of the packed weight in dst, 64-byte aligned
	size   int64 // packed
	// The weight as matrices of rows: [matrices][rows][bytes of a row].
	matrices, rows, rowBytes int64
	sources                  []piece
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

// pieces resolves a weight's sources and makes sure that they are exactly its rows.
func (j *loadJob) pieces(store Store) ([]piece, error) {
	var elems int64
	var out []piece
	for _, src := range j.w.Sources {
		s, err := plan.ParsePiece(src)
		if err != nil {
			return nil, diag.Errorf(diag.Internal, "%w", err)
		}
		t, ok := store.Lookup(s.Tensor)
		if !ok {
			return nil, diag.Errorf(diag.Format, "the checkpoint has no tensor %s", s.Tensor)
		}
		if t.DType != j.w.DType {
			return nil, diag.Errorf(diag.Format, "tensor %s is %v, the plan says %v", s.Tensor, t.DType, j.w.DType)
		}
		p := piece{name: s.Tensor, groups: 1, run: t.Size()}
		if s.Of > 0 {
			if len(t.Shape) == 0 || t.Shape[0]%s.Of != 0 {
				return nil, diag.Errorf(diag.Format, "tensor %s is %v, no whole groups of %d rows", s.Tensor, t.Shape, s.Of)
			}
			row := t.Size() / t.Shape[0]
			p = piece{name: s.Tensor, groups: t.Shape[0] / s.Of, first: s.Lo * row, run: (s.Hi - s.Lo) * row, stride: s.Of * row}
			elems += t.Shape.Elems() / s.Of * (s.Hi - s.Lo)
		} else {
			elems += t.Shape.Elems()
		}
		out = append(out, p)
	}
	if want := j.w.Axes.Shape().Elems(); elems != want {
		return nil, diag.Errorf(diag.Format, "tensors %s hold %d elements, the plan says %v", strings.Join(j.w.Sources, ", "), elems, j.w.Axes.Shape())
	}
	return out, nil
}

// run reads and packs the weight in chunks of whole rows that never cross a matrix.
func (j *loadJob) run(ctx context.Context, store Store, buf []byte, progress func(int64)) error {
	src := sourceReader{store: store, pieces: j.sources}
	step := max(1, int64(chunk)/(j.rowBytes*j.layout.Rows())) * j.layout.Rows()
	for m := range j.matrices {
		for row := int64(0); row < j.rows; row += step {
			if err := ctx.Err(); err != nil {
				return diag.Errorf(diag.Canceled, "loading was interrupted: %w", err)
			}
			n := min(step, j.rows-row)
			if need := int(n * j.rowBytes); cap(buf) < need {
				buf = make([]byte, need)
			} else {
				buf = buf[:need]
			}
			if err := src.read(buf); err != nil {
				return err
			}
			if err := j.layout.Pack(j.dst, j.off, j.w.DType, j.w.Axes.Shape(), m, row, n, buf); err != nil {
				return err
			}
			progress(int64(len(buf)))
		}
	}
	return nil
}

// piece is a source in bytes: groups of run bytes each, stride apart.
type piece struct {
	name               string
	groups             int64
	first, run, stride int64
}

// sourceReader reads pieces one after the other as if they were one tensor.
type sourceReader struct {
	store  Store
	pieces []piece
	group  int64 // of pieces[0]
	off    int64 // into the group
}

func (r *sourceReader) read(dst []byte) error {
	for len(dst) > 0 {
		p := &r.pieces[0]
		n := min(p.run-r.off, int64(len(dst)))
		if n > 0 {
			if err := r.store.Read(p.name, p.first+r.group*p.stride+r.off, dst[:n]); err != nil {
				return err
			}
		}
		dst, r.off = dst[n:], r.off+n
		if r.off < p.run {
			continue
		}
		if r.group, r.off = r.group+1, 0; r.group == p.groups {
			r.store.Drop(p.name)
			r.pieces, r.group = r.pieces[1:], 0
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
