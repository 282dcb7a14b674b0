// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"math"
	"slices"

	"github.com/metrale/metrale/internal/gpu/cpu/vec"
	"github.com/metrale/metrale/internal/plan"
)

// rms are what the RMS norms share. A segment is group consecutive elements.
type rms struct {
	level vec.Level
	group int
	eps   float32
	w     []float32 // [span*group], nil: no weight
	span  int       // groups that w goes over
	plus  float32   // added to w
	scale float32   // of the result
}

func (a *args) rms(n int) rms {
	k := rms{level: a.dev.level, eps: float32(a.float("eps")), group: a.size("group", n), scale: 1}
	k.span = a.size("span", 1)
	a.divides("x", n, k.group*k.span)
	k.w = a.optFloats("w", k.group*k.span)
	if a.flag("plus_one") {
		k.plus = 1
	}
	return k
}

// sumSquares is exact to float64: its error would scale a whole segment, and norms of small segments pass it on many times
// enlarged (a delta net's output, where q, k and o are normed in a row).
func sumSquares(x []float32) float64 {
	var s [4]float64
	for len(x) >= 4 {
		a, b, c, d := float64(x[0]), float64(x[1]), float64(x[2]), float64(x[3])
		s[0], s[1], s[2], s[3] = s[0]+float64(a*a), s[1]+float64(b*b), s[2]+float64(c*c), s[3]+float64(d*d)
		x = x[4:]
	}
	for _, v := range x {
		s[0] += float64(float64(v) * float64(v))
	}
	return (s[0] + s[1]) + (s[2] + s[3])
}

// segment computes y = x*rsqrt(mean(x²)+eps)*(w+plus)*scale for segment i.
func (k *rms) segment(y, x []float32, i int) {
	s := float32(1/math.Sqrt(sumSquares(x)/float64(len(x))+float64(k.eps))) * k.scale
	if k.w == nil {
		k.level.Scale(y, x, s)
	} else {
		at := i % k.span * k.group
		k.level.ScaleMul(y, x, k.w[at:at+k.group], s, k.plus)
	}
}

// segments runs over the segments [lo, hi) of contiguous rows.
func (k *rms) segments(y, x []float32, lo, hi int) {
	for i := lo; i < hi; i++ {
		at := i * k.group
		k.segment(y[at:at+k.group], x[at:at+k.group], i)
	}
}

func rmsNorm(a *args) func() {
	x := a.acts("x", plan.In, 0)
	y := a.actsLike(x, "y", plan.Out, x.n)
	k := a.rms(x.n)
	k.scale = float32(a.float("scale", 1))
	r := a.dev.region(k.group, func(lo, hi, _ int) { k.segments(y.data, x.data, lo, hi) })
	per := x.n / k.group
	return func() { r.run(x.rows() * per) }
}

func addRMSNorm(a *args) func() {
	x := a.acts("x", plan.InOut, 0)
	d := a.actsLike(x, "d", plan.In, x.n)
	y := a.actsLike(x, "y", plan.Out, x.n)
	k := a.rms(x.n)
	r := a.dev.region(k.group, func(lo, hi, _ int) {
		k.level.Add(x.data[lo*k.group:hi*k.group], d.data[lo*k.group:hi*k.group])
		k.segments(y.data, x.data, lo, hi)
	})
	per := x.n / k.group
	return func() { r.run(x.rows() * per) }
}

// layerNorm takes the mean away too. Sums are those of sumSquares.
func layerNorm(a *args) func() {
	x := a.acts("x", plan.In, 0)
	y := a.actsLike(x, "y", plan.Out, x.n)
	group, eps := a.size("group", x.n), float32(a.float("eps"))
	w, bias := a.optFloats("w", group), a.optFloats("bias", group)
	per := a.divides("x", x.n, group)
	level := a.dev.level
	r := a.dev.region(group, func(lo, hi, _ int) {
		for at := lo * group; at < hi*group; at += group {
			seg := y.data[at : at+group]
			mean := 0.0
			for _, v := range x.data[at : at+group] {
				mean += float64(v)
			}
			mean /= float64(group)
			for i, v := range x.data[at : at+group] {
				seg[i] = float32(float64(v) - mean)
			}
			s := float32(1 / math.Sqrt(sumSquares(seg)/float64(group)+float64(eps)))
			if w == nil {
				level.Scale(seg, seg, s)
			} else {
				level.ScaleMul(seg, seg, w, s, 0)
			}
			if bias != nil {
				level.Add(seg, bias)
			}
		}
	})
	return func() { r.run(x.rows() * per) }
}

func l2Norm(a *args) func() {
	x := a.acts("x", plan.In, 0)
	y := a.actsLike(x, "y", plan.Out, x.n)
	group, eps, scale := a.size("group", x.n), float32(a.float("eps")), float32(a.float("scale", 1))
	per := a.divides("x", x.n, group)
	level := a.dev.level
	r := a.dev.region(group, func(lo, hi, _ int) {
		for at := lo * group; at < hi*group; at += group {
			seg := x.data[at : at+group]
			s := float32(1 / math.Sqrt(sumSquares(seg)+float64(eps)))
			level.Scale(y.data[at:at+group], seg, s*scale)
		}
	})
	return func() { r.run(x.rows() * per) }
}

func gatedNorm(a *args) func() {
	x := a.acts("x", plan.In, 0)
	z := a.actsLike(x, "z", plan.In, x.n)
	y := a.actsLike(x, "y", plan.Out, x.n)
	group := a.size("group", x.n)
	k := rms{level: a.dev.level, eps: float32(a.float("eps")), group: group, span: 1, scale: 1, w: a.floats("w", group)}
	per := a.divides("x", x.n, group)
	act := a.act("act", vec.Silu, vec.Sigmoid)
	normed := make([][]float32, a.dev.pool.Workers())
	for i := range normed {
		normed[i] = make([]float32, group)
	}
	r := a.dev.region(group, func(lo, hi, worker int) {
		for at := lo * group; at < hi*group; at += group {
			// y may be z, so the normalised segment waits beside it.
			seg := normed[worker]
			k.segment(seg, x.data[at:at+group], 0)
			k.level.Glu(act, y.data[at:at+group], z.data[at:at+group], seg)
		}
	})
	return func() { r.run(x.rows() * per) }
}

// softmax computes p = exp(x-max)/Σ.
func softmax(level vec.Level, p, x []float32) {
	top := slices.Max(x)
	for i, v := range x {
		p[i] = v - top
	}
	level.Exp(p, p)
	sum := 0.0
	for _, v := range p {
		sum += float64(v)
	}
	level.Scale(p, p, float32(1/sum))
}
