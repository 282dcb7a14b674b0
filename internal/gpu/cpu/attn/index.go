// SPDX-License-Identifier: MIT OR Apache-2.0

package attn

import (
	"math"

	"github.com/metrale/metrale/internal/gpu/cpu/vec"
)

// Index chooses the keys that each row's sparse attention sees: the Top ones of highest Σ_h w_h·relu(q_h·k), of equals the
// earlier. Their positions come rising, then -1.
type Index struct {
	Heads, Dim, Top int
	PageSize        int
	Level           vec.Level
	K               Pool      // of one head
	E               *Entries  // if not nil, what is chosen from in place of K: one for so many tokens
	Tokens          bool      // of E: IDs are positions, those of the entries chosen and then those behind the last whole entry
	Q               []float32 // [rows, heads*dim]
	W               []float32 // [rows, heads]
	Positions       []int32   // [rows]
	RowSeq          []int32   // [rows]
	Table           []int32   // [seqs, TableStride] pages
	TableStride     int
	IDs             []int32 // [rows, Width]
}

// Width is the length of a row's list.
func (x *Index) Width() int {
	if x.Tokens {
		return (x.Top+1)*x.E.Every - 1
	}
	return x.Top
}

// IndexSegment is the number of keys that a task scores.
const IndexSegment = 1024

// IndexScratch is one worker's memory.
type IndexScratch struct {
	q      [][]float32
	s      []float32 // [heads][stride]
	k      []float32 // converted blocks of a chunk
	entry  []float32 // a converted entry
	blocks [][]float32
	counts [256]int
}

// Grow makes the scratch large enough for the index.
func (s *IndexScratch) Grow(x *Index) {
	grow(&s.q, x.Heads)
	grow(&s.s, (x.Heads+4)*stride)
	grow(&s.k, chunk*x.Dim)
	grow(&s.entry, x.Dim)
	grow(&s.blocks, chunk/Block)
}

// Keys is how many keys a row chooses from, and whether it must choose at all.
func (x *Index) Keys(row int) (n int, choose bool) {
	if n = int(x.Positions[row]) + 1; x.E != nil {
		n /= x.E.Every
	}
	return n, n > x.Top
}

// Score computes the scores of one segment of a row's keys; scores are those of all keys.
func (x *Index) Score(row, seg int, scores []float32, s *IndexScratch) {
	for h := range x.Heads {
		s.q[h] = x.Q[(row*x.Heads+h)*x.Dim:][:x.Dim]
	}
	w := x.W[row*x.Heads:][:x.Heads]
	n, _ := x.Keys(row)
	end := min(n, (seg+1)*IndexSegment)
	table := tableOf(x.Table, x.TableStride, int(x.RowSeq[row]), int(x.Positions[row]), x.PageSize)
	for base := seg * IndexSegment; base < end; base += chunk {
		keys := min(chunk, end-base)
		blocks := (keys + Block - 1) / Block
		for b := range blocks {
			if x.E != nil {
				s.blocks[b] = x.E.columns(x.Level, table, base+b*Block, min(Block, end-base-b*Block), s.k[b*Block*x.Dim:][:Block*x.Dim], s.entry)
				continue
			}
			s.blocks[b] = x.K.block(x.Level, x.K.find(table, base+b*Block, x.PageSize), 0, s.k[b*Block*x.Dim:])
		}
		x.Level.Scores(s.s, stride, s.q[:x.Heads], s.blocks[:blocks])
		out := scores[base : base+keys]
		clear(out)
		for h, w := range w {
			for j, v := range s.s[h*stride:][:keys] {
				if v > 0 {
					out[j] += float32(w * v)
				}
			}
		}
	}
}

// Choose writes a row's list. Where the row chooses, scores are those of its keys.
func (x *Index) Choose(row int, scores []float32, s *IndexScratch) {
	ids := x.IDs[row*x.Width():][:x.Width()]
	x.choose(row, ids[:x.Top], scores, s)
	if x.Tokens {
		x.expand(int(x.Positions[row]), ids)
	}
}

// expand replaces the entries that ids begins with by their tokens, and adds those behind the last whole entry.
func (x *Index) expand(pos int, ids []int32) {
	every, n := x.E.Every, 0
	for n < x.Top && ids[n] >= 0 {
		n++
	}
	for i := n - 1; i >= 0; i-- { // from behind: an entry's tokens lie at or behind its place
		first := ids[i] * int32(every)
		for j := range every {
			ids[i*every+j] = first + int32(j)
		}
	}
	at := n * every
	for p := (pos + 1) / every * every; p <= pos; p++ {
		ids[at] = int32(p)
		at++
	}
	for ; at < len(ids); at++ {
		ids[at] = -1
	}
}

// choose writes the keys that a row chooses.
func (x *Index) choose(row int, ids []int32, scores []float32, s *IndexScratch) {
	n, choose := x.Keys(row)
	if !choose {
		for i := range ids {
			if ids[i] = int32(i); i >= n {
				ids[i] = -1
			}
		}
		return
	}
	least, equal := s.kth(scores[:n], x.Top)
	i := 0
	for j, v := range scores[:n] {
		switch key := order(v); {
		case key < least:
			continue
		case key == least && equal == 0:
			continue
		case key == least:
			equal--
		}
		ids[i] = int32(j)
		i++
	}
}

// order maps floats to integers that rise with them.
func order(v float32) uint32 {
	u := math.Float32bits(v)
	if u>>31 == 1 {
		return ^u
	}
	return u | 1<<31
}

// kth gives the order of the k-th largest of v, and how many of that order are among the k largest: digit by digit, from the
// highest.
func (s *IndexScratch) kth(v []float32, k int) (least uint32, equal int) {
	var mask uint32
	for shift := 24; shift >= 0; shift -= 8 {
		clear(s.counts[:])
		for _, x := range v {
			if u := order(x); u&mask == least {
				s.counts[u>>shift&0xff]++
			}
		}
		digit := 255
		for s.counts[digit] < k {
			k -= s.counts[digit]
			digit--
		}
		least |= uint32(digit) << shift
		mask |= 0xff << shift
	}
	return least, k
}
