// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"github.com/metrale/metrale/internal/gpu/cpu/attn"
	"github.com/metrale/metrale/internal/plan"
)

// Multi-head latent attention: one vector per token is cached, for all heads. Queries come in the latent's space, so that
// scores are products with it and the values are its first part:
//
//	cached   [latent (v_dim) | rotated part]
//	query    [latent (v_dim) | rotated part]   of each head

// appendRows writes one vector per row to a paged pool.
func appendRows(a *args) func() {
	k := a.acts("k", plan.In, 0)
	slots := a.ints("slots", int64(k.max))
	pool := a.kvPool("pool", plan.InOut, 1, k.n)
	level := a.dev.level
	r := a.dev.region(k.n, func(lo, hi, _ int) {
		for i := lo; i < hi; i++ {
			pool.AppendK(level, slots[i], k.row(i))
		}
	})
	return func() { r.run(k.rows()) }
}

// latentHeads is about how many heads a task has.
const latentHeads = 32

// latent is what the kinds of latent attention share.
func (a *args) latent() (*attn.Call, matrix) {
	cfg := attn.Config{Heads: a.size("heads"), HeadDim: a.size("head_dim"), VDim: a.size("v_dim"), Scale: float32(a.float("scale")),
		Latent: true, PageSize: int(a.b.Limits.PageSize), Level: a.dev.level}
	if a.err == nil && (cfg.VDim > cfg.HeadDim || !(cfg.Scale > 0)) {
		a.fail("", "values of %d of %d dims, scale %v", cfg.VDim, cfg.HeadDim, cfg.Scale)
	}
	group := min(cfg.Heads, latentHeads)
	for cfg.Heads%group != 0 {
		group--
	}
	cfg.KVHeads = cfg.Heads / group
	q := a.acts("q", plan.In, cfg.Heads*cfg.HeadDim)
	c := &attn.Call{Config: cfg, Q: q.data, Y: a.actsLike(q, "y", plan.Out, cfg.Heads*cfg.VDim).data}
	c.K = a.kvPool("pool", plan.In, 1, cfg.HeadDim)
	return c, q
}

func latentAttention(a *args) func() {
	c, q := a.latent()
	c.Window = a.int("window", 0)
	return a.attend(c, q)
}
