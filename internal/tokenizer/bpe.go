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

// mergeTable finds what a pair of tokens merges into, by open addressing.
//
//	slots   pair; rank and result. A rank is at most maxMerges, and noRank in an empty slot
//	filter  a bit for each pair's hash. Most pairs of a text do not merge; the filter is small enough to say so from a near
//	        cache, where the slots are not
type mergeTable struct {
	slots  []mergeSlot
	filter []uint64
	shift  int // from a hash to a slot
	fshift int // and to a bit of the filter
	ranks  int // given by add so far
}

type mergeSlot struct {
	pair uint64 // left id << 32 | right id
	merge
}

// merge is the rank of a pair and the token that it becomes.
type merge struct {
	rank   uint32
	result int32
}

const noRank = ^uint32(0)

func newMergeTable(n int) mergeTable {
	size := bits.Len(uint(n + n/2 + 8))
	fsize := min(size+2, 22)
	t := mergeTable{slots: make([]mergeSlot, 1<<size), filter: make([]uint64, 1<<fsize/64+1), shift: 64 - size, fshift: 64 - fsize}
	for i := range t.slots {
		t.slots[i].rank = noRank
	}
	return t
}

func pairOf(left, right int32) uint64 { return uint64(left)<<32 | uint64(right) }

// add gives the next rank to a pair. A pair that comes twice keeps its last rank.
func (t *mergeTable) add(left, right, result int32) {
	t.addRank(left, right, merge{uint32(t.ranks), result})
	t.ranks++
}

// addRank gives a rank to a pair. Pairs of one rank merge from the left.
func (t *mergeTable) addRank(left, right int32, m merge) {
	pair := pairOf(left, right)
	h := mix(pair, 0)
	t.filter[h>>t.fshift>>6] |= 1 << (h >> t.fshift & 63)
	mask := len(t.slots) - 1
	i := int(h >> t.shift)
	for t.slots[i].rank != noRank && t.slots[i].pair != pair {
		i = (i + 1) & mask
	}
	t.slots[i] = mergeSlot{pair, m}
}

// find is the pair's merge; its rank is noRank if there is none.
func (t *mergeTable) find(left, right int32) merge {
	pair := pairOf(left, right)
	h := mix(pair, 0)
	if t.filter[h>>t.fshift>>6]>>(h>>t.fshift&63)&1 == 0 {
		return merge{noRank, 0}
	}
	for i := int(h >> t.shift); ; i = (i + 1) & (len(t.slots) - 1) {
		if slot := &t.slots[i]; slot.pair == pair || slot.rank == noRank {
			return slot.merge
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

// merger merges symbols. Its arrays are kept between words.
type merger struct {
	ids []int32

	// For short words: by position of a symbol. A symbol that was merged into the one on its left is gone.
	prev8, next8 [maxShort]uint8
	key          [maxShort]uint32 // rank of the pair with the next symbol << 6 | position
	result       [maxShort]int32  // what that pair becomes

	// For long words: the same, and a heap of rank<<32 | position.
	merges     []merge
	prev, next []int32
	heap       []uint64
}

// maxShort is the number of symbols up to which looking through all pairs for the lowest rank beats a heap.
const maxShort = 64

// encode appends the tokens of a piece.
func (g *merger) encode(dst []int32, m *bpe, piece string) []int32 {
	if m.whole != nil {
		if id, ok := m.whole.id(piece); ok {
			return append(dst, id)
		}
	}
	g.ids = m.symbols(g.ids[:0], piece)
	switch n := len(g.ids); {
	case n < 2:
		return append(dst, g.ids...)
	case n <= maxShort:
		return g.short(dst, &m.merges)
	}
	return g.long(dst, &m.merges)
}

// short merges by repeated search of the lowest key, which is the lowest rank's leftmost pair.
func (g *merger) short(dst []int32, t *mergeTable) []int32 {
	const none = uint32((maxMerges + 1) << 6)
	ids := g.ids
	n := len(ids)
	for i := range n - 1 {
		g.pair(t, i, ids[i], ids[i+1])
		g.prev8[i+1], g.next8[i] = uint8(i), uint8(i+1)
	}
	g.next8[n-1] = uint8(n)
	keys := g.key[:(n+3)&^3]
	for i := n - 1; i < len(keys); i++ {
		keys[i] = none
	}
	for {
		a, b, c, d := none, none, none, none
		for k := keys; len(k) >= 4; k = k[4:] {
			a, b, c, d = min(a, k[0]), min(b, k[1]), min(c, k[2]), min(d, k[3])
		}
		best := min(a, b, c, d)
		if best >= none {
			break
		}
		at := int(best & (maxShort - 1))
		right := int(g.next8[at])
		after := int(g.next8[right])
		id := g.result[at]
		ids[at] = id
		keys[right] = none
		g.next8[at] = uint8(after)
		if after < n {
			g.prev8[after] = uint8(at)
			g.pair(t, at, id, ids[after])
		} else {
			keys[at] = none
		}
		if at > 0 {
			before := int(g.prev8[at])
			g.pair(t, before, ids[before], id)
		}
	}
	for i := 0; i < n; i = int(g.next8[i]) {
		dst = append(dst, ids[i])
	}
	return dst
}

// pair notes what the pair at a position becomes.
func (g *merger) pair(t *mergeTable, at int, left, right int32) {
	m := t.find(left, right)
	g.key[at] = min(m.rank, maxMerges+1)<<6 | uint32(at)
	g.result[at] = m.result
}

// long merges with a heap, in n log n.
func (g *merger) long(dst []int32, t *mergeTable) []int32 {
	ids := g.ids
	n := len(ids)
	if len(g.prev) < n {
		g.prev, g.next, g.merges = make([]int32, n), make([]int32, n), make([]merge, n)
	}
	prev, next, merges := g.prev[:n], g.next[:n], g.merges[:n]
	heap := g.heap[:0]
	for i := range ids {
		prev[i], next[i] = int32(i-1), int32(i+1)
		merges[i].rank = noRank
		if i+1 < n {
			merges[i] = t.find(ids[i], ids[i+1])
		}
		if merges[i].rank != noRank {
			heap = append(heap, uint64(merges[i].rank)<<32|uint64(i))
		}
	}
	heapify(heap)
	push := func(i int32) {
		merges[i] = t.find(ids[i], ids[next[i]])
		if merges[i].rank != noRank {
			heap = heapPush(heap, uint64(merges[i].rank)<<32|uint64(i))
		}
	}
	for len(heap) > 0 {
		var top uint64
		top, heap = heapPop(heap)
		at := int32(uint32(top))
		if merges[at].rank != uint32(top>>32) { // the pair is no more
			continue
		}
		right := next[at]
		ids[at] = merges[at].result
		merges[right].rank, ids[right] = noRank, -1
		next[at] = next[right]
		if int(next[at]) < n {
			prev[next[at]] = at
			push(at)
		} else {
			merges[at].rank = noRank
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
