// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"fmt"
	"math"

	"github.com/metrale/metrale/internal/gpu/cpu/vec"
	"github.com/metrale/metrale/internal/plan"
)

func add(a *args) func() {
	x := a.acts("x", plan.InOut, 0)
	y := a.actsLike(x, "y", plan.In, x.n)
	level := a.dev.level
	r := a.dev.region(1, func(lo, hi, _ int) { level.Add(x.data[lo:hi], y.data[lo:hi]) })
	return func() { r.run(x.rows() * x.n) }
}

// gluActs join gate and up.
var gluActs = []vec.Act{vec.Silu, vec.GeluTanh, vec.SiluThenLimit, vec.SwigluOAI}

func glu(a *args) func() {
	g := a.acts("g", plan.In, 0)
	u := a.actsLike(g, "u", plan.In, g.n)
	y := a.actsLike(g, "y", plan.Out, g.n)
	act, limit := a.act("act", gluActs...), float32(a.float("limit", 0))
	level := a.dev.level
	r := a.dev.region(1, func(lo, hi, _ int) { level.GluLimited(act, limit, y.data[lo:hi], g.data[lo:hi], u.data[lo:hi]) })
	return func() { r.run(g.rows() * g.n) }
}

// act is an activation of each element.
func act(a *args) func() {
	x := a.acts("x", plan.In, 0)
	y := a.actsLike(x, "y", plan.Out, x.n)
	fn := a.act("act", vec.Silu, vec.Gelu, vec.GeluTanh, vec.Relu2)
	level := a.dev.level
	r := a.dev.region(1, func(lo, hi, _ int) { level.Apply(fn, y.data[lo:hi], x.data[lo:hi]) })
	return func() { r.run(x.rows() * x.n) }
}

// gate multiplies n/m consecutive elements by one gate value.
func gate(a *args) func() {
	x := a.acts("x", plan.InOut, 0)
	g := a.actsLike(x, "g", plan.In, 0)
	act := a.act("act", vec.Sigmoid, vec.Silu, vec.Softplus)
	per := a.divides("g", x.n, g.n)
	level := a.dev.level
	r := a.dev.region(per, func(lo, hi, _ int) {
		if per == 1 {
			level.Glu(act, x.data[lo:hi], g.data[lo:hi], x.data[lo:hi])
			return
		}
		for i := lo; i < hi; i++ {
			var v [1]float32
			level.Apply(act, v[:], g.data[i:i+1])
			seg := x.data[i*per : (i+1)*per]
			level.Scale(seg, seg, v[0])
		}
	})
	return func() { r.run(x.rows() * g.n) }
}

// scale multiplies by a factor and, if there is one, by a weight over each group.
func scale(a *args) func() {
	x := a.acts("x", plan.InOut, 0)
	group, factor := a.size("group", 1), float32(a.float("factor", 1))
	w := a.optFloats("w", group)
	per := a.divides("x", x.n, group)
	level := a.dev.level
	r := a.dev.region(x.n, func(lo, hi, _ int) {
		for i := lo; i < hi; i++ {
			row := x.row(i)
			switch {
			case w == nil:
				level.Scale(row, row, factor)
			case group == 1:
				level.Scale(row, row, w[0]*factor)
			default:
				for g := range per {
					seg := row[g*group : (g+1)*group]
					level.ScaleMul(seg, seg, w, factor, 0)
				}
			}
		}
	})
	return func() { r.run(x.rows()) }
}

func softcap(a *args) func() {
	x := a.acts("x", plan.InOut, 0)
	limit := a.float("cap")
	if a.err == nil && !(limit > 0) {
		a.fail("", "attribute cap is %v, want it positive", limit)
	}
	r := a.dev.region(20, func(lo, hi, _ int) {
		for i, v := range x.data[lo:hi] {
			x.data[lo+i] = float32(limit * math.Tanh(float64(v)/limit))
		}
	})
	return func() { r.run(x.rows() * x.n) }
}

// slice takes n elements of each row.
func slice(a *args) func() {
	from, n := a.int("from"), a.size("n")
	x := a.acts("x", plan.In, 0)
	y := a.actsLike(x, "y", plan.Out, n)
	if a.err == nil && from+n > x.n {
		a.fail("x", "elements %d to %d of rows of %d", from, from+n, x.n)
	}
	r := a.dev.region(n, func(lo, hi, _ int) {
		for i := lo; i < hi; i++ {
			copy(y.row(i), x.row(i)[from:])
		}
	})
	return func() { r.run(x.rows()) }
}

// split parts each group of a+b elements.
func split(a *args) func() {
	groups, na, nb := a.size("groups"), a.size("a"), a.size("b")
	x := a.acts("x", plan.In, groups*(na+nb))
	y0 := a.actsLike(x, "y0", plan.Out, groups*na)
	y1 := a.actsLike(x, "y1", plan.Out, groups*nb)
	n := na + nb
	r := a.dev.region(n, func(lo, hi, _ int) {
		for i := lo; i < hi; i++ {
			copy(y0.data[i*na:(i+1)*na], x.data[i*n:i*n+na])
			copy(y1.data[i*nb:(i+1)*nb], x.data[i*n+na:(i+1)*n])
		}
	})
	return func() { r.run(x.rows() * groups) }
}

// join puts groups of a and b elements together.
func join(a *args) func() {
	groups, na, nb := a.size("groups", 1), a.size("a"), a.size("b")
	x0 := a.acts("x0", plan.In, groups*na)
	x1 := a.actsLike(x0, "x1", plan.In, groups*nb)
	y := a.actsLike(x0, "y", plan.Out, groups*(na+nb))
	n := na + nb
	r := a.dev.region(n, func(lo, hi, _ int) {
		for i := lo; i < hi; i++ {
			copy(y.data[i*n:i*n+na], x0.data[i*na:])
			copy(y.data[i*n+na:(i+1)*n], x1.data[i*nb:])
		}
	})
	return func() { r.run(y.rows() * groups) }
}

func gatherRows(a *args) func() {
	x := a.acts("x", plan.In, 0)
	y := a.acts("y", plan.Out, x.n)
	if a.err == nil && (x.axis != plan.Rows || y.axis != plan.Outs) {
		a.fail("y", "gathers %s from %s, want outs from rows", y.axis, x.axis)
	}
	from := a.ints("out_rows", int64(y.max))
	r := a.dev.region(x.n, func(lo, hi, _ int) {
		for i := lo; i < hi; i++ {
			copy(y.row(i), x.row(int(from[i])))
		}
	})
	return func() {
		rows := x.rows()
		n := y.rows()
		for _, at := range from[:n] {
			if at < 0 || int(at) >= rows {
				panic(fmt.Sprintf("output row %d of %d rows", at, rows))
			}
		}
		r.run(n)
	}
}

// ropeAngles computes the cosines and sines of a row's position: y = [cos … | sin …], rot/2 each.
func ropeAngles(a *args) func() {
	y := a.acts("y", plan.Out, 0)
	half := a.divides("y", y.n, 2)
	freq := a.floats("inv_freq", half)
	positions := a.ints("positions", int64(y.max))
	scale, back := float32(a.float("scale", 1)), int32(a.int("back", 0))
	r := a.dev.region(y.n*16, func(lo, hi, _ int) {
		for i := lo; i < hi; i++ {
			row, p := y.row(i), float32(max(positions[i]-back, 0))
			for j, f := range freq {
				sin, cos := math.Sincos(float64(p * f)) // the product is rounded to float32, as references do
				row[j], row[half+j] = float32(cos)*scale, float32(sin)*scale
			}
		}
	})
	return func() { r.run(y.rows()) }
}

// rope rotates pairs of each head by the row's angles.
func rope(a *args) func() { return turn(a, "x", "heads") }

// ropePair rotates two arrays by the same angles.
func ropePair(a *args) func() {
	first, second := turn(a, "x0", "heads0"), turn(a, "x1", "heads1")
	return func() { first(); second() }
}

// turn is rope of the array of a name, with as many heads as an attribute says.
func turn(a *args, name, count string) func() {
	heads, dim, rot, offset := a.size(count), a.size("head_dim"), a.size("rot"), a.int("offset", 0)
	interleaved := a.word("style", "half", "interleaved") == "interleaved"
	x := a.acts(name, plan.InOut, heads*dim)
	angles := a.actsLike(x, "angles", plan.In, rot)
	if a.err == nil && (rot%2 != 0 || offset+rot > dim) {
		a.fail("", "rotates dims %d to %d of heads of %d in pairs", offset, offset+rot, dim)
	}
	half := rot / 2
	inverse, negated := a.flag("inverse"), scratch[float32](a, half)
	level := a.dev.level
	r := a.dev.region(heads*rot, func(lo, hi, worker int) {
		for i := lo; i < hi; i++ {
			cos, sin := angles.row(i)[:half], angles.row(i)[half:]
			if inverse {
				level.Scale(negated[worker], sin, -1)
				sin = negated[worker]
			}
			row := x.row(i)
			for at := offset; at < len(row); at += dim {
				if interleaved {
					rotatePairs(row[at:at+rot], cos, sin)
				} else {
					level.Rotate(row[at:at+half], row[at+half:at+rot], cos, sin)
				}
			}
		}
	})
	return func() { r.run(x.rows()) }
}

// rotatePairs rotates (x[2i], x[2i+1]).
func rotatePairs(x, cos, sin []float32) {
	x = x[:2*len(cos)]
	for i, c := range cos {
		x0, x1, s := x[2*i], x[2*i+1], sin[i]
		x[2*i] = float32(x0*c) - float32(x1*s)
		x[2*i+1] = float32(x1*c) + float32(x0*s)
	}
}

// positionScale multiplies a row by 1 + beta*ln(1+floor(position/period)).
func positionScale(a *args) func() {
	x := a.acts("x", plan.InOut, 0)
	positions := a.ints("positions", int64(x.max))
	beta, period := a.float("beta"), a.size("period")
	level := a.dev.level
	r := a.dev.region(x.n, func(lo, hi, _ int) {
		for i := lo; i < hi; i++ {
			s := float32(1 + beta*math.Log(float64(1+int(positions[i])/period)))
			level.Scale(x.row(i), x.row(i), s)
		}
	})
	return func() { r.run(x.rows()) }
}
