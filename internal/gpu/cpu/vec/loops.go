// SPDX-License-Identifier: MIT OR Apache-2.0

package vec

import "github.com/metrale/metrale/internal/tensor"

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

// FromBF16 widens bfloat16.
func (l Level) FromBF16(dst []float32, x []uint16) {
	if l != Go {
		l.fromBF16(dst, x)
		return
	}
	for i, v := range x {
		dst[i] = tensor.FromBF16(v)
	}
}

// FromF16 widens IEEE half precision.
func (l Level) FromF16(dst []float32, x []uint16) {
	if l != Go {
		l.fromF16(dst, x)
		return
	}
	for i, v := range x {
		dst[i] = tensor.FromF16(v)
	}
}

// Rotate turns the pairs (a[i], b[i]): a, b = a*cos - b*sin, b*cos + a*sin, each product rounded.
func (l Level) Rotate(a, b, cos, sin []float32) {
	if l != Go {
		l.rotate(a, b, cos, sin)
		return
	}
	for i, c := range cos {
		x, y, s := a[i], b[i], sin[i]
		a[i] = float32(x*c) - float32(y*s)
		b[i] = float32(y*c) + float32(x*s)
	}
}

// Mul computes dst = x*y.
func (l Level) Mul(dst, x, y []float32) {
	if l != Go {
		l.mul(dst, x, y)
		return
	}
	for i, v := range x {
		dst[i] = v * y[i]
	}
}

// MulAdd computes dst += x*y.
func (l Level) MulAdd(dst, x, y []float32) {
	if l != Go {
		l.mulAdd(dst, x, y)
		return
	}
	for i, v := range x {
		dst[i] += float32(v * y[i])
	}
}

// ToF16 rounds to IEEE half precision, to nearest even.
func (l Level) ToF16(dst []uint16, x []float32) {
	if l != Go {
		l.toF16(dst, x)
		return
	}
	for i, v := range x {
		dst[i] = tensor.ToF16(v)
	}
}

// ToBF16 rounds to bfloat16, to nearest even.
func (Level) ToBF16(dst []uint16, x []float32) {
	for i, v := range x {
		dst[i] = tensor.ToBF16(v)
	}
}
