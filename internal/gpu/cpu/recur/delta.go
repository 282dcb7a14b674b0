// SPDX-License-Identifier: MIT OR Apache-2.0

package recur

import (
	"math"

	"github.com/metrale/metrale/internal/gpu/cpu/vec"
)

// Delta is the gated delta rule.
type Delta struct {
	Level          vec.Level
	KHeads, VHeads int // VHeads a multiple of KHeads; value head h reads key head h/(VHeads/KHeads)
	KDim, VDim     int
	Q, K           []float32 // [rows, KHeads*KDim], normalised and scaled
	V, Y           []float32 // [rows, VHeads*VDim]
	Beta           []float32 // [rows, VHeads]: how much is written
	G              []float32 // [rows, VHeads*GDim]: log of the decay
	GDim           int       // 1: one decay for a head; KDim: one for each of its key dims
}

// columns is how many columns of a state run through the rows together: with 128 rows they fit the first cache.
const columns = 64

// Head runs value head h over rows [row, end) of one sequence:
//
//	S *= exp(g);  d = beta*(v - Sᵀk);  S += k dᵀ;  y = Sᵀq
//
// with state S [KDim, VDim].
func (c *Delta) Head(w *Scratch, state []float32, h, row, end int) {
	kh := h / (c.VHeads / c.KHeads)
	if len(w.decay) < c.GDim {
		w.decay = make([]float32, c.GDim)
	}
	decay := w.decay[:c.GDim]
	for col := 0; col < c.VDim; col += columns {
		n := min(columns, c.VDim-col)
		for t := row; t < end; t++ {
			q := c.Q[(t*c.KHeads+kh)*c.KDim:][:c.KDim]
			k := c.K[(t*c.KHeads+kh)*c.KDim:][:c.KDim]
			at := (t*c.VHeads+h)*c.VDim + col
			for i, g := range c.G[(t*c.VHeads+h)*c.GDim:][:c.GDim] {
				decay[i] = float32(math.Exp(float64(g)))
			}
			c.Level.Delta(state[col:], c.VDim, c.Y[at:at+n], q, k, c.V[at:at+n], decay, c.Beta[t*c.VHeads+h])
		}
	}
}
