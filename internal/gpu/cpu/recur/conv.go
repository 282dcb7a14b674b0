// SPDX-License-Identifier: MIT OR Apache-2.0

package recur

import "github.com/metrale/metrale/internal/gpu/cpu/vec"

// Conv is a depthwise causal convolution of one sequence's rows.
type Conv struct {
	Level vec.Level
	Act   vec.Act   // applied to the output
	C, K  int       // channels, taps
	W     []float32 // [C, K], the last tap meets the current row
	Bias  []float32 // [C], nil: none
	X, Y  []float32 // [rows, C]
}

// Scratch is one worker's memory.
type Scratch struct{ taps, decay []float32 }

// Channels computes channels [lo, hi) of rows [row, end) of one sequence with its state [K-1, C], and moves their state on.
func (c *Conv) Channels(w *Scratch, state []float32, row, end, lo, hi int) {
	n, keep := hi-lo, c.K-1
	if len(w.taps) < c.K*n {
		w.taps = make([]float32, c.K*n)
	}
	taps := w.taps[:c.K*n]
	transpose(taps, c.W[lo*c.K:hi*c.K], c.K)

	// input is row t of the channels; those before row are the state.
	input := func(t int) []float32 {
		if t < row {
			at := (t - row + keep) * c.C
			return state[at+lo : at+hi]
		}
		return c.X[t*c.C+lo : t*c.C+hi]
	}
	for t := row; t < end; t++ {
		y := c.Y[t*c.C+lo : t*c.C+hi]
		c.Level.Mul(y, taps[:n], input(t-keep))
		for j := 1; j < c.K; j++ {
			c.Level.MulAdd(y, taps[j*n:(j+1)*n], input(t-keep+j))
		}
		if c.Bias != nil {
			c.Level.Add(y, c.Bias[lo:hi])
		}
		c.Level.Apply(c.Act, y, y)
	}
	for j := range keep { // rising: what is read lies behind what is written
		copy(state[j*c.C+lo:j*c.C+hi], input(end-keep+j))
	}
}

// transpose writes src [n][k] as dst [k][n].
func transpose(dst, src []float32, k int) {
	n := len(src) / k
	for j := range k {
		row := dst[j*n : (j+1)*n]
		for i := range row {
			row[i] = src[i*k+j]
		}
	}
}
