// SPDX-License-Identifier: MIT OR Apache-2.0

package linear

import (
	"encoding/binary"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/tensor"
)

var le = binary.LittleEndian

// Pack writes rows [row, row+rows) of a matrix [n, k], stored as src, into dst, the packed matrix. row is a multiple of
// PackRows, and so is rows unless it ends at n. Rows that fill up the last panel become 0. Concurrent calls may pack
// disjoint rows of one matrix.
func Pack(dst []byte, d tensor.DType, n, k, row, rows int64, src []byte) error {
	f, err := formatOf(d, k)
	if err != nil {
		return err
	}
	if row < 0 || rows < 0 || row+rows > n || row%lanes != 0 || rows%lanes != 0 && row+rows != n {
		return diag.Errorf(diag.Internal, "linear: rows %d to %d of %d do not begin and end with panels", row, row+rows, n)
	}
	size, rowBytes := int(n+lanes-1)/lanes*f.panelBytes(int(k)), int(d.Bytes(k))
	if len(src) != int(rows)*rowBytes || len(dst) < size {
		return diag.Errorf(diag.Internal, "linear: packing %d bytes as %d rows of %d %v into %d bytes", len(src), rows, k, d, len(dst))
	}
	panel := f.panelBytes(int(k))
	for at := int(row) / lanes * panel; len(src) > 0; at += panel {
		part := src[:min(len(src), lanes*rowBytes)]
		switch {
		case f.quantised():
			packBlocks(dst[at:at+panel], f, d, rowBytes, part)
		case d == tensor.BF16:
			packPairs(dst[at:at+panel], int(k), rowBytes, part)
		case d == tensor.F16:
			packHalves(dst[at:at+panel], int(k), rowBytes, part)
		case f.float8:
			packFloat8(dst[at:at+panel], f, rowBytes, part)
		default:
			packFloats(dst[at:at+panel], int(k), rowBytes, part)
		}
		src = src[len(part):]
	}
	return nil
}

// packFloats writes f32 [k][16].
func packFloats(dst []byte, k, rowBytes int, src []byte) {
	for c := range lanes {
		if c*rowBytes >= len(src) {
			zeroLane(dst, c, 4)
			continue
		}
		row := src[c*rowBytes:][:rowBytes]
		for i := range k {
			le.PutUint32(dst[(i*lanes+c)*4:], le.Uint32(row[4*i:]))
		}
	}
}

// packHalves writes f16 [k][16].
func packHalves(dst []byte, k, rowBytes int, src []byte) {
	for c := range lanes {
		if c*rowBytes >= len(src) {
			zeroLane(dst, c, 2)
			continue
		}
		row := src[c*rowBytes:][:rowBytes]
		for i := range k {
			le.PutUint16(dst[(i*lanes+c)*2:], le.Uint16(row[2*i:]))
		}
	}
}

// packPairs writes bf16 [k/2][16][2]; an odd last pair ends with 0.
func packPairs(dst []byte, k, rowBytes int, src []byte) {
	for c := range lanes {
		if c*rowBytes >= len(src) {
			zeroLane(dst, c, 4)
			continue
		}
		row := src[c*rowBytes:][:rowBytes]
		for i := range k / 2 {
			le.PutUint32(dst[(i*lanes+c)*4:], le.Uint32(row[4*i:]))
		}
		if k%2 == 1 {
			le.PutUint32(dst[(k/2*lanes+c)*4:], uint32(le.Uint16(row[2*k-2:])))
		}
	}
}

// packFloat8 writes f32 [16] │ e4m3 [elems][16] for each record, without scales where a record is one k.
func packFloat8(dst []byte, f *format, rowBytes int, src []byte) {
	clear(dst)
	size := rowBytes / (len(dst) / f.bytes) // of a row in a record
	start := size - f.elems                 // of its codes
	for r := 0; r*f.bytes < len(dst); r++ {
		rec := dst[r*f.bytes:][:f.bytes]
		for c := 0; c*rowBytes < len(src); c++ {
			from := src[c*rowBytes+r*size:][:size]
			if start > 0 {
				copy(rec[4*c:], from[:start])
			}
			for i, code := range from[start:] {
				rec[(start+i)*lanes+c] = code
			}
		}
	}
}

// zeroLane clears the row c of a panel of [..][16] elements of size bytes.
func zeroLane(dst []byte, c, size int) {
	for at := c * size; at < len(dst); at += lanes * size {
		clear(dst[at : at+size])
	}
}

// stored is a stored block taken apart: the codes of each 32 elements as words of 4, and the scales.
type stored struct {
	words [super / 4]uint32
	d, m  uint16 // scale and min, or those that ints and mins multiply
	d2    uint16 // scale of the second group of a block that has one for each
	ints  [16]int8
	mins  [16]uint8
}

// packBlocks writes the records of one panel from rows of stored blocks.
func packBlocks(dst []byte, f *format, d tensor.DType, rowBytes int, src []byte) {
	clear(dst)
	size := int(d.Bytes(int64(f.elems)))
	split := splitters[d]
	var s stored
	for r := 0; r*f.bytes < len(dst); r++ {
		rec := dst[r*f.bytes:][:f.bytes]
		for c := 0; c*rowBytes < len(src); c++ {
			split(&s, src[c*rowBytes+r*size:][:size])
			f.put(rec, c, &s)
		}
	}
}

// put writes row c of a record, which was all zero.
func (f *format) put(rec []byte, c int, s *stored) {
	le.PutUint16(rec[2*c:], s.d)
	if !f.super && f.groups() == 2 {
		le.PutUint16(rec[2*(lanes+c):], s.d2)
	}
	if f.affine {
		le.PutUint16(rec[f.mins+2*c:], s.m)
	}
	if f.super {
		for g := range super / f.group {
			rec[f.ints+g*lanes+c] = byte(s.ints[g])
			if f.affine {
				rec[f.intMins+g*lanes+c] = s.mins[g]
			}
		}
	}
	for b := range f.elems / block {
		w := (*[8]uint32)(s.words[8*b:])
		f.putCodes(rec[f.planes+b*f.planeBytes():][:f.planeBytes()], c, w)
	}
}

// putCodes writes the codes of a block: lines of 64 bytes, four for each row c.
func (f *format) putCodes(planes []byte, c int, w *[8]uint32) {
	line := func(i int, word uint32) { le.PutUint32(planes[64*i+4*c:], word) }
	high := 0
	switch f.low {
	case 8:
		for t := range 8 {
			line(t, w[t])
		}
	case 4:
		const m = 0x0f0f0f0f
		for t := range 4 {
			line(t, w[t]&m|w[t+4]&m<<4)
		}
		high = 4
	case 2:
		const m = 0x03030303
		for t := range 2 {
			line(t, w[t]&m|w[t+2]&m<<2|w[t+4]&m<<4|w[t+6]&m<<6)
		}
		high = 2
	}
	switch f.high {
	case 1:
		var x uint32
		for t := range 8 {
			x |= w[t] >> f.low & 0x01010101 << t
		}
		line(high, x)
	case 2:
		const m = 0x03030303
		for t := range 2 {
			line(high+t, w[t]>>f.low&m|w[t+2]>>f.low&m<<2|w[t+4]>>f.low&m<<4|w[t+6]>>f.low&m<<6)
		}
	}
}
