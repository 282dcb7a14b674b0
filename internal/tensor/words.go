// SPDX-License-Identifier: MIT OR Apache-2.0

package tensor

import "encoding/binary"

// Words are random bytes that depend on their place alone: 8 at a time, the lowest first. Of SplitMix64, counting from Seed, a word
// has the bits of Mask; the others are those of Base. Who reads where does not matter, so a device may make them too.
type Words struct{ Seed, Mask, Base uint64 }

// At is the i-th word.
func (w Words) At(i uint64) uint64 {
	z := w.Seed + (i+1)*0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return (z^z>>31)&w.Mask | w.Base
}

// Read fills dst with the bytes from off on.
func (w Words) Read(off int64, dst []byte) {
	var word [8]byte
	i := uint64(off / 8)
	if skip := off % 8; skip > 0 {
		binary.LittleEndian.PutUint64(word[:], w.At(i))
		n := copy(dst, word[skip:])
		dst, i = dst[n:], i+1
	}
	for ; len(dst) >= 8; dst, i = dst[8:], i+1 {
		binary.LittleEndian.PutUint64(dst, w.At(i))
	}
	if len(dst) > 0 {
		binary.LittleEndian.PutUint64(word[:], w.At(i))
		copy(dst, word[:])
	}
}
