// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"fmt"

	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// rowPool takes float32 rows of width n that were written outside of the plan; n 0 is any width.
func (a *args) rowPool(param string, n int) matrix {
	x, ok := a.take(param, plan.In)
	if !ok {
		return matrix{}
	}
	if len(x.Axes) != 2 || n > 0 && x.Axes[1].Size != int64(n) {
		a.fail(param, "axes %s, want [pool, %s]", axesString(x.Axes), sizeString(n))
		return matrix{}
	}
	return matrix{extent: extent{max: int(x.Axes[0].Size)}, n: int(x.Axes[1].Size), data: stored[float32](a, x, tensor.F32)}
}

// checkRows panics unless all of rows are in [least, end).
func checkRows(rows []int32, least, end int) {
	for i, r := range rows {
		if int(r) < least || int(r) >= end {
			panic(fmt.Sprintf("row %d takes row %d of a pool of %d", i, r, end))
		}
	}
}

// takeRows continues rows of another plan: y[i] = pool[hidden_row[i]].
func takeRows(a *args) func() {
	pool := a.rowPool("pool", 0)
	y := a.acts("y", plan.Out, pool.n)
	from := a.ints("hidden_row", int64(y.max))
	r := a.dev.region(y.n, func(lo, hi, _ int) {
		for i := lo; i < hi; i++ {
			copy(y.row(i), pool.row(int(from[i])))
		}
	})
	return func() {
		n := y.rows()
		checkRows(from[:n], 0, pool.max)
		r.run(n)
	}
}

// putFeatures replaces rows that have features by them, or adds them.
func putFeatures(a *args) func() {
	x := a.acts("x", plan.InOut, 0)
	pool := a.rowPool("pool", x.n)
	from := a.ints("feature_row", int64(x.max))
	add := a.word("mode", "replace", "add") == "add"
	level := a.dev.level
	r := a.dev.region(x.n, func(lo, hi, _ int) {
		for i := lo; i < hi; i++ {
			switch {
			case from[i] < 0:
			case add:
				level.Add(x.row(i), pool.row(int(from[i])))
			default:
				copy(x.row(i), pool.row(int(from[i])))
			}
		}
	})
	return func() {
		n := x.rows()
		checkRows(from[:n], -1, pool.max)
		r.run(n)
	}
}

// foldRows lays fold consecutive rows side by side. Memory stays as it is.
func foldRows(a *args) func() {
	fold := a.size("fold")
	x := a.acts("x", plan.In, 0)
	y := a.acts("y", plan.Out, fold*x.n)
	if a.err == nil && (x.axis != plan.Rows || y.axis != plan.Outs) {
		a.fail("y", "folds %s into %s, want rows into outs", x.axis, y.axis)
	}
	r := a.dev.region(y.n, func(lo, hi, _ int) { copy(y.data[lo*y.n:hi*y.n], x.data[lo*y.n:hi*y.n]) })
	return func() {
		if rows, outs := x.rows(), y.rows(); rows != outs*fold {
			panic(fmt.Sprintf("%d rows do not fold by %d into %d", rows, fold, outs))
		}
		r.run(y.rows())
	}
}
