// SPDX-License-Identifier: MIT OR Apache-2.0

package attn

import (
	"fmt"

	"github.com/metrale/metrale/internal/gpu/cpu/vec"
	"github.com/metrale/metrale/internal/tensor"
)

// Entries is a pool of vectors that stand for Every tokens each, kept in the page of the last of them:
//
//	[pages] [PerPage] [Dim]
//
// Every divides the page size, or the page size divides Every; then a page has room for one entry, and only the pages that
// end a window hold one.
type Entries struct {
	D        tensor.DType // F32, BF16 or F16
	F32      []float32    // the elements, when D is F32
	Bits     []uint16     // the elements, when D is BF16 or F16
	Dim      int
	Every    int
	PageSize int
}

// PerPage is how many entries a page has room for.
func (e *Entries) PerPage() int { return max(1, e.PageSize/e.Every) }

// slot is the place of the entry whose last token lies at that slot of its page.
func (e *Entries) slot(page, offset int) int { return page*e.PerPage() + offset*e.PerPage()/e.PageSize }

// Append writes the entry whose last token has a slot; false if the pool does not have it.
func (e *Entries) Append(l vec.Level, slot int, x []float32) bool {
	at := e.slot(slot/e.PageSize, slot%e.PageSize) * e.Dim
	if at+e.Dim > len(e.F32)+len(e.Bits) {
		return false
	}
	switch e.D {
	case tensor.F32:
		copy(e.F32[at:at+e.Dim], x)
	case tensor.BF16:
		l.ToBF16(e.Bits[at:at+e.Dim], x)
	default:
		l.ToF16(e.Bits[at:at+e.Dim], x)
	}
	return true
}

// At is entry i of a sequence with that page table: the pool's own elements, or converted into tmp.
func (e *Entries) At(l vec.Level, table []int32, i int, tmp []float32) []float32 {
	last := i*e.Every + e.Every - 1
	at := e.slot(int(table[last/e.PageSize]), last%e.PageSize) * e.Dim
	switch e.D {
	case tensor.F32:
		return e.F32[at : at+e.Dim]
	case tensor.BF16:
		l.FromBF16(tmp[:e.Dim], e.Bits[at:at+e.Dim])
	default:
		l.FromF16(tmp[:e.Dim], e.Bits[at:at+e.Dim])
	}
	return tmp[:e.Dim]
}

// columns makes a block of keys, [Dim][16], of n entries from the first on. tmp holds an entry.
func (e *Entries) columns(l vec.Level, table []int32, first, n int, dst, tmp []float32) []float32 {
	for lane := range n {
		scatter(dst, e.At(l, table, first+lane, tmp), lane)
	}
	return dst
}

// far is how many entries a row of compressed attention sees.
func (c *Call) far(row int) int {
	if c.IDs != nil {
		return c.listed(row)
	}
	return (int(c.Positions[row]) + 1) / c.E.Every
}

// near is how many tokens it sees.
func (c *Call) near(row int) int { return min(int(c.Positions[row])+1, c.Near) }

// mix makes a block of n keys of a row's list, from place at on: first entries, then the tokens of the window.
func (c *Call) mix(row int, table []int32, at, n int, k, tmp []float32) []float32 {
	far, pos := c.far(row), int(c.Positions[row])
	first := pos + 1 - c.near(row) // token of the window
	for lane := range n {
		j := at + lane
		if j >= far {
			p := first + j - far
			c.K.column(k[lane:], c.K.find(table, p, c.PageSize), p%Block)
			continue
		}
		if c.IDs != nil {
			j = int(c.IDs[row*c.Top+j])
		}
		if (j+1)*c.E.Every > pos+1 {
			panic(fmt.Sprintf("position %d sees entry %d of %d tokens", pos, j, c.E.Every))
		}
		scatter(k, c.E.At(c.Level, table, j, tmp), lane)
	}
	return k[:c.HeadDim*Block]
}
