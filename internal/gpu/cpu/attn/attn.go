// SPDX-License-Identifier: MIT OR Apache-2.0

package attn

import (
	"fmt"
	"math"
	"sort"

	"github.com/metrale/metrale/internal/gpu/cpu/vec"
)

const (
	chunk     = 64            // keys between two looks at the maximum
	segment   = 8 * chunk     // keys that are summed up by themselves
	stride    = chunk + Block // of a query's scores: vec.Scores wants a spare block
	tileQuery = 32            // query vectors (rows × heads of a group) that a tile aims at
)

// Config are an attention's constants.
type Config struct {
	Heads, KVHeads int
	HeadDim, VDim  int
	Scale, Softcap float32 // Scale > 0; Softcap 0: none, else scores are Softcap*tanh(score/Softcap)
	Window         int     // keys that a row sees, its own included; 0: all
	Latent         bool    // V is the first VDim dims of K, which has one head for all; then KVHeads only cuts the work
	PageSize       int     // slots in a page, a multiple of Block
	Level          vec.Level
}

// group is the number of query heads that share a KV head.
func (c *Config) group() int { return c.Heads / c.KVHeads }

// tileRows is the most rows of a tile: as many as make about tileQuery vectors, in fours.
func (c *Config) tileRows() int {
	step := 4
	for step > 1 && step/2*c.group()%4 == 0 {
		step /= 2
	}
	return max(1, (tileQuery/c.group()+step-1)/step*step)
}

// Call is one step's attention.
type Call struct {
	Config
	K, V        Pool
	Q           []float32 // [rows, heads*head_dim]
	Y           []float32 // [rows, heads*v_dim]
	Sinks       []float32 // [heads] a score that weighs nothing but takes its share of the softmax; nil: none
	Positions   []int32   // [rows]
	RowSeq      []int32   // [rows]
	Last        []int32   // [seqs] the position up to which rows of a sequence see keys; nil: up to their own
	Table       []int32   // [seqs, TableStride] pages
	TableStride int
	IDs         []int32 // [rows, Top] the positions that a row sees, rising, then -1; nil: all up to its own. Latent only
	Top         int
	E           *Entries // keys of a row before those of its window: the entries of IDs, or all that have ended. Latent only
	Near        int      // keys of the window of a row that has E
	plan
}

// tile computes the heads of one KV head for the tile's rows, segment after segment.
func (c *Call) tile(t *tile, head int, w *Scratch) {
	n := t.rows() * c.group()
	w.total.reset(n, c.VDim)
	for seg := t.seg0; seg < t.seg1; seg++ {
		c.segment(t, head, seg, w)
		c.merge(&w.total, 0, &w.sums, 0, n)
	}
	c.finish(t, head, &w.total, 0)
}

// segment sums up one segment of keys by itself, into w.sums.
func (c *Call) segment(t *tile, head, seg int, w *Scratch) {
	group := c.group()
	n := t.rows() * group
	for r := range n {
		at := c.vector(t, head, r) * c.HeadDim
		w.q[r] = c.Q[at : at+c.HeadDim]
	}
	w.sums.reset(n, c.VDim)
	seq := int(c.RowSeq[t.lo])
	end := t.last
	if c.lists() {
		end = int(c.Positions[t.lo])
	}
	table := tableOf(c.Table, c.TableStride, seq, end, c.PageSize)
	first, last := max(t.first, seg*segment), min(t.last, (seg+1)*segment-1)
	for base := first / chunk * chunk; base <= last; base += chunk {
		start := base + max(first-base, 0)/Block*Block
		keys := min(last+1, base+chunk) - start
		blocks := (keys + Block - 1) / Block
		for b := range blocks {
			c.load(t, head, table, start+b*Block, b, w)
		}
		c.Level.Scores(w.s, stride, w.q[:n], w.kb[:blocks])
		for r, row := 0, t.lo; r < n; row++ {
			for range group {
				c.weigh(r, c.sees(row)-start, w.s[r*stride:][:blocks*Block], w)
				r++
			}
		}
		c.Level.Weighted(w.sums.o, c.VDim, w.s, stride, w.alpha[:n], w.vb[:blocks], keys)
	}
}

// lists says whether each row has a list of keys of its own.
func (c *Call) lists() bool { return c.IDs != nil || c.E != nil }

// listed is how many of IDs a row has.
func (c *Call) listed(row int) int {
	ids := c.IDs[row*c.Top:][:c.Top]
	return sort.Search(len(ids), func(i int) bool { return ids[i] < 0 })
}

// sees is the position of the last key that a row sees; in a list, its place there.
func (c *Call) sees(row int) int {
	if c.E != nil {
		return c.far(row) + c.near(row) - 1
	}
	if c.IDs != nil {
		return c.listed(row) - 1
	}
	if c.Last != nil {
		return int(c.Last[c.RowSeq[row]])
	}
	return int(c.Positions[row])
}

// weigh turns query r's scores of a chunk into weights. pos is the position of the last key that it sees, counted from the
// chunk's first score; it sees scores pos-window+1 … pos.
func (c *Call) weigh(r, pos int, s []float32, w *Scratch) {
	lo, hi := 0, min(pos+1, len(s))
	if c.Window > 0 {
		lo = max(0, pos-c.Window+1)
	}
	if hi <= lo {
		clear(s)
		w.alpha[r] = 1
		return
	}
	scale := c.Scale
	if c.Softcap > 0 {
		for i, x := range s[lo:hi] {
			s[lo+i] = c.Softcap * float32(math.Tanh(float64(x*scale/c.Softcap)))
		}
		scale = 1
	}
	hide(s[:lo])
	hide(s[hi:])
	w.sums.top[r], w.alpha[r] = c.Level.Weigh(s, scale, w.sums.top[r], &w.sums.sum[r])
}

func hide(s []float32) {
	for i := range s {
		s[i] = float32(math.Inf(-1))
	}
}

// load brings block b of a chunk, whose keys begin at position pos, or at that place in the row's list.
func (c *Call) load(t *tile, head int, table []int32, pos, b int, w *Scratch) {
	k, v := w.k[b*Block*c.HeadDim:], w.v[b*Block*c.VDim:]
	switch {
	case c.E != nil:
		w.kb[b] = c.mix(t.lo, table, pos, min(Block, t.last+1-pos), k, w.entry)
	case c.IDs != nil:
		w.kb[b] = c.gather(t.lo, table, c.IDs[t.lo*c.Top:][pos:min(pos+Block, t.last+1)], k)
	case c.Latent:
		w.kb[b] = c.K.block(c.Level, c.K.find(table, pos, c.PageSize), 0, k)
	default:
		w.kb[b] = c.K.block(c.Level, c.K.find(table, pos, c.PageSize), head, k)
		w.vb[b] = c.V.block(c.Level, c.V.find(table, pos, c.PageSize), head, v)
		return
	}
	w.vb[b] = transpose(v, w.kb[b], c.VDim)
}

// gather makes a block of the keys at up to 16 positions.
func (c *Call) gather(row int, table []int32, ids []int32, tmp []float32) []float32 {
	first, last := ids[0], ids[len(ids)-1]
	if first < 0 || last > c.Positions[row] || int(last) >= len(table)*c.PageSize {
		panic(fmt.Sprintf("position %d sees positions %d to %d", c.Positions[row], first, last))
	}
	if len(ids) == Block && first%Block == 0 && last == first+Block-1 { // a block as it is
		return c.K.block(c.Level, c.K.find(table, int(first), c.PageSize), 0, tmp)
	}
	for lane, id := range ids {
		c.K.column(tmp[lane:], c.K.find(table, int(id), c.PageSize), int(id)%Block)
	}
	return tmp[:c.HeadDim*Block]
}

// tableOf is a sequence's pages, enough for its last position.
func tableOf(table []int32, stride, seq, last, pageSize int) []int32 {
	table = table[seq*stride : (seq+1)*stride]
	if last >= len(table)*pageSize {
		panic(fmt.Sprintf("position %d is past the block table's %d pages", last, len(table)))
	}
	return table
}

// vector is the number of query vector r of a tile among the step's rows × heads.
func (c *Call) vector(t *tile, head, r int) int {
	return (t.lo+r/c.group())*c.Heads + head*c.group() + r%c.group()
}
