// SPDX-License-Identifier: MIT OR Apache-2.0

package recur

import "github.com/metrale/metrale/internal/gpu/cpu/vec"

// Compress pools windows of Ratio tokens into one vector each: channel by channel, the mean of kv weighted by the softmax of
// gate + Ape over the window's tokens. With two series, [first | second] in kv and gate, windows overlap: a window's vector
// pools the first series of the window before it (if there is one) and the second of its own.
//
//	tokens    0 1 2 3 | 4 5 6 7 | 8 …        Ratio 4
//	vectors         0         1              a window's, where its last token is
//	  first           ├───────┤              series that vector 1 pools
//	  second  (0 1 2 3 first)   (4 5 6 7 second)
type Compress struct {
	Level    vec.Level
	N        int // channels of a vector
	Ratio    int
	Series   int       // 1 or 2
	KV, Gate []float32 // [rows, Series*N]
	Ape      []float32 // [Ratio, Series*N]
	Y        []float32 // [rows, N]: a window's vector in the row of its last token, 0 in others
}

// Sums is how many running softmaxes a sequence's state holds, 3*N values each: the window's of each series, and of the first
// of two series the window's before.
func (c *Compress) Sums() int { return 2*c.Series - 1 }

// softsum is a running softmax of channels: the largest gate, Σ exp(gate-top), Σ exp(gate-top)*kv.
type softsum struct{ top, sum, value []float32 }

// CompressScratch is one worker's memory: for as many channels as a task has.
type CompressScratch struct{ gate, old, add []float32 }

func (w *CompressScratch) grow(n int) {
	if len(w.gate) < n {
		w.gate, w.old, w.add = make([]float32, n), make([]float32, n), make([]float32, n)
	}
}

// softsum is sum i of a state [Sums, 3, N], its channels [lo, hi).
func (c *Compress) softsum(state []float32, i, lo, hi int) softsum {
	part := func(j int) []float32 { return state[(3*i+j)*c.N+lo : (3*i+j)*c.N+hi] }
	return softsum{part(0), part(1), part(2)}
}

// Channels runs channels [lo, hi) over rows [row, end) of one sequence, the first of which is at position pos.
func (c *Compress) Channels(w *CompressScratch, state []float32, row, end, pos, lo, hi int) {
	w.grow(hi - lo)
	own := c.softsum(state, c.Series-1, lo, hi)
	for t := row; t < end; t++ {
		j := pos % c.Ratio
		if c.Series == 2 {
			first, before := c.softsum(state, 0, lo, hi), c.softsum(state, 2, lo, hi)
			if j == 0 {
				copy(before.top, first.top)
				copy(before.sum, first.sum)
				copy(before.value, first.value)
			}
			c.add(w, first, t, j, lo, hi)
		}
		c.add(w, own, t, j, (c.Series-1)*c.N+lo, (c.Series-1)*c.N+hi)
		y := c.Y[t*c.N+lo : t*c.N+hi]
		switch {
		case j < c.Ratio-1:
			clear(y)
		case c.Series == 2 && pos >= c.Ratio:
			c.merge(w, y, c.softsum(state, 2, lo, hi), own)
		default:
			for i, s := range own.sum {
				y[i] = own.value[i] / s
			}
		}
		pos++
	}
}

// add takes columns [lo, hi) of row t, the j-th of its window.
func (c *Compress) add(w *CompressScratch, s softsum, t, j, lo, hi int) {
	n, width := hi-lo, c.Series*c.N
	gate, old, add := w.gate[:n], w.old[:n], w.add[:n]
	copy(gate, c.Gate[t*width+lo:t*width+hi])
	c.Level.Add(gate, c.Ape[j*width+lo:j*width+hi])
	kv := c.KV[t*width+lo : t*width+hi]
	if j == 0 {
		copy(s.top, gate)
		copy(s.value, kv)
		for i := range s.sum {
			s.sum[i] = 1
		}
		return
	}
	for i, g := range gate {
		top := max(s.top[i], g)
		old[i], add[i] = s.top[i]-top, g-top
		s.top[i] = top
	}
	c.Level.Exp(old, old)
	c.Level.Exp(add, add)
	c.Level.Mul(s.sum, s.sum, old)
	c.Level.Add(s.sum, add)
	c.Level.Mul(s.value, s.value, old)
	c.Level.MulAdd(s.value, add, kv)
}

// merge writes what two sums give together.
func (c *Compress) merge(w *CompressScratch, y []float32, a, b softsum) {
	fa, fb := w.old[:len(y)], w.add[:len(y)]
	for i := range y {
		top := max(a.top[i], b.top[i])
		fa[i], fb[i] = a.top[i]-top, b.top[i]-top
	}
	c.Level.Exp(fa, fa)
	c.Level.Exp(fb, fb)
	for i := range y {
		y[i] = (float32(a.value[i]*fa[i]) + float32(b.value[i]*fb[i])) / (float32(a.sum[i]*fa[i]) + float32(b.sum[i]*fb[i]))
	}
}
