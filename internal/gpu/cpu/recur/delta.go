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
	G, Beta        []float32 // [rows, VHeads]: log of the decay; how much is written
}

// columns is how many columns of a state run through the rows together: with 128 rows they fit the first cache.
const columns = 64

// Head runs value head h over rows [row, end) of one sequence:
//
//	S *= exp(g);  d = beta*(v - Sᵀk);  S += k dᵀ;  y = Sᵀq
//
// with state S [KDim, VDim].
func (c *Delta) Head(state []float32, h, row, end int) {
	kh := h / (c.VHeads / c.KHeads)
	for col := 0; col < c.VDim; col += columns {
		n := min(columns, c.VDim-col)
		for t := row; t < end; t++ {
			q := c.Q[(t*c.KHeads+kh)*c.KDim:][:c.KDim]
			k := c.K[(t*c.KHeads+kh)*c.KDim:][:c.KDim]
			at := (t*c.VHeads+h)*c.VDim + col
			decay := float32(math.Exp(float64(c.G[t*c.VHeads+h])))
			c.Level.Delta(state[col:], c.VDim, c.Y[at:at+n], q, k, c.V[at:at+n], decay, c.Beta[t*c.VHeads+h])
		}
	}
}
