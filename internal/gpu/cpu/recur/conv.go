// SPDX-License-Identifier: MIT OR Apache-2.0

package recur

import "github.com/metrale/metrale/internal/gpu/cpu/vec"

// Conv is a depthwise causal convolution of one sequence's rows.
type Conv struct {
	Level vec.Level
	Act   vec.Act   // applied to the output
	C, K  int       // channels, taps
	W     []float32 // [C, K], the last tap meets the current row
	X, Y  []float32 // [rows, C]
}

// Scratch is one worker's memory for Channels.
type Scratch struct{ buf []float32 }

// Channels computes channels [lo, hi) of rows [row, end) of one sequence from those channels' state [hi-lo, K-1], and moves
// the state on.
func (c *Conv) Channels(w *Scratch, state []float32, row, end, lo, hi int) {
	n, keep := hi-lo, c.K-1
	if need := (2*c.K - 1) * n; len(w.buf) < need {
		w.buf = make([]float32, need)
	}
	taps, past := w.buf[:c.K*n], w.buf[c.K*n:(2*c.K-1)*n]
	transpose(taps, c.W[lo*c.K:hi*c.K], c.K)
	transpose(past, state, keep)

	// input is row t of the sequence's channels; those before row come from the state.
	input := func(t int) []float32 {
		if t < row {
			at := (t - row + keep) * n
			return past[at : at+n]
		}
		return c.X[t*c.C+lo : t*c.C+hi]
	}
	for t := row; t < end; t++ {
		y := c.Y[t*c.C+lo : t*c.C+hi]
		c.Level.Mul(y, taps[:n], input(t-keep))
		for j := 1; j < c.K; j++ {
			c.Level.MulAdd(y, taps[j*n:(j+1)*n], input(t-keep+j))
		}
		c.Level.Apply(c.Act, y, y)
	}
	for j := range keep {
		for i, v := range input(end - keep + j) {
			state[i*keep+j] = v
		}
	}
}

// transpose writes src [n][k] as dst [k][n].
func transpose(dst, src []float32, k int) {
	n := len(dst) / max(k, 1)
	for i := range n {
		for j := range k {
			dst[j*n+i] = src[i*k+j]
		}
	}
}
