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

// Head runs value head h over rows [row, end) of one sequence:
//
//	S *= exp(g);  d = beta*(v - Sᵀk);  S += k dᵀ;  y = Sᵀq
//
// with state S [KDim, VDim].
func (c *Delta) Head(state []float32, h, row, end int) {
	kh := h / (c.VHeads / c.KHeads)
	for t := row; t < end; t++ {
		q := c.Q[(t*c.KHeads+kh)*c.KDim:][:c.KDim]
		k := c.K[(t*c.KHeads+kh)*c.KDim:][:c.KDim]
		at := (t*c.VHeads + h) * c.VDim
		decay := float32(math.Exp(float64(c.G[t*c.VHeads+h])))
		step(c.Level, state, c.Y[at:at+c.VDim], q, k, c.V[at:at+c.VDim], decay, c.Beta[t*c.VHeads+h])
	}
}

// stepGo is one token of one head.
func stepGo(s, y, q, k, v []float32, decay, beta float32) {
	n := len(v)
	clear(y)
	for i, x := range k {
		for j, e := range s[i*n : (i+1)*n] {
			e *= decay
			s[i*n+j] = e
			y[j] += float32(e * x)
		}
	}
	// y holds Sᵀk; each column needs only its own delta from here.
	for j := range y {
		d := beta * (v[j] - y[j])
		var o float32
		for i, x := range k {
			e := s[i*n+j] + float32(x*d)
			s[i*n+j] = e
			o += float32(e * q[i])
		}
		y[j] = o
	}
}
