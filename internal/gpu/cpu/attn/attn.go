// SPDX-License-Identifier: MIT OR Apache-2.0

package attn

import (
	"fmt"
	"math"

	"github.com/metrale/metrale/internal/gpu/cpu/vec"
)

const (
	chunk     = 64            // keys between two looks at the maximum
	stride    = chunk + Block // of a query's scores: vec.Scores wants a spare block
	tileQuery = 32            // query vectors (rows × heads of a group) that a tile aims at
)

// Config are an attention's constants.
type Config struct {
	Heads, KVHeads int
	HeadDim, VDim  int
	Scale, Softcap float32 // Scale > 0; Softcap 0: none, else scores are Softcap*tanh(score/Softcap)
	Window         int     // keys that a row sees, its own included; 0: all
	PageSize       int     // slots in a page, a multiple of Block
	Level          vec.Level
}

// group is the number of query heads that share a KV head.
func (c *Config) group() int { return c.Heads / c.KVHeads }

// tileRows is the most rows of a tile.
func (c *Config) tileRows() int { return max(1, tileQuery/c.group()) }

// Call is one step's attention.
type Call struct {
	Config
	K, V        Pool
	Q           []float32 // [rows, heads*head_dim]
	Y           []float32 // [rows, heads*v_dim]
	Positions   []int32   // [rows]
	RowSeq      []int32   // [rows]
	Table       []int32   // [seqs, TableStride] pages
	TableStride int
	tiles       []tile
	work        int
}

// tile is consecutive rows of one sequence.
type tile struct{ lo, hi int }

// Scratch is one worker's memory.
type Scratch struct {
	q          [][]float32             // query vectors of the tile
	s          []float32               // [query][stride] scores, then weights
	o          []float32               // [query][v_dim] sums of weighted values
	sum        [][vec.KeyBlock]float32 // [query] sums of weights, by key mod 16
	top, alpha []float32               // [query] maximum; factor of the sums so far
	k, v       []float32               // converted blocks of a chunk
	kb, vb     [][]float32             // the chunk's blocks
}

// Grow makes the scratch large enough for calls with that configuration.
func (w *Scratch) Grow(c *Config) {
	n := (c.tileRows()*c.group() + 3) &^ 3
	grow(&w.q, n)
	grow(&w.s, n*stride)
	grow(&w.o, n*c.VDim)
	grow(&w.sum, n)
	grow(&w.top, n)
	grow(&w.alpha, n)
	grow(&w.k, chunk*c.HeadDim)
	grow(&w.v, chunk*c.VDim)
	grow(&w.kb, chunk/Block)
	grow(&w.vb, chunk/Block)
}

func grow[T any](s *[]T, n int) {
	if len(*s) < n {
		*s = make([]T, n)
	}
}

// Plan cuts the step's rows into tiles and gives the number of tasks. It keeps its list between steps.
func (c *Call) Plan(rows int) int {
	c.tiles, c.work = c.tiles[:0], 0
	most := c.tileRows()
	for lo := 0; lo < rows; {
		hi := lo + 1
		for hi < rows && hi-lo < most && c.RowSeq[hi] == c.RowSeq[lo] && c.Positions[hi] == c.Positions[hi-1]+1 {
			hi++
		}
		c.tiles = append(c.tiles, tile{lo, hi})
		c.work += (hi - lo) * (int(c.Positions[hi-1]) + 1)
		lo = hi
	}
	return len(c.tiles) * c.KVHeads
}

// Work is the number of multiply-adds of the step that Plan saw, windows left out.
func (c *Call) Work() int { return c.work * c.Heads * (c.HeadDim + c.VDim) }

// Run computes task i of Plan. Tasks of the last rows come first: in a prompt they are the longest.
func (c *Call) Run(i int, w *Scratch) {
	t := c.tiles[len(c.tiles)-1-i/c.KVHeads]
	c.tile(t, i%c.KVHeads, w)
}

// tile computes the heads of one KV head for a tile's rows.
func (c *Call) tile(t tile, head int, w *Scratch) {
	n := (t.hi - t.lo) * c.group()
	for r := range n {
		at := c.vector(t, head, r) * c.HeadDim
		w.q[r] = c.Q[at : at+c.HeadDim]
		w.top[r] = float32(math.Inf(-1))
		w.sum[r] = [vec.KeyBlock]float32{}
	}
	clear(w.o[:n*c.VDim])

	first, last := c.visible(t)
	table := c.table(t, last)
	for base := first / chunk * chunk; base <= last; base += chunk {
		start := base + max(first-base, 0)/Block*Block
		keys := min(last+1, base+chunk) - start
		blocks := (keys + Block - 1) / Block
		for b := range blocks {
			at := c.find(table, start+b*Block)
			w.kb[b] = c.K.block(c.Level, at, head, w.k[b*Block*c.HeadDim:])
			w.vb[b] = c.V.block(c.Level, at, head, w.v[b*Block*c.VDim:])
		}
		c.Level.Scores(w.s, stride, w.q[:n], w.kb[:blocks])
		for r := range n {
			c.weigh(r, int(c.Positions[t.lo+r/c.group()])-start, w.s[r*stride:][:blocks*Block], w)
		}
		c.Level.Weighted(w.o, c.VDim, w.s, stride, w.alpha[:n], w.vb[:blocks], keys)
	}
	for r := range n {
		var l float32
		for _, x := range w.sum[r] {
			l += x
		}
		at := c.vector(t, head, r) * c.VDim
		c.Level.Scale(c.Y[at:at+c.VDim], w.o[r*c.VDim:(r+1)*c.VDim], 1/l)
	}
}

// weigh turns query r's scores of a chunk into weights. pos is the query's position counted from the chunk's first score; it
// sees scores pos-window+1 … pos.
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
	w.top[r], w.alpha[r] = c.Level.Weigh(s, scale, w.top[r], &w.sum[r])
}

func hide(s []float32) {
	for i := range s {
		s[i] = float32(math.Inf(-1))
	}
}

// visible is the first and last position that some row of the tile sees.
func (c *Call) visible(t tile) (first, last int) {
	if c.Window > 0 {
		first = max(0, int(c.Positions[t.lo])-c.Window+1)
	}
	return first, int(c.Positions[t.hi-1])
}

// table is the tile's sequence's pages, enough for position last.
func (c *Call) table(t tile, last int) []int32 {
	seq := int(c.RowSeq[t.lo])
	table := c.Table[seq*c.TableStride : (seq+1)*c.TableStride]
	if last >= len(table)*c.PageSize {
		panic(fmt.Sprintf("position %d is past the block table's %d pages", last, len(table)))
	}
	return table
}

// find gives the pool's block that holds a position.
func (c *Call) find(table []int32, pos int) int {
	page := int(table[pos/c.PageSize])
	at := page*(c.PageSize/Block) + pos%c.PageSize/Block
	if page < 0 || at >= c.K.blocks() || at >= c.V.blocks() {
		panic(fmt.Sprintf("page %d is not in the pool", page))
	}
	return at
}

// vector is the number of query vector r of a tile among the step's rows × heads.
func (c *Call) vector(t tile, head, r int) int {
	return (t.lo+r/c.group())*c.Heads + head*c.group() + r%c.group()
}
