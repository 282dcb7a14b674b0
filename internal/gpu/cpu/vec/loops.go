// SPDX-License-Identifier: MIT OR Apache-2.0

package vec

// Add computes dst += x.
func (l Level) Add(dst, x []float32) {
	if l != Go {
		l.add(dst, x)
		return
	}
	for i, v := range x {
		dst[i] += v
	}
}

// Scale computes dst = x*s.
func (l Level) Scale(dst, x []float32, s float32) {
	if l != Go {
		l.scale(dst, x, s)
		return
	}
	for i, v := range x {
		dst[i] = v * s
	}
}

// ScaleMul computes dst = (x*s)*(w + b): a norm's last step, with b 0 or 1.
func (l Level) ScaleMul(dst, x, w []float32, s, b float32) {
	if l != Go {
		l.scaleMul(dst, x, w, s, b)
		return
	}
	for i, v := range x {
		dst[i] = float32(v*s) * (w[i] + b)
	}
}

// SumSq is the sum of x². Go sums in float64, the others in lanes of float32.
func (l Level) SumSq(x []float32) float32 {
	if l != Go {
		return l.sumSq(x)
	}
	s := 0.0
	for _, v := range x {
		s += float64(v) * float64(v)
	}
	return float32(s)
}
