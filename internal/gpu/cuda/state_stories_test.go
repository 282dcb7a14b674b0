// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda_test

import (
	"fmt"
	"math"
	"slices"

	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// span is rows [lo, hi) of a sequence.
type span struct{ seq, lo, hi int }

// paging is where a story's sequences keep their tokens: rows of a step, its slots, block table and so on.
type paging struct {
	pages int       // of the pool
	table [][]int32 // [seq]
}

// page gives sequences of at most the given lengths their pages, in no order.
func (s *story) page(lengths ...int) *paging {
	size := int(s.limits.PageSize)
	g := &paging{pages: 2}
	for _, n := range lengths {
		g.pages += (n + size - 1) / size
	}
	perm := s.rng.Perm(g.pages)
	for _, n := range lengths {
		var t []int32
		for range (n + size - 1) / size {
			t = append(t, int32(perm[0]))
			perm = perm[1:]
		}
		g.table = append(g.table, t)
	}
	return g
}

// rowsOf counts the spans' rows.
func rowsOf(spans []span) (n int) {
	for _, x := range spans {
		n += x.hi - x.lo
	}
	return n
}

// place adds the fields that say where the spans' rows are: slots for appending, else what attention reads. Pages behind a
// window are gone.
func (p *step) place(g *paging, spans []span, window int, appending bool) *step {
	var slots, positions, seqs []int32
	cu := []int32{0}
	size, stride := int(p.limits.PageSize), int(p.limits.Pages)
	table := make([]int32, int(p.limits.Seqs)*stride)
	for i := range table {
		table[i] = -1 << 30
	}
	for i, x := range spans {
		for at := x.lo; at < x.hi; at++ {
			slots = append(slots, g.table[x.seq][at/size]*int32(size)+int32(at%size))
			positions, seqs = append(positions, int32(at)), append(seqs, int32(i))
		}
		cu = append(cu, int32(len(positions)))
		gone := 0
		if window > 0 {
			gone = max(0, x.lo-window+1) / size
		}
		copy(table[i*stride+gone:], g.table[x.seq][gone:])
	}
	n := int(p.limits.Rows)
	if appending {
		return p.ints("slots", n, slots)
	}
	p.ints("positions", n, positions).ints("row_seq", n, seqs).ints("cu_rows", int(p.limits.Seqs)+1, cu).ints("block_table", len(table), table)
	p.arrays[len(p.arrays)-1].axes = plan.Axes{{Name: plan.Seqs, Size: p.limits.Seqs}, {Name: "pages", Size: p.limits.Pages}}
	return p
}

// attention is a configuration that stories of attention share.
type attention struct {
	heads, kv, kd, vd, window int
	softcap                   float64
	sinks                     bool
	dtype                     tensor.DType
	loud                      float64 // what elements of q and k are about; 0 is 1
}

// step appends the spans' keys and values and attends over them.
func (c attention) step(s *story, g *paging, spans []span) {
	n, loud := rowsOf(spans), s.normal
	if c.loud != 0 {
		loud = func() float32 { return float32(c.loud) * s.normal() }
	}
	pools := func(p *step, access plan.Access) *step {
		return p.state(s, "k_pool", access, c.dtype, g.pages, true, c.kv*c.kd).state(s, "v_pool", access, c.dtype, g.pages, true, c.kv*c.vd).
			attr("kv_heads", c.kv).attr("head_dim", c.kd).attr("v_dim", c.vd)
	}
	pools(s.step("kv_append", n, len(spans), 1).in(s, "k", rows, c.kv*c.kd, loud).in(s, "v", rows, c.kv*c.vd, s.normal).place(g, spans, 0, true), plan.InOut)
	p := pools(s.step("attention", n, len(spans), 1).in(s, "q", rows, c.heads*c.kd, loud).place(g, spans, c.window, false), plan.In)
	if c.sinks {
		p.weight(s, "sinks", tensor.F32, 1, c.heads)
	}
	p.out(s, "y", rows, c.heads*c.vd).attr("heads", c.heads).attr("scale", 1/math.Sqrt(float64(c.kd))).attr("window", c.window).attr("softcap", c.softcap)
}

// story has three sequences: prompts in chunks beside each other, then one row each.
func (c attention) story() *story {
	s := newStory(fmt.Sprintf("attention/%v/%d:%d/%dx%d/window %d, softcap %v, sinks %v", c.dtype, c.heads, c.kv, c.kd, c.vd, c.window, c.softcap, c.sinks), 40, 3, 1)
	g := s.page(70, 9, 33)
	c.step(s, g, []span{{0, 0, 30}, {1, 0, 3}})
	c.step(s, g, []span{{0, 30, 69}, {2, 0, 1}})
	c.step(s, g, []span{{1, 3, 8}, {0, 69, 70}, {2, 1, 33}})
	c.step(s, g, []span{{1, 8, 9}})
	return s
}

func attentionStories() (list []*story) {
	for _, c := range []attention{
		{heads: 4, kv: 2, kd: 64, vd: 64, dtype: tensor.BF16},
		{heads: 4, kv: 2, kd: 64, vd: 64, dtype: tensor.F16},
		{heads: 4, kv: 4, kd: 32, vd: 32, dtype: tensor.F32},
		{heads: 5, kv: 1, kd: 128, vd: 128, dtype: tensor.BF16, sinks: true},
		{heads: 8, kv: 1, kd: 24, vd: 16, window: 20, dtype: tensor.F32},
		{heads: 2, kv: 1, kd: 16, vd: 24, softcap: 5, dtype: tensor.F32, sinks: true},
		{heads: 3, kv: 3, kd: 10, vd: 6, window: 33, dtype: tensor.BF16},
		{heads: 2, kv: 1, kd: 192, vd: 128, window: 8, dtype: tensor.BF16},
		{heads: 2, kv: 1, kd: 256, vd: 256, dtype: tensor.F16},
		{heads: 2, kv: 2, kd: 64, vd: 300, dtype: tensor.F32},
		{heads: 1, kv: 1, kd: 512, vd: 512, dtype: tensor.BF16},
	} {
		list = append(list, c.story())
	}
	for _, c := range []attention{ // for tiles: steps of many rows, groups of 1 to 16 heads
		{heads: 6, kv: 2, kd: 64, vd: 64, window: 100, sinks: true, dtype: tensor.BF16},
		{heads: 3, kv: 3, kd: 128, vd: 128, dtype: tensor.BF16},
		{heads: 8, kv: 2, kd: 128, vd: 128, window: 20, dtype: tensor.BF16},
		{heads: 16, kv: 1, kd: 256, vd: 256, softcap: 5, dtype: tensor.BF16},
		{heads: 8, kv: 1, kd: 512, vd: 512, dtype: tensor.BF16},
		{heads: 6, kv: 2, kd: 512, vd: 512, window: 70, sinks: true, dtype: tensor.BF16},
	} {
		s := newStory(fmt.Sprintf("attention/tiles/%d:%d/%d/window %d", c.heads, c.kv, c.kd, c.window), 140, 3, 1)
		g := s.page(310, 9, 50)
		c.step(s, g, []span{{0, 0, 130}, {1, 0, 3}})
		c.step(s, g, []span{{0, 130, 215}, {2, 0, 49}, {1, 3, 4}})
		c.step(s, g, []span{{1, 4, 9}, {0, 215, 309}})
		c.step(s, g, []span{{0, 309, 310}, {2, 49, 50}})
		list = append(list, s)
	}
	// Large scores, as norms with weights above 1 make them; tiles of keys and queries that are not full.
	for _, dim := range []int{512, 256, 64} {
		c := attention{heads: 4, kv: 2, kd: dim, vd: dim, loud: 1.75, dtype: tensor.BF16}
		s := newStory(fmt.Sprintf("attention/tiles/loud/%d", dim), 80, 2, 1)
		g := s.page(80, 26)
		c.step(s, g, []span{{0, 0, 54}, {1, 0, 26}})
		list = append(list, s)
	}
	// One sequence that is longer than all warps' first chunks.
	long := attention{heads: 2, kv: 1, kd: 32, vd: 32, dtype: tensor.BF16}
	s := newStory("attention/long", 317, 1, 1)
	g := s.page(318)
	long.step(s, g, []span{{0, 0, 317}})
	long.step(s, g, []span{{0, 317, 318}})
	return append(list, s)
}

// latentStories cache one vector per token for all heads.
func latentStories() (list []*story) {
	for _, c := range []struct {
		heads, dim, vd, window int
		dtype                  tensor.DType
	}{{4, 72, 64, 0, tensor.BF16}, {5, 40, 32, 17, tensor.F32}, {9, 576, 512, 0, tensor.F16}, {3, 22, 18, 0, tensor.BF16}} {
		s := newStory(fmt.Sprintf("latent_attention/%v/%d/%dx%d", c.dtype, c.heads, c.dim, c.vd), 12, 2, 1)
		g := s.page(50, 20)
		for _, spans := range [][]span{{{0, 0, 12}}, {{0, 12, 18}, {1, 0, 6}}, {{1, 6, 7}, {0, 18, 29}}} {
			n := rowsOf(spans)
			s.step("append", n, len(spans), 1).in(s, "k", rows, c.dim, s.normal).place(g, spans, 0, true).state(s, "pool", plan.InOut, c.dtype, g.pages, true, c.dim)
			s.step("latent_attention", n, len(spans), 1).in(s, "q", rows, c.heads*c.dim, s.normal).place(g, spans, c.window, false).
				state(s, "pool", plan.In, c.dtype, g.pages, true, c.dim).out(s, "y", rows, c.heads*c.vd).
				attr("heads", c.heads).attr("head_dim", c.dim).attr("v_dim", c.vd).attr("scale", 1/math.Sqrt(float64(c.dim))).attr("window", c.window)
		}
		list = append(list, s)
	}
	for _, heads := range []int{20, 64, 7} { // for tiles: steps of many rows, keys of more than one
		window := heads % 2 * 50
		s := newStory(fmt.Sprintf("latent_attention/tiles/%d/window %d", heads, window), 140, 3, 1)
		g := s.page(310, 9, 50)
		for _, spans := range [][]span{{{0, 0, 130}, {1, 0, 3}}, {{0, 130, 215}, {2, 0, 49}, {1, 3, 4}}, {{1, 4, 9}, {0, 215, 309}}, {{0, 309, 310}, {2, 49, 50}}} {
			n := rowsOf(spans)
			s.step("append", n, len(spans), 1).in(s, "k", rows, 576, s.normal).place(g, spans, 0, true).state(s, "pool", plan.InOut, tensor.BF16, g.pages, true, 576)
			s.step("latent_attention", n, len(spans), 1).in(s, "q", rows, heads*576, s.normal).place(g, spans, window, false).
				state(s, "pool", plan.In, tensor.BF16, g.pages, true, 576).out(s, "y", rows, heads*512).
				attr("heads", heads).attr("head_dim", 576).attr("v_dim", 512).attr("scale", 1/math.Sqrt(576)).attr("window", window)
		}
		list = append(list, s)
	}
	return list
}

// sparseStories choose keys and attend over them, in steps of two sequences.
func sparseStories() (list []*story) {
	for _, c := range []struct {
		heads, dim, vd, top int
		dtype               tensor.DType
	}{{4, 72, 64, 8, tensor.BF16}, {5, 40, 32, 50, tensor.F32}, {3, 22, 18, 300, tensor.F16}} {
		s := newStory(fmt.Sprintf("sparse_attention/%v/%d/%dx%d/%d", c.dtype, c.heads, c.dim, c.vd, c.top), 160, 2, 1)
		g := s.page(310, 20)
		for _, spans := range [][]span{{{0, 0, 150}, {1, 0, 5}}, {{1, 5, 7}, {0, 150, 305}}, {{0, 305, 306}}} {
			n := rowsOf(spans)
			s.step("append", n, len(spans), 1).in(s, "k", rows, c.dim, s.normal).place(g, spans, 0, true).state(s, "pool", plan.InOut, c.dtype, g.pages, true, c.dim)
			s.step("index", n, len(spans), 1).in(s, "q", rows, 6*c.dim, s.normal).in(s, "w", rows, 6, s.normal).place(g, spans, 0, false).
				state(s, "pool", plan.In, c.dtype, g.pages, true, c.dim).picks(s, "ids", plan.Out, c.top, nil).attr("heads", 6).attr("head_dim", c.dim).attr("top", c.top)
			p := s.step("sparse_attention", n, len(spans), 1).in(s, "q", rows, c.heads*c.dim, s.normal).place(g, spans, 0, false).
				state(s, "pool", plan.In, c.dtype, g.pages, true, c.dim).picks(s, "ids", plan.In, c.top, s.someKeys(spans, c.top, 1))
			if c.heads == 5 {
				p.weight(s, "sinks", tensor.F32, 1, c.heads)
			}
			p.out(s, "y", rows, c.heads*c.vd).attr("heads", c.heads).attr("head_dim", c.dim).attr("v_dim", c.vd).attr("scale", 1/math.Sqrt(float64(c.dim))).attr("top", c.top)
		}
		list = append(list, s)
	}
	return list
}

// someKeys lists for each row some of what it sees, one of every tokens, rising, then -1.
func (s *story) someKeys(spans []span, top, every int) (ids []int32) {
	for _, x := range spans {
		for at := x.lo; at < x.hi; at++ {
			n := (at + 1) / every
			row := s.rng.Perm(n)
			row = row[:min(n, top)]
			slices.Sort(row)
			for i := range top {
				if i < len(row) {
					ids = append(ids, int32(row[i]))
				} else {
					ids = append(ids, -1)
				}
			}
		}
	}
	return ids
}

// entryStories keep one vector for every so many tokens beside the tokens.
func entryStories() (list []*story) {
	for _, c := range []struct {
		every, top, tokens, window int
		dtype                      tensor.DType
	}{{4, 6, 0, 9, tensor.BF16}, {16, 3, 1, 20, tensor.F32}, {32, 2, 0, 128, tensor.F16}} {
		const heads, dim, vd = 5, 40, 32
		s := newStory(fmt.Sprintf("entries/%v/%d of %d", c.dtype, c.top, c.every), 60, 2, 1)
		g := s.page(140, 20)
		entries := func(p *step, name string, access plan.Access) *step {
			p.state(s, name, access, c.dtype, g.pages, true, dim)
			a := p.arrays[len(p.arrays)-1]
			a.axes = slices.Clone(a.axes)
			a.axes[1].Size = max(1, s.limits.PageSize/int64(c.every))
			return p
		}
		for _, spans := range [][]span{{{0, 0, 50}, {1, 0, 5}}, {{1, 5, 7}, {0, 50, 108}}, {{0, 108, 139}}} {
			n := rowsOf(spans)
			s.step("append", n, len(spans), 1).in(s, "k", rows, dim, s.normal).place(g, spans, 0, true).state(s, "pool", plan.InOut, c.dtype, g.pages, true, dim)
			both := s.step("append_entry", n, len(spans), 1).in(s, "k", rows, dim, s.normal).place(g, spans, 0, true)
			positions := s.step("none", n, len(spans), 1).place(g, spans, 0, false)
			s.steps = s.steps[:len(s.steps)-1]
			both.add(positions.arrays[1]).attr("every", c.every)
			// The pool of entries is a state of its own, "entries", which append_entry and index_entries call pool.
			entries(both, "entries", plan.InOut).arrays[len(both.arrays)-1].param = "pool"
			x := s.step("index_entries", n, len(spans), 1).in(s, "q", rows, 3*dim, s.normal).in(s, "w", rows, 3, s.normal).place(g, spans, 0, false)
			entries(x, "entries", plan.In).arrays[len(x.arrays)-1].param = "pool"
			x.picks(s, "ids", plan.Out, c.top+c.tokens*(c.top+1)*(c.every-1), nil).
				attr("heads", 3).attr("head_dim", dim).attr("every", c.every).attr("top", c.top).attr("tokens", c.tokens)
			for _, kernel := range []string{"entry_attention", "sparse_entry_attention"} {
				p := s.step(kernel, n, len(spans), 1).in(s, "q", rows, heads*dim, s.normal).place(g, spans, 0, false).weight(s, "sinks", tensor.F32, 1, heads).
					state(s, "pool", plan.In, c.dtype, g.pages, true, dim)
				if entries(p, "entries", plan.In); kernel == "sparse_entry_attention" {
					p.picks(s, "ids", plan.In, c.top, s.someKeys(spans, c.top, c.every)).attr("top", c.top)
				}
				p.out(s, "y", rows, heads*vd).attr("heads", heads).attr("head_dim", dim).attr("v_dim", vd).attr("window", c.window).attr("every", c.every).
					attr("scale", 1/math.Sqrt(dim))
			}
		}
		list = append(list, s)
	}
	return list
}

// fullStories are images beside each other.
func fullStories() (list []*story) {
	for _, c := range []struct{ heads, dim int }{{3, 16}, {2, 72}, {1, 200}, {2, 18}} {
		s := newStory(fmt.Sprint("full_attention/", c.heads, "x", c.dim), 45, 2, 1)
		n := c.heads * c.dim
		seqs := make([]int32, 45)
		for i := range seqs {
			seqs[i] = int32(min(i/40, 1))
		}
		s.step("full_attention", 45, 2, 1).in(s, "q", rows, n, s.normal).in(s, "k", rows, n, s.normal).in(s, "v", rows, n, s.normal).
			ints("cu_rows", 4, []int32{0, 40, 45}).ints("row_seq", 47, seqs).out(s, "y", rows, n).
			attr("heads", c.heads).attr("head_dim", c.dim).attr("scale", 1/math.Sqrt(float64(c.dim)))
		list = append(list, s)
	}
	return list
}

// sequences adds the fields of a step whose sequences have these numbers of rows; sequence i has slot 2-i%3, and starts fresh in
// its first step.
func (p *step) sequences(counts []int, first bool) *step {
	var cu, slots, fresh []int32
	at := int32(0)
	for i, n := range counts {
		cu, slots, fresh = append(cu, at), append(slots, int32(2-i%3)), append(fresh, 0)
		if first {
			fresh[i] = 1
		}
		at += int32(n)
	}
	n := int(p.limits.Seqs)
	return p.ints("cu_rows", n+1, append(cu, at)).ints("state_slot", n, slots).ints("fresh", n, fresh)
}

func sum(list []int) (n int) {
	for _, x := range list {
		n += x
	}
	return n
}

func most(steps [][]int) (rows, seqs int) {
	for _, c := range steps {
		rows, seqs = max(rows, sum(c)), max(seqs, len(c))
	}
	return rows, seqs
}

// convStory has steps of so many rows of each sequence.
func convStory(channels, kernel int, act string, bias bool, steps [][]int) *story {
	r, q := most(steps)
	s := newStory(fmt.Sprint("conv/", act, "/", channels, "x", kernel), r, q, 1)
	w, b := s.stored(tensor.F32, channels*kernel, 1), s.stored(tensor.F32, channels, 1)
	for i, c := range steps {
		p := s.step("conv", sum(c), len(c), 1).in(s, "x", rows, channels, s.normal).weight(s, "w", tensor.F32, 1, channels, kernel)
		p.arrays[2].data = w
		if bias {
			p.weight(s, "bias", tensor.F32, 1, channels)
			p.arrays[3].data = b
		}
		p.state(s, "state", plan.InOut, tensor.F32, 3, false, channels, kernel-1).sequences(c, i == 0).out(s, "y", rows, channels).
			attr("kernel", kernel).attr("act", act)
	}
	return s
}

// deltaStory has normalised keys and queries, decays and strengths as models have them.
func deltaStory(kh, vh, kd, vd, channels int, steps [][]int) *story {
	r, q := most(steps)
	s := newStory(fmt.Sprint("delta_rule/", kh, ":", vh, "/", kd, "x", vd, "/", channels), r, q, 1)
	unit := func() float32 { return s.normal() / float32(math.Sqrt(float64(kd))) }
	for i, c := range steps {
		s.step("delta_rule", sum(c), len(c), 1).in(s, "q", rows, kh*kd, unit).in(s, "k", rows, kh*kd, unit).in(s, "v", rows, vh*vd, s.normal).
			in(s, "g", rows, vh*channels, func() float32 { return -s.rng.Float32() }).in(s, "beta", rows, vh, s.rng.Float32).
			state(s, "state", plan.InOut, tensor.F32, 3, false, vh, kd, vd).sequences(c, i == 0).out(s, "y", rows, vh*vd).
			attr("k_heads", kh).attr("v_heads", vh).attr("k_dim", kd).attr("v_dim", vd).attr("channels", channels)
	}
	return s
}

// compressStory has sequences that begin at position 0.
func compressStory(n, ratio, series int, steps [][]int) *story {
	r, q := most(steps)
	s := newStory(fmt.Sprint("compress/", n, "/", ratio, "/", series), r, q, 1)
	ape := s.stored(tensor.F32, ratio*series*n, 1)
	at := make([]int, q)
	for i, c := range steps {
		var positions []int32
		for j, rows := range c {
			for range rows {
				positions = append(positions, int32(at[j]))
				at[j]++
			}
		}
		p := s.step("compress", sum(c), len(c), 1).in(s, "kv", rows, series*n, s.normal).in(s, "gate", rows, series*n, s.normal).
			weight(s, "ape", tensor.F32, 1, ratio, series*n).ints("positions", int(s.limits.Rows), positions)
		p.arrays[3].data = ape
		p.state(s, "state", plan.InOut, tensor.F32, 3, false, 3*(2*series-1), n).sequences(c, i == 0).out(s, "y", rows, n).
			attr("n", n).attr("ratio", ratio).attr("series", series)
	}
	return s
}

func ssdStory(heads, groups, dim, stateDim int, steps [][]int) *story {
	r, q := most(steps)
	s := newStory(fmt.Sprint("ssd/", heads, ":", groups, "/", dim, "x", stateDim), r, q, 1)
	aLog, bias, d := s.stored(tensor.F32, heads, 1), s.stored(tensor.F32, heads, 1), s.stored(tensor.F32, heads, 1)
	for i, c := range steps {
		p := s.step("ssd", sum(c), len(c), 1).in(s, "xbc", rows, heads*dim+2*groups*stateDim, func() float32 { return s.normal() / 4 }).in(s, "dt", rows, heads, s.normal).
			weight(s, "a_log", tensor.F32, 1, heads).weight(s, "dt_bias", tensor.F32, 1, heads).weight(s, "d", tensor.F32, 1, heads)
		p.arrays[3].data, p.arrays[4].data, p.arrays[5].data = aLog, bias, d
		p.state(s, "state", plan.InOut, tensor.F32, 3, false, heads, dim, stateDim).sequences(c, i == 0).out(s, "y", rows, heads*dim).
			attr("heads", heads).attr("groups", groups).attr("head_dim", dim).attr("state_dim", stateDim)
	}
	return s
}
