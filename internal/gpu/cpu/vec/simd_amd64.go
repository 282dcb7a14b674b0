// SPDX-License-Identifier: MIT OR Apache-2.0

package vec

import (
	"math"

	"golang.org/x/sys/cpu"
)

// Best is the highest path of this processor.
func Best() Level {
	x := &cpu.X86
	switch {
	case !(x.HasAVX2 && x.HasFMA):
		return Go
	case x.HasAVX512F && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL:
		return AVX512
	}
	return AVX2
}

// op is an operation of elementwise. Those from opExp on need the constants of exp.
type op int

const (
	opAdd      op = iota // dst += x
	opScale              // dst = x*s
	opScaleMul           // dst = x*s*(y+b)
	opMul                // dst = x*y
	opMulAdd             // dst += x*y
	opExp                // dst = exp(x)
	opSigmoid            // dst = sigmoid(x)*y; without y: 1
	opSilu               // dst = silu(x)*y
	opGelu               // dst = gelu_tanh(x)*y
)

// n is a multiple of 16, at least 16. y may be nil where an operation does without.
//
//go:noescape
func elementwiseAVX512(op op, dst, x, y *float32, n int, s, b float32)

//go:noescape
func elementwiseAVX2(op op, dst, x, y *float32, n int, s, b float32)

//go:noescape
func rotateAVX512(a, b, cos, sin *float32, n int)

//go:noescape
func rotateAVX2(a, b, cos, sin *float32, n int)

//go:noescape
func widenBF16AVX512(dst *float32, x *uint16, n int)

//go:noescape
func widenBF16AVX2(dst *float32, x *uint16, n int)

//go:noescape
func widenF16AVX512(dst *float32, x *uint16, n int)

//go:noescape
func widenF16AVX2(dst *float32, x *uint16, n int)

//go:noescape
func narrowF16AVX512(dst *uint16, x *float32, n int)

//go:noescape
func narrowF16AVX2(dst *uint16, x *float32, n int)

// The assembly reads these by name: the constants of exp and gelu, eight of each, in the order of its C_…; ones for a missing y.
//
//lint:file-ignore U1000 read by assembly
var (
	consts = eights(expMin, expMax, log2e, ln2hi, ln2lo, expC4, expC3, expC2, expC1, expC0, 1, math.Float32frombits(127), gelu1, gelu3)
	ones   = [16]float32{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}
)

func eights(v ...float32) (c [14][8]float32) {
	for i, x := range v {
		for j := range c[i] {
			c[i][j] = x
		}
	}
	return c
}

// vector is the elements that assembly takes at least.
const vector = 16

// run runs an operation over whole vectors, then over a padded copy of what is left.
func (l Level) run(op op, dst, x, y []float32, s, b float32) {
	dst = dst[:len(x)]
	n := len(x) &^ (vector - 1)
	if n > 0 {
		var py *float32
		if y != nil {
			y = y[:len(x)]
			py = &y[0]
		}
		l.call(op, &dst[0], &x[0], py, n, s, b)
	}
	if n == len(x) {
		return
	}
	var td, tx, ty [vector]float32
	copy(td[:], dst[n:])
	copy(tx[:], x[n:])
	var py *float32
	if y != nil {
		copy(ty[:], y[n:])
		py = &ty[0]
	}
	l.call(op, &td[0], &tx[0], py, vector, s, b)
	copy(dst[n:], td[:])
}

func (l Level) call(op op, dst, x, y *float32, n int, s, b float32) {
	if l == AVX512 {
		elementwiseAVX512(op, dst, x, y, n, s, b)
	} else {
		elementwiseAVX2(op, dst, x, y, n, s, b)
	}
}

func (l Level) add(dst, x []float32)              { l.run(opAdd, dst, x, nil, 0, 0) }
func (l Level) scale(dst, x []float32, s float32) { l.run(opScale, dst, x, nil, s, 0) }
func (l Level) scaleMul(dst, x, w []float32, s, b float32) {
	l.run(opScaleMul, dst, x, w, s, b)
}
func (l Level) mul(dst, x, y []float32)    { l.run(opMul, dst, x, y, 0, 0) }
func (l Level) mulAdd(dst, x, y []float32) { l.run(opMulAdd, dst, x, y, 0, 0) }
func (l Level) exp(dst, x []float32)       { l.run(opExp, dst, x, nil, 0, 0) }

func (l Level) apply(a Act, dst, x []float32) {
	if a == None {
		copy(dst, x)
		return
	}
	l.run(opSigmoid+op(a-Sigmoid), dst, x, nil, 0, 0)
}

func (l Level) glu(a Act, dst, g, u []float32) {
	if a == None {
		l.mul(dst, g, u)
		return
	}
	l.run(opSigmoid+op(a-Sigmoid), dst, g, u, 0, 0)
}

func (l Level) rotate(a, b, cos, sin []float32) {
	a, b, sin = a[:len(cos)], b[:len(cos)], sin[:len(cos)]
	n := len(cos) &^ (vector - 1)
	if n > 0 {
		l.rotate16(&a[0], &b[0], &cos[0], &sin[0], n)
	}
	if n == len(cos) {
		return
	}
	var t [4][vector]float32
	for i, v := range [][]float32{a, b, cos, sin} {
		copy(t[i][:], v[n:])
	}
	l.rotate16(&t[0][0], &t[1][0], &t[2][0], &t[3][0], vector)
	copy(a[n:], t[0][:])
	copy(b[n:], t[1][:])
}

func (l Level) rotate16(a, b, cos, sin *float32, n int) {
	if l == AVX512 {
		rotateAVX512(a, b, cos, sin, n)
	} else {
		rotateAVX2(a, b, cos, sin, n)
	}
}

func (l Level) fromBF16(dst []float32, x []uint16) {
	dst = dst[:len(x)]
	n := len(x) &^ (vector - 1)
	switch {
	case n == 0:
	case l == AVX512:
		widenBF16AVX512(&dst[0], &x[0], n)
	default:
		widenBF16AVX2(&dst[0], &x[0], n)
	}
	Go.FromBF16(dst[n:], x[n:])
}

func (l Level) fromF16(dst []float32, x []uint16) {
	dst = dst[:len(x)]
	n := len(x) &^ (vector - 1)
	switch {
	case n == 0:
	case l == AVX512:
		widenF16AVX512(&dst[0], &x[0], n)
	default:
		widenF16AVX2(&dst[0], &x[0], n)
	}
	Go.FromF16(dst[n:], x[n:])
}

func (l Level) toF16(dst []uint16, x []float32) {
	dst = dst[:len(x)]
	n := len(x) &^ (vector - 1)
	switch {
	case n == 0:
	case l == AVX512:
		narrowF16AVX512(&dst[0], &x[0], n)
	default:
		narrowF16AVX2(&dst[0], &x[0], n)
	}
	Go.ToF16(dst[n:], x[n:])
}
