// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"fmt"
	"math"

	"github.com/metrale/metrale/internal/gpu/cpu/recur"
	"github.com/metrale/metrale/internal/gpu/cpu/vec"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// slotted is a recurrent state and the step fields that address it.
type slotted struct {
	seqs               extent
	cuRows, slot, anew []int32
	data               []float32 // [slots, size]
	size               int
}

func (a *args) slotted(size int) slotted {
	l := a.b.Limits
	s := slotted{size: size, seqs: extent{head: a.head, index: headIndex[plan.Seqs], max: int(l.Seqs)}}
	s.cuRows = a.ints("cu_rows", l.Seqs+1)
	s.slot, s.anew = a.ints("state_slot", l.Seqs), a.ints("fresh", l.Seqs)
	if x, ok := a.take("state", plan.InOut); ok {
		if s.data = stored[float32](a, x, tensor.F32); a.err == nil && len(s.data)%max(1, size) != 0 {
			a.fail("state", "axes %s, want slots of %d elements", axesString(x.Axes), size)
		}
	}
	return s
}

// check panics where the step names slots or rows that do not exist, and gives the number of sequences.
func (s *slotted) check(rows int) int {
	n := s.seqs.rows()
	for i := range n {
		if at := s.slot[i]; at < 0 || (int(at)+1)*s.size > len(s.data) {
			panic(fmt.Sprintf("state slot %d of %d", at, len(s.data)/s.size))
		}
		if lo, hi := s.cuRows[i], s.cuRows[i+1]; lo < 0 || lo > hi || int(hi) > rows {
			panic(fmt.Sprintf("sequence %d has rows %d to %d of %d", i, lo, hi, rows))
		}
	}
	return n
}

// state is sequence i's.
func (s *slotted) state(i int) []float32 {
	at := int(s.slot[i]) * s.size
	return s.data[at : at+s.size]
}

// convChannels is the number of channels of a task.
const convChannels = 256

func conv(a *args) func() {
	x := a.acts("x", plan.In, 0)
	y := a.actsLike(x, "y", plan.Out, x.n)
	c := &recur.Conv{Level: a.dev.level, C: x.n, K: a.size("kernel"), X: x.data, Y: y.data}
	c.W, c.Bias = a.floats("w", c.C*c.K), a.optFloats("bias", c.C)
	c.Act = a.act("act", vec.Silu, vec.None)
	if a.err == nil && c.K < 2 {
		a.fail("", "attribute kernel is %d, want at least 2", c.K)
	}
	st := a.slotted(c.C * (c.K - 1))
	scratch := make([]recur.Scratch, a.dev.pool.Workers())
	parts := (c.C + convChannels - 1) / convChannels
	task := func(i, worker int) {
		seq, lo := i/parts, i%parts*convChannels
		hi := min(lo+convChannels, c.C)
		state := st.state(seq)
		if st.anew[seq] != 0 { // the task's own channels: others clear theirs
			for at := 0; at < len(state); at += c.C {
				clear(state[at+lo : at+hi])
			}
		}
		c.Channels(&scratch[worker], state, int(st.cuRows[seq]), int(st.cuRows[seq+1]), lo, hi)
	}
	return func() { a.dev.pool.Run(st.check(x.rows())*parts, task) }
}

// deltaGates computes, with a of channels values per head of b,
//
//	g = -exp(a_log)*softplus(a + dt_bias), or floor*sigmoid(exp(a_log)*(a + dt_bias)) where there is a floor
//	beta = sigmoid(b)
func deltaGates(a *args) func() {
	channels, floor := a.size("channels", 1), float32(a.float("floor", 0))
	x := a.acts("a", plan.In, 0)
	b := a.actsLike(x, "b", plan.In, a.divides("a", x.n, channels))
	aLog, bias := a.floats("a_log", b.n), a.floats("dt_bias", x.n)
	g := a.actsLike(x, "g", plan.Out, x.n)
	beta := a.actsLike(x, "beta", plan.Out, b.n)
	level := a.dev.level
	r := a.dev.region(x.n*32, func(lo, hi, _ int) {
		for i := lo; i < hi; i++ {
			in, out := x.row(i), g.row(i)
			for j, v := range in {
				out[j] = v + bias[j]
			}
			for h, l := range aLog {
				head, e := out[h*channels:(h+1)*channels], float32(math.Exp(float64(l)))
				if floor != 0 {
					level.Scale(head, head, e)
					level.Apply(vec.Sigmoid, head, head)
					level.Scale(head, head, floor)
				} else {
					level.Apply(vec.Softplus, head, head)
					level.Scale(head, head, -e)
				}
			}
			level.Apply(vec.Sigmoid, beta.row(i), b.row(i))
		}
	})
	return func() { r.run(x.rows()) }
}

func deltaRule(a *args) func() {
	c := &recur.Delta{Level: a.dev.level, KHeads: a.size("k_heads"), VHeads: a.size("v_heads"), KDim: a.size("k_dim"), VDim: a.size("v_dim"),
		GDim: a.size("channels", 1)}
	if a.err == nil && c.VHeads%c.KHeads != 0 {
		a.fail("", "%d value heads over %d key heads", c.VHeads, c.KHeads)
	}
	if a.err == nil && c.GDim != 1 && c.GDim != c.KDim {
		a.fail("", "attribute channels is %d, want 1 or %d", c.GDim, c.KDim)
	}
	q := a.acts("q", plan.In, c.KHeads*c.KDim)
	c.Q = q.data
	c.K = a.actsLike(q, "k", plan.In, c.KHeads*c.KDim).data
	c.V = a.actsLike(q, "v", plan.In, c.VHeads*c.VDim).data
	c.G = a.actsLike(q, "g", plan.In, c.VHeads*c.GDim).data
	c.Beta = a.actsLike(q, "beta", plan.In, c.VHeads).data
	c.Y = a.actsLike(q, "y", plan.Out, c.VHeads*c.VDim).data
	scratch := make([]recur.Scratch, a.dev.pool.Workers())
	return a.heads(q, c.VHeads, c.KDim*c.VDim, func(state []float32, h, row, end, worker int) {
		c.Head(&scratch[worker], state, h, row, end)
	})
}

// ssd is the scan of Mamba-2.
func ssd(a *args) func() {
	c := &recur.Scan{Level: a.dev.level, Heads: a.size("heads"), Groups: a.size("groups"), HeadDim: a.size("head_dim"), StateDim: a.size("state_dim")}
	if a.err == nil && c.Heads%c.Groups != 0 {
		a.fail("", "%d heads over %d groups", c.Heads, c.Groups)
	}
	x := a.acts("xbc", plan.In, c.Heads*c.HeadDim+2*c.Groups*c.StateDim)
	c.XBC = x.data
	c.DT = a.actsLike(x, "dt", plan.In, c.Heads).data
	c.ALog, c.Bias, c.D = a.floats("a_log", c.Heads), a.floats("dt_bias", c.Heads), a.floats("d", c.Heads)
	c.Y = a.actsLike(x, "y", plan.Out, c.Heads*c.HeadDim).data
	return a.heads(x, c.Heads, c.HeadDim*c.StateDim, func(state []float32, h, row, end, _ int) { c.Head(state, h, row, end) })
}

// heads runs a recurrence whose heads have states of their own, size elements each, over the rows of each sequence.
func (a *args) heads(x matrix, heads, size int, run func(state []float32, h, row, end, worker int)) func() {
	st := a.slotted(heads * size)
	task := func(i, worker int) {
		seq, h := i/heads, i%heads
		state := st.state(seq)[h*size : (h+1)*size]
		if st.anew[seq] != 0 {
			clear(state)
		}
		run(state, h, int(st.cuRows[seq]), int(st.cuRows[seq+1]), worker)
	}
	return func() { a.dev.pool.Run(st.check(x.rows())*heads, task) }
}
