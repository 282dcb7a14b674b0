// SPDX-License-Identifier: MIT OR Apache-2.0

package linear

import (
	"math"

	"github.com/metrale/metrale/internal/gpu/cpu/vec"
)

const (
	groupPanels = 4    // panels that are unpacked together
	chunkQ8     = 2048 // elements along k that are unpacked at a time, so that a group stays in the second cache
	chunkF32    = 512
	spanRows    = 256 // about the most rows of a task

	panelsBytes = groupPanels * max(chunkF32*lanes*4, chunkQ8/block*(4*4*lanes+lanes*block)) // of an unpacked group
)

// Scratch is the memory that calls on one pool share. It serves one call at a time.
type Scratch struct {
	kernels *kernels
	workers []worker

	acts  acts
	two   bool // activations are digits: row r of the call is rows 2r and 2r+1 of tiles and spans
	mats  []mat
	spans []span
	act   vec.Act
	limit float32
	mode  Mode
	moe   moe

	// The regions, bound once so that a call allocates nothing.
	quantizeTask, drainTask, gluTask, sumTask func(i, worker int)
}

// worker is the memory of one worker.
type worker struct {
	queue     queue
	panels    []byte    // an unpacked group
	tmp       []byte    // for kernels.widen
	gate, out []float32 // results of a strip: [rows][columns]
	sums      []int32   // of one row's codes
	digit     []byte    // a first digit whose second is alone in its tile
	rest      []float32 // what the first digit leaves of a row
	scaled    []float32 // an expert's weighted result
	_         [64]byte  // keeps workers' headers apart
}

// acts are the activations of a region.
type acts struct {
	k     int
	x     []float32 // [rows][k] of the caller, or [rows/2][k] as digits
	q     []byte    // tiles of rows, quantised; those of row r begin at r·(k/32)·36
	kinds []auxKind
	aux   [][]int32 // for each kind; those of row r begin at r·k/group
	tiles []rowTile
}

// rowTile is a tile of consecutive rows.
type rowTile struct{ row, height int }

// span is a range of tiles that one task multiplies.
type span struct{ tile0, tile1, row, rows, matrix int }

// auxKind is what a format needs to know of quantised activations, for each group: −zero·sum as an integer, or
// scale·sum as float32 for affine formats.
type auxKind struct {
	affine      bool
	zero, group int
}

// panels is the number of panels of one matrix.
func (m *mat) panels() int { return (m.w.N + lanes - 1) / lanes }

func (f *format) aux() auxKind { return auxKind{f.affine, f.zero, f.group} }

// mat is a weight, or the experts' matrices of one, in a region.
type mat struct {
	f      *format
	w      Weight
	matrix int // bytes of one matrix
	aux    int // its kind in acts, −1 to compute in float32
	strip  int // panels of a task
	strips int
	first  int // first task
	outputs
	y []float32
}

// outputs are what a matrix's products are multiplied with, and what is then added, for each column; nil for nothing.
type outputs struct{ scale, bias []float32 }

// NewScratch makes scratch for a pool of workers and reserves memory for calls of up to maxRows rows of maxK elements; a
// larger call makes it grow. It computes on the best path.
func NewScratch(maxRows, maxK, workers int) *Scratch {
	s := &Scratch{kernels: paths[0], workers: make([]worker, workers)}
	s.quantizeTask = s.quantize
	s.drainTask = s.drain
	s.gluTask = s.expertGlu
	s.sumTask = s.expertSum
	s.acts.q = growAligned(s.acts.q, 2*maxRows*maxK/block*actBytes)
	return s
}

// SetPath makes later calls compute on a path of Paths; "" is the best.
func (s *Scratch) SetPath(name string) error {
	k, err := findPath(name)
	if err == nil {
		s.kernels = k
	}
	return err
}

// Path is the path in use.
func (s *Scratch) Path() string { return s.kernels.name }

// grow gives b at least n elements, keeping none.
func grow[T any](b []T, n int) []T {
	if cap(b) < n {
		return make([]T, n+n/4)[:n]
	}
	return b[:n]
}

// growAligned is grow for bytes that begin on a cache line.
func growAligned(b []byte, n int) []byte {
	if cap(b) < n {
		return aligned(n + n/4)[:n]
	}
	return b[:n]
}

// addTiles appends the tiles of n rows from row and gives their range.
func (s *Scratch) addTiles(row, n int) (from, to int) {
	a := &s.acts
	from = len(a.tiles)
	for _, h := range s.kernels.tiles {
		for ; n >= h; n -= h {
			a.tiles = append(a.tiles, rowTile{row, h})
			row += h
		}
	}
	return from, len(a.tiles)
}

// addSpans cuts n rows from row into spans of at most limit rows.
func (s *Scratch) addSpans(row, n, limit, matrix int) {
	for ; n > 0; n -= limit {
		rows := min(n, limit)
		t0, t1 := s.addTiles(row, rows)
		s.spans = append(s.spans, span{t0, t1, row, rows, matrix})
		row += rows
	}
}

// addMat adds a weight to the region.
func (s *Scratch) addMat(w Weight, compute Compute, o outputs, y []float32) {
	f := formats[w.D]
	m := mat{f: f, w: w, aux: -1, outputs: o, y: y}
	m.matrix = m.panels() * f.panelBytes(w.K)
	if compute == Q16 && f.quantised() {
		m.aux, s.two = s.kind(f.aux()), true
	}
	s.mats = append(s.mats, m)
}

// kind finds or adds a kind of aux.
func (s *Scratch) kind(k auxKind) int {
	a := &s.acts
	for i, have := range a.kinds {
		if have == k {
			return i
		}
	}
	a.kinds = append(a.kinds, k)
	if len(a.aux) < len(a.kinds) {
		a.aux = append(a.aux, nil)
	}
	return len(a.kinds) - 1
}

// begin empties the region.
func (s *Scratch) begin(x []float32, k int) {
	a := &s.acts
	a.x, a.k = x, k
	a.kinds, a.tiles, s.two = a.kinds[:0], a.tiles[:0], false
	s.mats, s.spans = s.mats[:0], s.spans[:0]
}

// quantizeInline is how many elements are quantised by the caller: more pay for a region of their own.
const quantizeInline = 16 << 10

// rows is how many rows of tiles n rows of a call are.
func (s *Scratch) rows(n int) int {
	if s.two {
		return 2 * n
	}
	return n
}

// prepare quantises the activations of the region's rows, if the weights want them so.
func (s *Scratch) prepare(p Pool, rows int) {
	a := &s.acts
	if len(a.kinds) == 0 {
		return
	}
	a.q = growAligned(a.q, rows*(a.k/block)*actBytes)
	for i, kind := range a.kinds {
		a.aux[i] = grow(a.aux[i], rows*a.k/kind.group)
	}
	for i := range s.workers {
		w := &s.workers[i]
		w.sums, w.rest, w.digit = grow(w.sums, a.k/16), grow(w.rest, a.k), grow(w.digit, a.k/block*actBytes)
	}
	if rows*a.k > quantizeInline {
		p.Run(len(a.tiles), s.quantizeTask)
		return
	}
	for i := range a.tiles {
		s.quantize(i, 0)
	}
}

// quantize quantises the rows of tile i: digits of rows.
func (s *Scratch) quantize(i, worker int) {
	a, w := &s.acts, &s.workers[worker]
	sums := w.sums
	t := a.tiles[i]
	blocks := a.k / block
	q := a.q[t.row*blocks*actBytes:][:t.height*blocks*actBytes]
	for r := range t.height {
		x := a.x[(t.row+r)/2*a.k:][:a.k]
		if (t.row+r)%2 == 1 {
			first, height, at := q, t.height, r-1
			if r == 0 {
				first, height, at = w.digit, 1, 0
				s.kernels.quantize(first, height, at, sums, x)
			}
			remainder(w.rest, x, first, height, at)
			x = w.rest
		}
		s.kernels.quantize(q, t.height, r, sums, x)
		for j, kind := range a.kinds {
			groups := a.k / kind.group
			kind.fill(a.aux[j][t.row*groups:][:t.height*groups], q, t.height, r, sums)
		}
	}
}

// remainder is what row r of a quantised tile leaves of x.
func remainder(rest, x []float32, tile []byte, height, r int) {
	for b := range len(x) / block {
		rec := tile[b*height*actBytes:][:height*actBytes]
		scale := math.Float32frombits(le.Uint32(rec[height*block+4*r:]))
		codes, from, to := rec[r*block:][:block], x[b*block:][:block], rest[b*block:][:block]
		for i, c := range codes {
			to[i] = from[i] - float32(scale*float32(int8(c)))
		}
	}
}

// fill writes row r of a tile's aux [group][height].
func (k auxKind) fill(aux []int32, tile []byte, height, r int, sums []int32) {
	n := k.group / 16 // sums of a group
	for g := range len(sums) / n {
		sum := sums[n*g]
		if n == 2 {
			sum += sums[n*g+1]
		}
		if k.affine {
			scale := tile[g*k.group/block*height*actBytes+height*block+4*r:]
			sum = int32(math.Float32bits(math.Float32frombits(le.Uint32(scale)) * float32(sum)))
		} else {
			sum *= -int32(k.zero)
		}
		aux[g*height+r] = sum
	}
}
