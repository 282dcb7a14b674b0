// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"github.com/metrale/metrale/internal/gpu/cpu/attn"
	"github.com/metrale/metrale/internal/gpu/cpu/pool"
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
	c.Sinks = a.optFloats("sinks", cfg.Heads)
	return c, q
}

func latentAttention(a *args) func() {
	c, q := a.latent()
	c.Window = a.int("window", 0)
	return a.attend(c, q)
}

// sparseAttention is latent attention over the keys that index chose.
func sparseAttention(a *args) func() {
	c, q := a.latent()
	c.Top = a.size("top")
	c.IDs = a.picks("ids", plan.In, q.max, c.Top)
	return a.attend(c, q)
}

// entryAttention is latent attention over all entries that have ended and the tokens of a window.
func entryAttention(a *args) func() {
	c, q := a.compressed()
	return a.attend(c, q)
}

// sparseEntryAttention is entryAttention over the entries that index_entries chose.
func sparseEntryAttention(a *args) func() {
	c, q := a.compressed()
	c.Top = a.size("top")
	c.IDs = a.picks("ids", plan.In, q.max, c.Top)
	return a.attend(c, q)
}

func (a *args) compressed() (*attn.Call, matrix) {
	c, q := a.latent()
	c.Near = a.size("window")
	e := a.entries("entries", plan.In, a.size("every"), c.HeadDim)
	c.E = &e
	return c, q
}

// index chooses the keys of sparse attention.
func index(a *args) func() {
	x := a.indexed()
	x.K = a.kvPool("pool", plan.In, 1, x.Dim)
	return a.choose(x)
}

// indexEntries chooses entries, or their tokens.
func indexEntries(a *args) func() {
	x := a.indexed()
	e := a.entries("pool", plan.In, a.size("every"), x.Dim)
	x.E, x.Tokens = &e, a.flag("tokens")
	return a.choose(x)
}

func (a *args) indexed() *attn.Index {
	return &attn.Index{Heads: a.size("heads"), Dim: a.size("head_dim"), Top: a.size("top"), PageSize: int(a.b.Limits.PageSize), Level: a.dev.level}
}

// choose takes what the kinds of index share, and is what they run.
func (a *args) choose(x *attn.Index) func() {
	q := a.acts("q", plan.In, x.Heads*x.Dim)
	x.Q, x.W = q.data, a.actsLike(q, "w", plan.In, x.Heads).data
	x.IDs = a.picks("ids", plan.Out, q.max, x.Width())
	x.Positions, x.RowSeq = a.ints("positions", int64(q.max)), a.ints("row_seq", int64(q.max))
	x.TableStride = a.stride("block_table")
	x.Table = a.ints("block_table", a.b.Limits.Seqs*int64(x.TableStride))
	if a.err != nil {
		return nil
	}
	r := &indexer{x: x, pool: a.dev.pool, scratch: make([]attn.IndexScratch, a.dev.pool.Workers())}
	for i := range r.scratch {
		r.scratch[i].Grow(x)
	}
	r.scoreTask, r.chooseTask = r.score, r.choose
	return func() {
		for lo := 0; lo < q.rows(); lo += indexRows {
			r.run(lo, min(indexRows, q.rows()-lo))
		}
	}
}

// indexRows is how many rows' scores are kept at a time.
const indexRows = 16

// indexer runs an index over some rows: first scores, a task for each segment of each row's keys, then choices.
type indexer struct {
	x       *attn.Index
	pool    *pool.Pool
	scratch []attn.IndexScratch
	lo      int
	longest int
	jobs    [][2]int  // row and segment
	scores  []float32 // [rows][longest]

	scoreTask, chooseTask func(i, worker int)
}

func (r *indexer) run(lo, rows int) {
	r.lo, r.longest, r.jobs = lo, 0, r.jobs[:0]
	for row := lo; row < lo+rows; row++ {
		n, choose := r.x.Keys(row)
		if !choose {
			continue
		}
		r.longest = max(r.longest, n)
		for seg := range (n + attn.IndexSegment - 1) / attn.IndexSegment {
			r.jobs = append(r.jobs, [2]int{row, seg})
		}
	}
	if need := rows * r.longest; len(r.scores) < need {
		r.scores = make([]float32, need+need/4)
	}
	r.pool.Run(len(r.jobs), r.scoreTask)
	r.pool.Run(rows, r.chooseTask)
}

func (r *indexer) row(row int) []float32 { return r.scores[(row-r.lo)*r.longest:][:r.longest] }

func (r *indexer) score(i, worker int) {
	j := r.jobs[i]
	r.x.Score(j[0], j[1], r.row(j[0]), &r.scratch[worker])
}

func (r *indexer) choose(i, worker int) {
	r.x.Choose(r.lo+i, r.row(r.lo+i), &r.scratch[worker])
}
