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
	bytePairs *[1 << 16]merge // byte-level: what two bytes merge into; nil unless every byte has a token
	bytes     [256]int32      // byte-level: each byte's token; otherwise the fallback's <0xNN>; -1: none
	fallback  bool
	runes     runeTable
	unknown   int32 // -1: none
	fuse      bool  // neighbouring unknown symbols become one

	whole *vocab // ignore_merges: a piece that is one of these texts is that token; nil otherwise
}

// mergeTable finds what a pair of tokens merges into, by open addressing.
//
//	slots   a pair and its merge; the rank of an empty slot is noRank
//	filter  a bit for each pair's hash. Most pairs of a text do not merge; the filter is small enough to say so from a near
//	        cache, where the slots are not
type mergeTable struct {
	slots  []mergeSlot
	filter []uint64
	shift  int // from a hash to a slot
	fshift int // and to a bit of the filter
}

type mergeSlot struct {
	pair uint64 // left id << 32 | right id
	merge
}

// merge is the rank of a pair and the token that it becomes. Of two pairs that could merge the lower rank does, and of equal
// ones the leftmost.
type merge struct {
	rank   uint32
	result int32
}

// noRank is the rank of what does not merge.
const noRank = maxMerges + 1

// pairMerge is a pair and its merge.
type pairMerge struct {
	left, right int32
	merge
}

// newMergeTable makes a table of pairs. A pair that comes twice keeps its last merge.
func newMergeTable(pairs []pairMerge) mergeTable {
	size := bits.Len(uint(len(pairs) + len(pairs)/6 + 8))
	fsize := min(size+3, 22)
	t := mergeTable{slots: make([]mergeSlot, 1<<size), shift: 64 - size, filter: make([]uint64, 1<<fsize/64+1), fshift: 64 - fsize}
	for i := range t.slots {
		t.slots[i].rank = noRank
	}
	for _, p := range pairs {
		pair, h := hashPair(p.left, p.right)
		t.filter[h>>t.fshift>>6] |= 1 << (h >> t.fshift & 63)
		*t.slot(pair, h) = mergeSlot{pair, p.merge}
	}
	return t
}

func hashPair(left, right int32) (pair, hash uint64) {
	pair = uint64(left)<<32 | uint64(right)
	return pair, mix(pair, 0)
}

// slot is the one that holds the pair, or the empty one where it would be.
func (t *mergeTable) slot(pair, h uint64) *mergeSlot {
	for i := int(h >> t.shift); ; i = (i + 1) & (len(t.slots) - 1) {
		if s := &t.slots[i]; s.pair == pair || s.rank == noRank {
			return s
		}
	}
}

// find is the pair's merge; its rank is noRank if there is none.
func (t *mergeTable) find(left, right int32) merge {
	pair, h := hashPair(left, right)
	if t.filter[h>>t.fshift>>6]>>(h>>t.fshift&63)&1 == 0 {
		return merge{rank: noRank}
	}
	return t.slot(pair, h).merge
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

	short shortWord

	// For long words: by position of a symbol, and a heap of rank<<32 | position.
	merges     []merge
	prev, next []int32
	heap       []uint64
}

// maxShort is the number of symbols up to which looking through all pairs for the lowest rank beats a heap.
const maxShort = 64

// shortWord is up to maxShort symbols. One that was merged into the symbol on its left is gone.
type shortWord struct {
	n          int
	id         [maxShort]int32
	prev, next [maxShort]uint8
	key        [maxShort]uint32 // rank of the pair with the next symbol << 6 | position; noKey if it does not merge
	result     [maxShort]int32  // what that pair becomes
}

const noKey = uint32(noRank << 6)

// encode appends the tokens of a piece whose hash is h.
func (g *merger) encode(dst []int32, m *bpe, piece string, h uint64) []int32 {
	if m.whole != nil {
		if id, ok := m.whole.idHashed(piece, h); ok {
			return append(dst, id)
		}
	}
	w := &g.short
	if m.bytePairs != nil && len(piece) <= maxShort {
		w.n = len(piece)
		before := 0
		for i := range w.n {
			b := int(piece[i])
			w.id[i] = m.bytes[b]
			if i > 0 {
				w.set(i-1, m.bytePairs[before<<8|b])
			}
			before = b
		}
		return w.merge(dst, &m.merges)
	}
	g.ids = m.symbols(g.ids[:0], piece)
	if len(g.ids) > maxShort {
		return g.long(dst, &m.merges)
	}
	w.n = copy(w.id[:], g.ids)
	for i := range w.n - 1 {
		w.set(i, m.merges.find(w.id[i], w.id[i+1]))
	}
	return w.merge(dst, &m.merges)
}

// set notes what the pair at a position merges into.
func (w *shortWord) set(at int, m merge) {
	w.key[at&(maxShort-1)] = m.rank<<6 | uint32(at)
	w.result[at&(maxShort-1)] = m.result
}

// merge appends the tokens that are left when nothing merges any more: it looks for the lowest key, which is the leftmost
// pair of the lowest rank, again and again. All pairs have been set.
func (w *shortWord) merge(dst []int32, t *mergeTable) []int32 {
	const mask = maxShort - 1 // spares bounds checks
	n := w.n
	if n < 2 {
		return append(dst, w.id[:n]...)
	}
	for i := 1; i < n; i++ {
		w.prev[i&mask], w.next[(i-1)&mask] = uint8(i-1), uint8(i)
	}
	w.next[n-1] = uint8(n)
	keys := w.key[:(n+3)&^3]
	for i := n - 1; i < len(keys); i++ {
		keys[i] = noKey
	}
	for {
		a, b, c, d := noKey, noKey, noKey, noKey
		for k := keys; len(k) >= 4; k = k[4:] {
			a, b, c, d = min(a, k[0]), min(b, k[1]), min(c, k[2]), min(d, k[3])
		}
		best := min(a, b, c, d)
		if best >= noKey {
			break
		}
		at := int(best & mask)
		right := int(w.next[at])
		after := int(w.next[right&mask])
		id := w.result[at]
		w.id[at] = id
		w.key[right&mask] = noKey
		w.next[at] = uint8(after)
		if after < n {
			w.prev[after&mask] = uint8(at)
			w.set(at, t.find(id, w.id[after&mask]))
		} else {
			w.key[at] = noKey
		}
		if at > 0 {
			before := int(w.prev[at])
			w.set(before, t.find(w.id[before&mask], id))
		}
	}
	for i := 0; i < n; i = int(w.next[i&mask]) {
		dst = append(dst, w.id[i&mask])
	}
	return dst
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
