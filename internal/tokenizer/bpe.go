// SPDX-License-Identifier: MIT OR Apache-2.0

package tokenizer

import "math/bits"

// bpe is byte-pair encoding: a piece becomes symbols, and while two neighbours can merge, the pair of the lowest rank,
// leftmost first, does.
type bpe struct {
	merges mergeTable

	// What a piece's symbols are. Byte-level: one per byte. Otherwise one per code point; one that is not in the vocabulary
	// becomes its bytes' tokens if all of them exist, else the unknown token, else nothing.
	byteLevel bool
	bytes     [256]int32 // byte-level: each byte's token; otherwise the fallback's <0xNN>; -1: none
	fallback  bool
	runes     runeTable
	unknown   int32 // -1: none
	fuse      bool  // neighbouring unknown symbols become one

	whole *vocab // ignore_merges: a piece that is one of these texts is that token; nil otherwise
}

const noRank = ^uint32(0)

// mergeTable finds the rank of a pair of tokens, by open addressing.
//
//	slot  left id (21 bits) | right id (21) | rank (22); all ones: empty
type mergeTable struct {
	slots  []uint64
	shift  int     // from a hash to an index
	result []int32 // by rank: the token that the pair merges into
}

const (
	rankBits = 22
	rankMask = 1<<rankBits - 1
	noSlot   = ^uint64(0)
)

func newMergeTable(n int) mergeTable {
	size := bits.Len(uint(n + n/2 + 8))
	t := mergeTable{slots: make([]uint64, 1<<size), shift: 64 - size, result: make([]int32, 0, n)}
	for i := range t.slots {
		t.slots[i] = noSlot
	}
	return t
}

func pairKey(left, right int32) uint64 { return uint64(left)<<21 | uint64(right) }

// add gives the next rank to a pair. A pair that comes twice keeps its last rank.
func (t *mergeTable) add(left, right, result int32) {
	key, rank := pairKey(left, right), uint64(len(t.result))
	t.result = append(t.result, result)
	mask := len(t.slots) - 1
	i := int(key * mix1 >> t.shift)
	for t.slots[i] != noSlot && t.slots[i]>>rankBits != key {
		i = (i + 1) & mask
	}
	t.slots[i] = key<<rankBits | rank
}

// rank is the pair's rank, or noRank.
func (t *mergeTable) rank(left, right int32) uint32 {
	key := pairKey(left, right)
	for i := int(key * mix1 >> t.shift); ; i = (i + 1) & (len(t.slots) - 1) {
		slot := t.slots[i]
		if slot>>rankBits == key {
			return uint32(slot & rankMask)
		}
		if slot == noSlot {
			return noRank
		}
	}
}

// runeTable maps code points to tokens, in pages of 256.
type runeTable struct {
	pages [0x110000 >> 8]*[256]int32 // token+1
}

func (t *runeTable) set(r rune, id int32) {
	p := &t.pages[r>>8]
	if *p == nil {
		*p = new([256]int32)
	}
	(*p)[r&255] = id + 1
}

func (t *runeTable) get(r rune) int32 {
	if p := t.pages[r>>8]; p != nil {
		return p[r&255] - 1
	}
	return -1
}

// symbols appends the piece's first symbols.
func (m *bpe) symbols(dst []int32, piece string) []int32 {
	pending := false // an unknown symbol that a following one may fuse with
	known := func(id int32) {
		if pending {
			dst = append(dst, m.unknown)
			pending = false
		}
		dst = append(dst, id)
	}
	missing := func() {
		if m.unknown < 0 {
			return
		}
		if pending && !m.fuse {
			dst = append(dst, m.unknown)
		}
		pending = true
	}
	if m.byteLevel {
		for i := 0; i < len(piece); i++ {
			if id := m.bytes[piece[i]]; id >= 0 {
				known(id)
			} else {
				missing()
			}
		}
	} else {
		for i := 0; i < len(piece); {
			r, n := runeAt(piece, i)
			if id := m.runes.get(r); id >= 0 {
				known(id)
			} else if m.hasBytes(piece[i : i+n]) {
				for k := i; k < i+n; k++ { // before a pending unknown symbol, as the reference has it
					dst = append(dst, m.bytes[piece[k]])
				}
			} else {
				missing()
			}
			i += n
		}
	}
	if pending {
		dst = append(dst, m.unknown)
	}
	return dst
}

// hasBytes says whether every byte has a fallback token.
func (m *bpe) hasBytes(s string) bool {
	if !m.fallback {
		return false
	}
	for i := 0; i < len(s); i++ {
		if m.bytes[s[i]] < 0 {
			return false
		}
	}
	return true
}

// merger merges symbols in place. Its arrays are kept between words.
type merger struct {
	ids  []int32
	rank []uint32 // of the pair of each symbol with the next one

	// Only for long words: a list of the symbols still there, and a heap of rank<<32 | position.
	prev, next []int32
	heap       []uint64
}

// longWord is the number of symbols from which a heap beats looking for the lowest rank again and again.
const longWord = 48

// encode appends the tokens of a piece.
func (g *merger) encode(dst []int32, m *bpe, piece string) []int32 {
	if m.whole != nil {
		if id, ok := m.whole.id(piece); ok {
			return append(dst, id)
		}
	}
	g.ids = m.symbols(g.ids[:0], piece)
	if len(g.ids) < 2 {
		return append(dst, g.ids...)
	}
	if len(g.ids) < longWord {
		return append(dst, g.short(&m.merges)...)
	}
	return g.long(dst, &m.merges)
}

func (g *merger) ranks(t *mergeTable) []uint32 {
	n := len(g.ids)
	if cap(g.rank) < n {
		g.rank = make([]uint32, n, n+n/2)
	}
	rank := g.rank[:n]
	for i := 0; i+1 < n; i++ {
		rank[i] = t.rank(g.ids[i], g.ids[i+1])
	}
	rank[n-1] = noRank
	return rank
}

// short merges by repeated search of the lowest rank.
func (g *merger) short(t *mergeTable) []int32 {
	ids, rank := g.ids, g.ranks(t)
	for {
		best, at := noRank, 0
		for i, r := range rank {
			if r < best {
				best, at = r, i
			}
		}
		if best == noRank {
			return ids
		}
		ids[at] = t.result[best]
		n := len(ids) - 1
		copy(ids[at+1:], ids[at+2:])
		copy(rank[at:], rank[at+1:])
		ids, rank = ids[:n], rank[:n]
		if at > 0 {
			rank[at-1] = t.rank(ids[at-1], ids[at])
		}
		if at+1 < n {
			rank[at] = t.rank(ids[at], ids[at+1])
		}
	}
}

// long merges with a heap, in n log n.
func (g *merger) long(dst []int32, t *mergeTable) []int32 {
	ids, rank := g.ids, g.ranks(t)
	n := len(ids)
	if cap(g.prev) < n {
		g.prev, g.next = make([]int32, n), make([]int32, n)
	}
	prev, next := g.prev[:n], g.next[:n]
	heap := g.heap[:0]
	for i := range ids {
		prev[i], next[i] = int32(i-1), int32(i+1)
		if rank[i] != noRank {
			heap = append(heap, uint64(rank[i])<<32|uint64(i))
		}
	}
	heapify(heap)
	push := func(i int32) {
		rank[i] = t.rank(ids[i], ids[next[i]])
		if rank[i] != noRank {
			heap = heapPush(heap, uint64(rank[i])<<32|uint64(i))
		}
	}
	for len(heap) > 0 {
		var top uint64
		top, heap = heapPop(heap)
		at, r := int32(uint32(top)), uint32(top>>32)
		if rank[at] != r { // the pair is no more
			continue
		}
		right := next[at]
		ids[at] = t.result[r]
		rank[right], ids[right] = noRank, -1
		next[at] = next[right]
		if int(next[at]) < n {
			prev[next[at]] = at
			push(at)
		} else {
			rank[at] = noRank
		}
		if prev[at] >= 0 {
			push(prev[at])
		}
	}
	g.heap = heap
	for _, id := range ids {
		if id >= 0 {
			dst = append(dst, id)
		}
	}
	return dst
}

// A binary heap of numbers, the lowest first.

func heapify(h []uint64) {
	for i := len(h)/2 - 1; i >= 0; i-- {
		siftDown(h, i)
	}
}

func siftDown(h []uint64, i int) {
	x := h[i]
	for {
		c := 2*i + 1
		if c >= len(h) {
			break
		}
		if c+1 < len(h) && h[c+1] < h[c] {
			c++
		}
		if h[c] >= x {
			break
		}
		h[i] = h[c]
		i = c
	}
	h[i] = x
}

func heapPush(h []uint64, x uint64) []uint64 {
	h = append(h, x)
	i := len(h) - 1
	for i > 0 && h[(i-1)/2] > x {
		h[i] = h[(i-1)/2]
		i = (i - 1) / 2
	}
	h[i] = x
	return h
}

func heapPop(h []uint64) (uint64, []uint64) {
	top, n := h[0], len(h)-1
	h[0] = h[n]
	h = h[:n]
	if n > 0 {
		siftDown(h, 0)
	}
	return top, h
}
