// SPDX-License-Identifier: MIT OR Apache-2.0

package tokenizer

import "sync/atomic"

// encoder is the working memory of one Encode: what makes the next one fast and what need not be allocated again.
type encoder struct {
	t      *Tokenizer
	out    []int32
	merger merger
	cache  []cacheEntry
	pieces [][]string // by pre-tokenizer
}

// cacheEntry remembers the tokens of a short piece, in one cache line. The cache is direct-mapped: a newer piece of the
// same hash takes the place.
//
//	key    the piece's bytes, zero-padded
//	size   length of the piece; 0: empty
//	count  number of ids
type cacheEntry struct {
	key   [3]uint64
	size  uint8
	count uint8
	ids   [9]int32
}

const (
	maxKey    = 24
	cacheBits = 15 // 32,768 entries of 64 bytes
)

// keyMask clears what lies past a key's size.
var keyMask = func() (t [maxKey + 1][3]uint64) {
	for n := range t {
		for i := range n {
			t[n][i/8] |= 0xff << (i % 8 * 8)
		}
	}
	return
}()

// word appends the tokens of s[i:j], through the cache.
func (e *encoder) word(s string, i, j int) {
	n := j - i
	if n > maxKey {
		e.out = e.merger.encode(e.out, e.t.bpe, s[i:j])
		return
	}
	var k0, k1, k2 uint64
	if i+maxKey <= len(s) {
		m := &keyMask[n]
		k0, k1, k2 = load64(s, i)&m[0], load64(s, i+8)&m[1], load64(s, i+16)&m[2]
	} else {
		k0 = tail64(s[i:min(j, i+8)])
		if n > 8 {
			k1 = tail64(s[i+8 : min(j, i+16)])
		}
		if n > 16 {
			k2 = tail64(s[i+16 : j])
		}
	}
	h := mix(k0^k2*mix1, k1+uint64(n))
	c := &e.cache[h>>(64-cacheBits)&(1<<cacheBits-1)]
	if c.key == [3]uint64{k0, k1, k2} && c.size == uint8(n) {
		if c.count == 1 {
			e.out = append(e.out, c.ids[0])
		} else {
			e.out = append(e.out, c.ids[:c.count]...)
		}
		return
	}
	from := len(e.out)
	e.out = e.merger.encode(e.out, e.t.bpe, s[i:j])
	if count := len(e.out) - from; count <= len(c.ids) {
		c.key, c.size, c.count = [3]uint64{k0, k1, k2}, uint8(n), uint8(count)
		copy(c.ids[:], e.out[from:])
	}
}

// encoderPool keeps a few encoders with their caches: as many as encode at the same time, up to its length.
type encoderPool [16]atomic.Pointer[encoder]

func (p *encoderPool) get(t *Tokenizer) *encoder {
	for i := range p {
		if p[i].Load() == nil {
			continue
		}
		if e := p[i].Swap(nil); e != nil {
			return e
		}
	}
	return &encoder{t: t, cache: make([]cacheEntry, 1<<cacheBits)}
}

func (p *encoderPool) put(e *encoder) {
	e.out = nil
	for i := range p {
		if p[i].Load() == nil && p[i].CompareAndSwap(nil, e) {
			return
		}
	}
}
