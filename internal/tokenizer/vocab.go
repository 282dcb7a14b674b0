// SPDX-License-Identifier: MIT OR Apache-2.0

package tokenizer

import "math/bits"

// maxID bounds token ids, and with them memory. maxMerges bounds ranks, which share 32 bits with a position (see merger).
const (
	maxID     = 1<<21 - 1
	maxMerges = 1<<25 - 1
)

// vocab is the tokens of a model: id to text and text to id. It is built once by add and seal.
//
//	text    all tokens' texts, one after the other
//	span    span[id]: where its text lies; {1, 0} for an id without token
//	slots   open addressing over the texts: hash (high 32 bits) | id+1 (low 32), 0 for empty; len is a power of two
//	filter  nil, or a bit for each text's hash: for a vocabulary that is mostly asked for texts that it does not have
type vocab struct {
	text   string
	span   []span
	slots  []uint64
	filter []uint64

	buf []byte // text while building
}

type span struct{ from, to uint32 }

// hole is the span of an id without token.
var hole = span{1, 0}

// add gives an id its text. It says false if the id already has one.
func (v *vocab) add(text []byte, id int) bool {
	for len(v.span) <= id {
		v.span = append(v.span, hole)
	}
	if v.span[id] != hole {
		return false
	}
	from := uint32(len(v.buf))
	v.buf = append(v.buf, text...)
	v.span[id] = span{from, uint32(len(v.buf))}
	return true
}

// seal ends the building. It gives two ids of the same text, or -1, -1.
func (v *vocab) seal() (int, int) {
	v.text, v.buf = string(v.buf), nil
	v.slots = make([]uint64, 1<<bits.Len(uint(len(v.span)+len(v.span)/4+1)))
	for id := range v.span {
		t, ok := v.token(int32(id))
		if !ok {
			continue
		}
		h := hashString(t)
		i := v.find(t, h)
		if v.slots[i] != 0 {
			return int(uint32(v.slots[i])) - 1, id
		}
		v.slots[i] = h&^0xffffffff | uint64(id+1)
	}
	return -1, -1
}

// find is the slot that holds text, or the empty one where it would be.
func (v *vocab) find(text string, h uint64) int {
	mask := len(v.slots) - 1
	for i := int(h>>8) & mask; ; i = (i + 1) & mask {
		slot := v.slots[i]
		if slot == 0 {
			return i
		}
		if slot>>32 == h>>32 {
			if s := v.span[uint32(slot)-1]; v.text[s.from:s.to] == text {
				return i
			}
		}
	}
}

// id is the id of a token's text.
func (v *vocab) id(text string) (int32, bool) {
	return v.idHashed(text, hashString(text))
}

// idHashed is id for a text whose hash is known.
func (v *vocab) idHashed(text string, h uint64) (int32, bool) {
	if len(v.slots) == 0 {
		return 0, false
	}
	if v.filter != nil && v.filter[v.bit(h)>>6]>>(v.bit(h)&63)&1 == 0 {
		return 0, false
	}
	slot := v.slots[v.find(text, h)]
	return int32(uint32(slot)) - 1, slot != 0
}

// addFilter makes the filter.
func (v *vocab) addFilter() {
	v.filter = make([]uint64, (len(v.slots)*8+63)/64)
	for id := range v.span {
		if t, ok := v.token(int32(id)); ok {
			b := v.bit(hashString(t))
			v.filter[b>>6] |= 1 << (b & 63)
		}
	}
}

func (v *vocab) bit(h uint64) int { return int(h>>8) & (len(v.filter)*64 - 1) }

// token is the text of an id.
func (v *vocab) token(id int32) (string, bool) {
	if id < 0 || int(id) >= len(v.span) || v.span[id] == hole {
		return "", false
	}
	s := v.span[id]
	return v.text[s.from:s.to], true
}

// load64 is the first eight bytes of s[i:] as a little-endian number.
func load64(s string, i int) uint64 {
	_ = s[i+7]
	return uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24 |
		uint64(s[i+4])<<32 | uint64(s[i+5])<<40 | uint64(s[i+6])<<48 | uint64(s[i+7])<<56
}

// tail64 is up to seven bytes as a little-endian number.
func tail64(s string) (x uint64) {
	for i := len(s) - 1; i >= 0; i-- {
		x = x<<8 | uint64(s[i])
	}
	return x
}

const (
	mix1 = 0x9e3779b97f4a7c15
	mix2 = 0xd6e8feb86659fd93
)

func mix(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a^mix1, b^mix2)
	return hi ^ lo
}

func hashString(s string) uint64 {
	h := uint64(len(s)) * mix2
	for ; len(s) >= 8; s = s[8:] {
		h = mix(h, load64(s, 0))
	}
	return mix(h, tail64(s))
}
