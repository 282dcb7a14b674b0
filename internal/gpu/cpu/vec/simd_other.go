// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build !amd64

package vec

// Best is the highest path of this processor.
func Best() Level { return Go }

func (Level) glu(a Act, dst, g, u []float32)             { gluGo(a, dst, g, u) }
func (Level) apply(a Act, dst, x []float32)              { applyGo(a, dst, x) }
func (Level) exp(dst, x []float32)                       { Go.Exp(dst, x) }
func (Level) add(dst, x []float32)                       { Go.Add(dst, x) }
func (Level) scale(dst, x []float32, s float32)          { Go.Scale(dst, x, s) }
func (Level) scaleMul(dst, x, w []float32, s, b float32) { Go.ScaleMul(dst, x, w, s, b) }
func (Level) fromBF16(dst []float32, x []uint16)         { Go.FromBF16(dst, x) }
func (Level) fromF16(dst []float32, x []uint16)          { Go.FromF16(dst, x) }
func (Level) rotate(a, b, cos, sin []float32)            { Go.Rotate(a, b, cos, sin) }
func (Level) mul(dst, x, y []float32)                    { Go.Mul(dst, x, y) }
func (Level) mulAdd(dst, x, y []float32)                 { Go.MulAdd(dst, x, y) }

func (Level) scores(s []float32, stride int, q, k [][]float32) { Go.Scores(s, stride, q, k) }
func (Level) weigh(s []float32, scale, top float32, sum *[KeyBlock]float32) (newTop, alpha float32) {
	return Go.Weigh(s, scale, top, sum)
}
func (Level) weighted(o []float32, dim int, p []float32, stride int, alpha []float32, v [][]float32, keys int) {
	Go.Weighted(o, dim, p, stride, alpha, v, keys)
}

func (Level) delta(s []float32, stride int, y, q, k, v, decay []float32, beta float32, read bool) {
	Go.linearStep(s, stride, y, q, k, v, decay, beta, read)
}

func (Level) toF16(dst []uint16, x []float32) { Go.ToF16(dst, x) }
