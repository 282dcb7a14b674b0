// SPDX-License-Identifier: MIT OR Apache-2.0

package attn

import "math"

// The three inner steps in plain Go; they define the numbers of path "go".

// scores fills s with q·k of the chunk's blocks [b0, b1), unscaled.
func (c *Call) scores(t tile, head, b0, b1 int, w *Scratch) {
	n := (t.hi - t.lo) * (c.Heads / c.KVHeads)
	for r := range n {
		q := c.query(t, head, r)
		for b := b0; b < b1; b++ {
			s := w.s[r*chunk+b*Block:][:Block]
			clear(s)
			for d, x := range q {
				k := w.kb[b][d*Block:][:Block]
				for j := range s {
					s[j] += float32(x * k[j])
				}
			}
		}
	}
}

// weigh turns query r's scores into weights exp(score - maximum), 0 where it sees nothing, and moves its maximum and sum.
func (c *Call) weigh(r, b0, b1 int, w *Scratch) {
	s := w.s[r*chunk+b0*Block : r*chunk+b1*Block]
	lo, hi := w.lo[r]-b0*Block, w.hi[r]-b0*Block
	lo, hi = max(lo, 0), max(hi, 0)
	w.alpha[r] = 1
	if hi <= lo {
		clear(s)
		return
	}
	clear(s[:lo])
	clear(s[hi:])
	top := w.top[r]
	for i, x := range s[lo:hi] {
		x *= c.Scale
		if c.Softcap > 0 {
			x = c.Softcap * float32(math.Tanh(float64(x/c.Softcap)))
		}
		s[lo+i] = x
		top = max(top, x)
	}
	for i, x := range s[lo:hi] {
		s[lo+i] = x - top
	}
	c.Level.Exp(s[lo:hi], s[lo:hi])
	alpha := [1]float32{w.top[r] - top}
	c.Level.Exp(alpha[:], alpha[:])
	w.alpha[r], w.top[r] = alpha[0], top
	sum := w.sum[r*Block : (r+1)*Block]
	for j := range sum {
		sum[j] *= alpha[0]
	}
	for i, x := range s {
		sum[i%Block] += x
	}
}

// accumulate adds the chunk's weighted values: o = o*alpha + Σ s v.
func (c *Call) accumulate(n, b0, b1 int, w *Scratch) {
	for r := range n {
		o := w.o[r*c.VDim : (r+1)*c.VDim]
		for i := range o {
			o[i] *= w.alpha[r]
		}
		for j := max(w.lo[r], b0*Block); j < min(w.hi[r], b1*Block); j++ {
			p := w.s[r*chunk+j]
			v := w.vb[j/Block][j%Block*c.VDim:][:c.VDim]
			for i := range o {
				o[i] += float32(p * v[i])
			}
		}
	}
}
