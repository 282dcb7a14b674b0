// SPDX-License-Identifier: MIT OR Apache-2.0

package recur

import (
	"math"

	"github.com/metrale/metrale/internal/gpu/cpu/vec"
)

// Scan is the state space recurrence of Mamba-2.
type Scan struct {
	Level             vec.Level
	Heads, Groups     int // Heads a multiple of Groups; head h reads B and C of group h/(Heads/Groups)
	HeadDim, StateDim int
	XBC               []float32 // [rows, Heads*HeadDim + 2*Groups*StateDim]: x, B and C
	DT                []float32 // [rows, Heads]: time steps before bias and softplus
	ALog, Bias, D     []float32 // [Heads]
	Y                 []float32 // [rows, Heads*HeadDim]
}

// Head runs head h over rows [row, end) of one sequence:
//
//	dt = softplus(dt + bias);  S = exp(-exp(a_log)*dt)*S + B (dt*x)ᵀ;  y = Sᵀ C + D*x
//
// with state S [StateDim, HeadDim].
func (c *Scan) Head(state []float32, h, row, end int) {
	inner, group := c.Heads*c.HeadDim, h/(c.Heads/c.Groups)
	width := inner + 2*c.Groups*c.StateDim
	a := -float32(math.Exp(float64(c.ALog[h])))
	var step, decay [1]float32
	for t := row; t < end; t++ {
		all := c.XBC[t*width : (t+1)*width]
		x := all[h*c.HeadDim:][:c.HeadDim]
		b := all[inner+group*c.StateDim:][:c.StateDim]
		cc := all[inner+(c.Groups+group)*c.StateDim:][:c.StateDim]
		step[0] = c.DT[t*c.Heads+h] + c.Bias[h]
		c.Level.Apply(vec.Softplus, step[:], step[:])
		decay[0] = float32(math.Exp(float64(a * step[0])))
		y := c.Y[t*inner+h*c.HeadDim:][:c.HeadDim]
		c.Level.Scan(state, c.HeadDim, y, cc, b, x, decay[:], step[0])
		for i, v := range x {
			y[i] += float32(c.D[h] * v)
		}
	}
}
