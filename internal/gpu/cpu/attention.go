// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"github.com/metrale/metrale/internal/gpu/cpu/attn"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// kvPool takes a paged state whose tokens hold heads × dim elements.
func (a *args) kvPool(param string, access plan.Access, heads, dim int) attn.Pool {
	p := attn.Pool{KVHeads: heads, Dim: dim}
	x, ok := a.take(param, access)
	if !ok {
		return p
	}
	page := a.b.Limits.PageSize
	switch {
	case !attn.Supported(x.DType):
		a.fail(param, "%v, want f32, bf16 or f16", x.DType)
	case len(x.Axes) < 3 || x.Axes[2:].Shape().Elems() != int64(heads*dim):
		a.fail(param, "axes %s, want [pages, page_size, %d]", axesString(x.Axes), heads*dim)
	case page < 1 || page%attn.Block != 0 || x.Axes[1].Size != page:
		a.fail(param, "pages of %d tokens where the plan has %d, want multiples of %d", x.Axes[1].Size, page, attn.Block)
	case x.DType == tensor.F32:
		p.D, p.F32 = x.DType, stored[float32](a, x, x.DType)
	default:
		p.D, p.Bits = x.DType, stored[uint16](a, x, x.DType)
	}
	return p
}

func kvAppend(a *args) func() {
	heads, kd, vd := a.size("kv_heads"), a.size("head_dim"), a.size("v_dim")
	k := a.acts("k", plan.In, heads*kd)
	v := a.actsLike(k, "v", plan.In, heads*vd)
	slots := a.ints("slots", int64(k.max))
	kp := a.kvPool("k_pool", plan.InOut, heads, kd)
	vp := a.kvPool("v_pool", plan.InOut, heads, vd)
	level := a.dev.level
	r := a.dev.region(k.n+v.n, func(lo, hi, _ int) {
		for i := lo; i < hi; i++ {
			kp.AppendK(level, slots[i], k.row(i))
			vp.AppendV(level, slots[i], v.row(i))
		}
	})
	return func() { r.run(k.rows()) }
}

// serialAttention is the number of multiply-adds below which one worker is done before a second would have begun.
const serialAttention = 1 << 16

func attention(a *args) func() {
	cfg := attn.Config{
		Heads: a.size("heads"), KVHeads: a.size("kv_heads"), HeadDim: a.size("head_dim"), VDim: a.size("v_dim"),
		Scale: float32(a.float("scale")), Softcap: float32(a.float("softcap", 0)), Window: a.int("window", 0),
		PageSize: int(a.b.Limits.PageSize), Level: a.dev.level,
	}
	if a.err == nil && cfg.Heads%cfg.KVHeads != 0 {
		a.fail("", "%d heads over %d KV heads", cfg.Heads, cfg.KVHeads)
	}
	if a.err == nil && !(cfg.Scale > 0 && cfg.Softcap >= 0) {
		a.fail("", "attribute scale is %v, softcap %v, want them positive", cfg.Scale, cfg.Softcap)
	}
	q := a.acts("q", plan.In, cfg.Heads*cfg.HeadDim)
	y := a.actsLike(q, "y", plan.Out, cfg.Heads*cfg.VDim)
	c := &attn.Call{Config: cfg, Q: q.data, Y: y.data, Sinks: a.optFloats("sinks", cfg.Heads)}
	c.K = a.kvPool("k_pool", plan.In, cfg.KVHeads, cfg.HeadDim)
	c.V = a.kvPool("v_pool", plan.In, cfg.KVHeads, cfg.VDim)
	return a.attend(c, q)
}

// attend takes where a step's rows and their pages are, and is what the attention kernels run.
func (a *args) attend(c *attn.Call, q matrix) func() {
	c.Positions, c.RowSeq = a.ints("positions", int64(q.max)), a.ints("row_seq", int64(q.max))
	c.TableStride = a.stride("block_table")
	c.Table = a.ints("block_table", a.b.Limits.Seqs*int64(c.TableStride))
	if a.err != nil {
		return nil
	}
	scratch := a.dev.attention
	for i := range scratch {
		scratch[i].Grow(&c.Config)
	}
	pool := a.dev.pool
	task := func(i, worker int) { c.Run(i, &scratch[worker]) }
	return func() {
		n := c.Plan(q.rows(), pool.Workers())
		if c.Work() < serialAttention {
			for i := range n {
				task(i, 0)
			}
		} else {
			pool.Run(n, task)
		}
		c.Finish()
	}
}

// stride is the extent of a table's second axis.
func (a *args) stride(param string) int {
	x, ok := a.b.Arg(param)
	if ok && len(x.Axes) != 2 {
		a.fail(param, "axes %s, want two", axesString(x.Axes))
	}
	if a.err != nil || !ok {
		return 0
	}
	return int(x.Axes[1].Size)
}
