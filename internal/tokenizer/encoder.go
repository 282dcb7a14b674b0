// SPDX-License-Identifier: MIT OR Apache-2.0

package tokenizer

import "sync/atomic"

// encoder is the working memory of one Encode: what makes the next one fast and what need not be allocated again.
//
// Its caches remember the tokens of pieces. They are direct-mapped: a newer piece of the same hash takes the place.
type encoder struct {
	t      *Tokenizer
	out    []int32
	merger merger
	short  []shortEntry
	long   []longEntry
	pieces [][]string // by pre-tokenizer
}

// shortEntry is a piece of up to 15 bytes, in half a cache line.
//
//	key    the bytes, zero-padded, and in the last one their number
//	count  number of ids, 0 in an empty entry; tooMany: more than fit
type shortEntry struct {
	key   [2]uint64
	ids   [3]int32
	count int32
}

// longEntry is any piece of up to 64 bytes with up to 15 ids.
type longEntry struct {
	text        [64]byte
	ids         [15]int32
	size, count uint8
}

const (
	shortKey  = 15
	tooMany   = -1
	shortBits = 15 // 32,768 entries, 1 MB
	longBits  = 12 // 4,096 entries, 512 KB
)

// keyMask clears what lies past a short key.
var keyMask = func() (t [shortKey + 1][2]uint64) {
	for n := range t {
		for i := range n {
			t[n][i/8] |= 0xff << (i % 8 * 8)
		}
	}
	return
}()

// word appends the tokens of s[i:j], through the caches.
func (e *encoder) word(s string, i, j int) {
	n := j - i
	if n > shortKey {
		e.longWord(s[i:j])
		return
	}
	var k0, k1 uint64
	if i+16 <= len(s) {
		m := &keyMask[n]
		k0, k1 = load64(s, i)&m[0], load64(s, i+8)&m[1]
	} else {
		k0 = tail64(s[i:min(j, i+8)])
		if n > 8 {
			k1 = tail64(s[i+8 : j])
		}
	}
	k1 |= uint64(n) << 56
	c := &e.short[mix(k0, k1)>>(64-shortBits)&(1<<shortBits-1)]
	if c.key == [2]uint64{k0, k1} {
		switch c.count {
		case 1:
			e.out = append(e.out, c.ids[0])
			return
		case tooMany:
			e.longWord(s[i:j])
			return
		case 2, 3:
			e.out = append(e.out, c.ids[:c.count]...)
			return
		}
	}
	from := len(e.out)
	e.longWord(s[i:j])
	c.key = [2]uint64{k0, k1}
	if count := len(e.out) - from; count <= len(c.ids) {
		c.count = int32(copy(c.ids[:], e.out[from:]))
	} else {
		c.count = tooMany
	}
}

func (e *encoder) longWord(s string) {
	h := hashString(s)
	if len(s) > len(longEntry{}.text) {
		e.out = e.merger.encode(e.out, e.t.bpe, s, h)
		return
	}
	c := &e.long[h>>(64-longBits)&(1<<longBits-1)]
	if int(c.size) == len(s) && string(c.text[:c.size]) == s {
		e.out = append(e.out, c.ids[:c.count]...)
		return
	}
	from := len(e.out)
	e.out = e.merger.encode(e.out, e.t.bpe, s, h)
	if count := len(e.out) - from; count <= len(c.ids) {
		c.size, c.count = uint8(copy(c.text[:], s)), uint8(copy(c.ids[:], e.out[from:]))
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
	return &encoder{t: t, short: make([]shortEntry, 1<<shortBits), long: make([]longEntry, 1<<longBits)}
}

func (p *encoderPool) put(e *encoder) {
	e.out = nil
	for i := range p {
		if p[i].Load() == nil && p[i].CompareAndSwap(nil, e) {
			return
		}
	}
}
