// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"fmt"

	"github.com/metrale/metrale/internal/gpu/cpu/attn"
	"github.com/metrale/metrale/internal/gpu/cpu/recur"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// Compressed attention keeps one vector, an entry, for every so many tokens. compress makes the entries, append_entry keeps them
// in a paged pool.

// compress pools windows of tokens.
func compress(a *args) func() {
	c := &recur.Compress{Level: a.dev.level, Ratio: a.size("ratio"), Series: a.size("series", 1)}
	c.N = a.size("n")
	y := a.acts("y", plan.Out, c.N)
	c.Y = y.data
	width := c.Series * c.N
	if a.err == nil && c.Series > 2 {
		a.fail("", "attribute series is %d, want 1 or 2", c.Series)
	}
	c.KV = a.actsLike(y, "kv", plan.In, width).data
	c.Gate = a.actsLike(y, "gate", plan.In, width).data
	c.Ape = a.floats("ape", c.Ratio*width)
	positions := a.ints("positions", int64(y.max))
	st := a.slotted(3 * c.Sums() * c.N)
	scratch := make([]recur.CompressScratch, a.dev.pool.Workers())
	parts := (c.N + convChannels - 1) / convChannels
	task := func(i, worker int) {
		seq, lo := i/parts, i%parts*convChannels
		hi, state := min(lo+convChannels, c.N), st.state(seq)
		if st.anew[seq] != 0 { // the task's own channels: others clear theirs
			for at := 0; at < len(state); at += c.N {
				clear(state[at+lo : at+hi])
			}
		}
		if row, end := int(st.cuRows[seq]), int(st.cuRows[seq+1]); row < end {
			c.Channels(&scratch[worker], state, row, end, int(positions[row]), lo, hi)
		}
	}
	return func() { a.dev.pool.Run(st.check(y.rows())*parts, task) }
}

// entries takes a paged state with a vector of dim elements for every so many tokens.
func (a *args) entries(param string, access plan.Access, every, dim int) attn.Entries {
	p := attn.Entries{Dim: dim, Every: every, PageSize: int(a.b.Limits.PageSize)}
	x, ok := a.take(param, access)
	switch {
	case !ok:
	case !attn.Supported(x.DType):
		a.fail(param, "%v, want f32, bf16 or f16", x.DType)
	case p.PageSize%every != 0 && every%p.PageSize != 0:
		a.fail(param, "%d tokens of an entry do not divide pages of %d", every, p.PageSize)
	case len(x.Axes) < 3 || x.Axes[2:].Shape().Elems() != int64(dim) || x.Axes[1].Size != int64(p.PerPage()):
		a.fail(param, "axes %s, want [pages, %d, %d]", axesString(x.Axes), p.PerPage(), dim)
	case x.DType == tensor.F32:
		p.D, p.F32 = x.DType, stored[float32](a, x, x.DType)
	default:
		p.D, p.Bits = x.DType, stored[uint16](a, x, x.DType)
	}
	return p
}

// appendEntry writes the rows that end a window.
func appendEntry(a *args) func() {
	every := a.size("every")
	k := a.acts("k", plan.In, 0)
	slots, positions := a.ints("slots", int64(k.max)), a.ints("positions", int64(k.max))
	pool := a.entries("pool", plan.InOut, every, k.n)
	level := a.dev.level
	r := a.dev.region(k.n, func(lo, hi, _ int) {
		for i := lo; i < hi; i++ {
			if (int(positions[i])+1)%every != 0 {
				continue
			}
			if slots[i] < 0 || !pool.Append(level, int(slots[i]), k.row(i)) {
				panic(fmt.Sprintf("slot %d is not in the pool", slots[i]))
			}
		}
	})
	return func() { r.run(k.rows()) }
}
