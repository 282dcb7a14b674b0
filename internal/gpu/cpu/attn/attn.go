// SPDX-License-Identifier: MIT OR Apache-2.0

package attn

import (
	"fmt"
	"math"

	"github.com/metrale/metrale/internal/gpu/cpu/vec"
)

const (
	chunk     = 64 // keys between two looks at the maximum
	tileQuery = 32 // query vectors (rows × heads of a group) that a tile aims at
	quad      = 4  // query vectors that share loads in the inner loops
)

// Config are an attention's constants.
type Config struct {
	Heads, KVHeads int
	HeadDim, VDim  int
	Scale, Softcap float32 // Softcap 0: none; else scores are Softcap*tanh(score/Softcap)
	Window         int     // keys that a row sees, its own included; 0: all
	PageSize       int     // slots in a page, a multiple of Block
	Level          vec.Level
}

// Call is one step's attention.
type Call struct {
	Config
	K, V      Pool
	Q         []float32 // [rows, heads*head_dim]
	Y         []float32 // [rows, heads*v_dim]
	Positions []int32   // [rows]
	RowSeq    []int32   // [rows]
	Table     []int32   // [seqs, TableStride]
	// TableStride is the number of pages that the table has room for in each sequence.
	TableStride int
	tiles       []tile
	work        int
}

// tile is consecutive rows of one sequence.
type tile struct{ lo, hi int }

// Scratch is one worker's memory.
type Scratch struct {
	s, o       []float32 // [query][chunk] scores, then weights; [query][v_dim] sums
	sum        []float32 // [query][Block] lanes of the sum of weights
	top, alpha []float32 // [query] maximum; factor of older sums
	lo, hi     []int     // [query] keys of the chunk that it sees
	k, v       []float32 // converted blocks of a chunk
	kb, vb     [chunk / Block][]float32
}

// TileRows is the most rows of a tile.
func (c *Config) TileRows() int { return max(1, tileQuery*c.KVHeads/c.Heads) }

// Grow makes the scratch large enough for calls with that configuration.
func (w *Scratch) Grow(c *Config) {
	n := (c.TileRows()*c.Heads/c.KVHeads + quad - 1) / quad * quad
	grow(&w.s, n*chunk)
	grow(&w.o, n*c.VDim)
	grow(&w.sum, n*Block)
	grow(&w.top, n)
	grow(&w.alpha, n)
	grow(&w.lo, n)
	grow(&w.hi, n)
	grow(&w.k, chunk*c.HeadDim)
	grow(&w.v, chunk*c.VDim)
}

func grow[T any](s *[]T, n int) {
	if len(*s) < n {
		*s = make([]T, n)
	}
}

// Plan cuts the step's rows into tiles and gives the number of tasks. It keeps its list between steps.
func (c *Call) Plan(rows int) int {
	c.tiles, c.work = c.tiles[:0], 0
	most := c.TileRows()
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
	group := c.Heads / c.KVHeads
	n := (t.hi - t.lo) * group
	for r := range n {
		w.top[r] = float32(math.Inf(-1))
	}
	clear(w.o[:n*c.VDim])
	clear(w.sum[:n*Block])

	last := int(c.Positions[t.hi-1])
	first := 0
	if c.Window > 0 {
		first = max(0, int(c.Positions[t.lo])-c.Window+1)
	}
	seq := int(c.RowSeq[t.lo])
	table := c.Table[seq*c.TableStride : (seq+1)*c.TableStride]
	if last >= len(table)*c.PageSize {
		panic(fmt.Sprintf("position %d is past the block table's %d pages", last, len(table)))
	}
	for base := first / chunk * chunk; base <= last; base += chunk {
		b0 := max(first-base, 0) / Block
		b1 := (min(last+1-base, chunk) + Block - 1) / Block
		for b := b0; b < b1; b++ {
			at := c.find(table, base+b*Block)
			w.kb[b] = c.K.block(c.Level, at, head, w.k[b*Block*c.HeadDim:])
			w.vb[b] = c.V.block(c.Level, at, head, w.v[b*Block*c.VDim:])
		}
		c.scores(t, head, b0, b1, w)
		for r := range n {
			pos := int(c.Positions[t.lo+r/group])
			lo, hi := 0, min(pos+1-base, chunk)
			if c.Window > 0 {
				lo = max(0, pos-c.Window+1-base)
			}
			w.lo[r], w.hi[r] = lo, max(lo, hi)
			c.weigh(r, b0, b1, w)
		}
		c.accumulate(n, b0, b1, w)
	}
	for r := range n {
		var l float32
		for _, x := range w.sum[r*Block : (r+1)*Block] {
			l += x
		}
		row, h := t.lo+r/group, head*group+r%group
		at := (row*c.Heads + h) * c.VDim
		c.Level.Scale(c.Y[at:at+c.VDim], w.o[r*c.VDim:(r+1)*c.VDim], 1/l)
	}
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

// query is query vector r of a tile.
func (c *Call) query(t tile, head, r int) []float32 {
	group := c.Heads / c.KVHeads
	at := ((t.lo+r/group)*c.Heads + head*group + r%group) * c.HeadDim
	return c.Q[at : at+c.HeadDim]
}
