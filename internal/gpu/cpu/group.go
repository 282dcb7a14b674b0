// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"github.com/metrale/metrale/internal/gpu/cpu/linear"
	"github.com/metrale/metrale/internal/gpu/cpu/vec"
	"github.com/metrale/metrale/internal/plan"
)

// groupLinear is a block-diagonal linear: y_g = x_g w_gᵀ for each group of a row.
func groupLinear(a *args) func() {
	w, groups := a.stack("w", 0, 0, 0)
	x := a.acts("x", plan.In, groups*w.K)
	y := a.actsLike(x, "y", plan.Out, groups*w.N)
	c := &linear.GroupCall{X: x.data, Groups: groups, W: w, Scale: a.optFloats("scale", groups*w.N), Y: y.data, Compute: a.compute()}
	d := a.dev
	return func() {
		if c.Rows = x.rows(); c.Rows > 0 {
			linear.Groups(d.pool, d.linear, c)
		}
	}
}

// groupRows is how many rows of a group a task multiplies.
const groupRows = 16

// groupMul is y_g = x_g w_g for each group of a row: the transpose of groupLinear, on weights [groups, K, N] as they come.
func groupMul(a *args) func() {
	groups, k, n, w := a.cube("w")
	x := a.acts("x", plan.In, groups*k)
	y := a.actsLike(x, "y", plan.Out, groups*n)
	if a.err != nil {
		return nil
	}
	m := &groupProduct{level: a.dev.level, groups: groups, k: k, n: n, x: x, y: y}
	for g := range groups {
		var blocks [][]float32
		for i := 0; i < k; i += vec.KeyBlock {
			blocks = append(blocks, w[(g*k+i)*n:(g*k+min(i+vec.KeyBlock, k))*n])
		}
		m.w = append(m.w, blocks)
	}
	for range a.dev.pool.Workers() {
		m.scratch = append(m.scratch, groupScratch{p: make([]float32, (groupRows+1)*k), o: make([]float32, (groupRows+1)*n)})
	}
	r := a.dev.region(groupRows*k*n, func(lo, hi, worker int) {
		for i := lo; i < hi; i++ {
			m.task(i/groups, i%groups, &m.scratch[worker])
		}
	})
	return func() { r.run((x.rows() + groupRows - 1) / groupRows * groups) }
}

// cube takes float32 weights of three axes.
func (a *args) cube(param string) (n0, n1, n2 int, data []float32) {
	x, ok := a.b.Arg(param)
	if ok && len(x.Axes) != 3 {
		a.fail(param, "axes %s, want three", axesString(x.Axes))
	}
	if !ok || a.err != nil {
		a.params[param] = plan.In
		a.fail(param, "missing")
		return 1, 1, 1, nil
	}
	s := x.Axes.Shape()
	return int(s[0]), int(s[1]), int(s[2]), a.floats(param, int(s.Elems()))
}

// groupProduct sums the rows of w_g, weighted by x, as attention sums values: row by row, in order.
type groupProduct struct {
	level        vec.Level
	groups, k, n int
	x, y         matrix
	w            [][][]float32 // of each group, blocks of rows
	scratch      []groupScratch
}

// groupScratch is one worker's rows of one group, with room for one more: see vec.Weighted.
type groupScratch struct{ p, o []float32 }

var noFactors [groupRows + 1]float32

// task multiplies the tile-th groupRows rows with one group's matrix.
func (m *groupProduct) task(tile, g int, s *groupScratch) {
	first := tile * groupRows
	rows := min(groupRows, m.x.rows()-first)
	for r := range rows {
		copy(s.p[r*m.k:(r+1)*m.k], m.x.row(first + r)[g*m.k:])
	}
	clear(s.o)
	m.level.Weighted(s.o, m.n, s.p, m.k, noFactors[:rows], m.w[g], m.k)
	for r := range rows {
		copy(m.y.row(first + r)[g*m.n:(g+1)*m.n], s.o[r*m.n:])
	}
}
