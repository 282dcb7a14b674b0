// SPDX-License-Identifier: MIT OR Apache-2.0

package attn

import (
	"math"

	"github.com/metrale/metrale/internal/gpu/cpu/vec"
)

// sums are the states of online softmaxes over some keys: for each query vector
//
//	top  the largest score      sum  Σ exp(score-top), by key mod 16      o  Σ exp(score-top) v   [v_dim]
//
// top is -Inf where no key was seen, and then the rest has no meaning but for being zero after reset.
type sums struct {
	top []float32
	sum [][vec.KeyBlock]float32
	o   []float32
}

func (s *sums) grow(n, dim int) {
	grow(&s.top, n)
	grow(&s.sum, n)
	grow(&s.o, n*dim)
}

func (s *sums) reset(n, dim int) {
	for r := range n {
		s.top[r] = float32(math.Inf(-1))
	}
	clear(s.sum[:n])
	clear(s.o[:n*dim])
}

// merge adds n states of other, from its state j on, to those of s from i on. A query that saw nothing in one of them keeps
// the other's bits, so it does not matter whether the segment was looked at.
func (c *Call) merge(s *sums, i int, other *sums, j, n int) {
	for r := range n {
		c.merge1(s, i+r, other, j+r)
	}
}

func (c *Call) merge1(s *sums, i int, other *sums, j int) {
	o, add := s.o[i*c.VDim:(i+1)*c.VDim], other.o[j*c.VDim:(j+1)*c.VDim]
	switch old, more := s.top[i], other.top[j]; {
	case math.IsInf(float64(more), -1):
	case math.IsInf(float64(old), -1):
		s.top[i], s.sum[i] = more, other.sum[j]
		copy(o, add)
	default:
		top := max(old, more)
		f := [2]float32{old - top, more - top}
		c.Level.Exp(f[:], f[:])
		s.top[i] = top
		a, b := s.sum[i][:], other.sum[j][:]
		c.Level.Scale(a, a, f[0])
		c.Level.Scale(b, b, f[1])
		c.Level.Add(a, b)
		c.Level.Scale(o, o, f[0])
		c.Level.Scale(add, add, f[1])
		c.Level.Add(o, add)
	}
}

// finish writes the tile's rows of y from its states, which begin at i.
func (c *Call) finish(t *tile, head int, s *sums, i int) {
	for r := range t.rows() * c.group() {
		var l float32
		for _, x := range s.sum[i+r] {
			l += x
		}
		v := c.vector(t, head, r)
		if c.Sinks != nil {
			l += float32(math.Exp(float64(c.Sinks[v%c.Heads] - s.top[i+r])))
		}
		at := v * c.VDim
		c.Level.Scale(c.Y[at:at+c.VDim], s.o[(i+r)*c.VDim:(i+r+1)*c.VDim], 1/l)
	}
}

// Scratch is one worker's memory.
type Scratch struct {
	q           [][]float32 // query vectors of the tile
	s           []float32   // [query][stride] scores, then weights
	alpha       []float32   // [query] factor of the sums so far
	sums, total sums        // of a segment, of the tile
	k, v        []float32   // converted blocks of a chunk
	kb, vb      [][]float32 // the chunk's blocks
	entry       []float32   // a converted entry
}

// Grow makes the scratch large enough for calls with that configuration.
func (w *Scratch) Grow(c *Config) {
	n := (c.tileRows()*c.group() + 3) &^ 3
	grow(&w.q, n)
	grow(&w.s, n*stride)
	grow(&w.alpha, n)
	w.sums.grow(n, c.VDim)
	w.total.grow(n, c.VDim)
	grow(&w.k, chunk*c.HeadDim)
	grow(&w.v, chunk*c.VDim)
	grow(&w.entry, c.HeadDim)
	grow(&w.kb, chunk/Block)
	grow(&w.vb, chunk/Block)
}

func grow[T any](s *[]T, n int) {
	if len(*s) < n {
		*s = make([]T, n)
	}
}
