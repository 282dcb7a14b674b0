// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda

import (
	"encoding/binary"
	"math"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/tensor"
)

// Layout "rows": codes and scales as kernels of few rows stream them (kernels/include/mma/quantised.cuh). A panel of 8 rows is a run of
// units of 128 values; rows and values that fill up the last ones are zero. In a unit, codes come first:
//
//	e4m3, e4m3_b128   1024 bytes: halves of 64 values, [2][row][lane t][step 2][8], bytes of 4 values in the order 2 0 3 1
//	nvfp4, mxfp4      512 bytes: [row][lane t][step 4] words of 8 values
//
// where value 32s+8t+j of a row is j of lane t's step s; then the scales of the 8 rows:
//
//	e4m3_b128   float32 times 2^56                            nvfp4   [row][half of a step][step 4]: exponent+9, 3 bits of mantissa
//	mxfp4       [row][step 4]: exponent+127+100
const (
	panelRows  = 8
	unitValues = 128
)

// unitBytes are those of a panel's unit; 0 for types that are not packed so.
func unitBytes(d tensor.DType) int64 {
	switch d {
	case tensor.E4M3:
		return 1024
	case tensor.E4M3_B128:
		return 1024 + 32
	case tensor.NVFP4:
		return 512 + 64
	case tensor.MXFP4:
		return 512 + 32
	}
	return 0
}

func panelBytes(d tensor.DType, k int64) int64 {
	return (k + unitValues - 1) / unitValues * unitBytes(d)
}

// rowsLayout is the layout "rows".
func rowsLayout() *layout {
	return &layout{
		name:  "rows",
		rows:  panelRows,
		dtype: func(d tensor.DType) tensor.DType { return d },
		packs: func(tensor.DType) bool { return true },
		size: func(d tensor.DType, n, k int64) (int64, error) {
			if unitBytes(d) == 0 {
				return 0, diag.Errorf(diag.Unsupported, "weights of type %v have no layout \"rows\"", d)
			}
			_, err := gpu.StoredSize(d, n, k)
			return (n + panelRows - 1) / panelRows * panelBytes(d, k), err
		},
		pieces: func(d tensor.DType, _, k, row, rows int64) []piece {
			one := panelBytes(d, k)
			return []piece{{row / panelRows * one, (rows + panelRows - 1) / panelRows * one}}
		},
		pack: packRows,
	}
}

// packRows packs whole panels; the last one may lack rows.
func packRows(dst []byte, d tensor.DType, k int64, src []byte) error {
	clear(dst)
	stored, panel, unit := d.Bytes(k), panelBytes(d, k), unitBytes(d)
	for row := range int64(len(src)) / stored {
		line, to := src[row*stored:(row+1)*stored], dst[row/panelRows*panel:][:panel]
		g := int(row % panelRows)
		switch d {
		case tensor.E4M3:
			for ; len(line) > 0; to = to[unit:] {
				n := min(unitValues, len(line))
				packE4M3(to, g, line[:n])
				line = line[n:]
			}
		case tensor.E4M3_B128:
			for ; len(line) > 0; line, to = line[4+unitValues:], to[unit:] {
				packE4M3(to, g, line[4:4+unitValues])
				scale := math.Float32frombits(binary.LittleEndian.Uint32(line))
				binary.LittleEndian.PutUint32(to[1024+4*g:], math.Float32bits(scale*0x1p56))
			}
		case tensor.NVFP4:
			for ; len(line) > 0; to = to[unit:] {
				n := min(unitValues/16*9, len(line))
				packNVFP4(to, g, line[:n])
				line = line[n:]
			}
		case tensor.MXFP4:
			for ; len(line) > 0; to = to[unit:] {
				n := min(unitValues/32*17, len(line))
				if err := packMXFP4(to, g, line[:n]); err != nil {
					return err
				}
				line = line[n:]
			}
		}
	}
	return nil
}

// packE4M3 places a row's values in a unit.
func packE4M3(unit []byte, g int, codes []byte) {
	for i := 0; i+8 <= len(codes); i += 8 {
		s, t := i/32, i%32/8
		to := unit[s/2*512+(4*g+t)*16+s%2*8:][:8]
		c := codes[i : i+8]
		to[0], to[1], to[2], to[3] = c[2], c[0], c[3], c[1]
		to[4], to[5], to[6], to[7] = c[6], c[4], c[7], c[5]
	}
}

// nibbles are where a byte's two codes, values 2p and 2p+1 of 8, stand in their word.
var nibbles = func() (table [4][256]uint32) {
	places := [4][4]int{{15, 8, 7, 6}, {9, 2, 1, 0}, {3, 28, 27, 26}, {13, 14, 5, 4}} // of sign, exponent, mantissa
	for p := range table {
		for b := range table[p] {
			for i, at := range places[p] {
				bit := 3 - i
				table[p][b] |= uint32(b>>bit&1)<<at | uint32(b>>(4+bit)&1)<<(at^16)
			}
		}
	}
	return table
}()

// putWord places lane t's 8 values of step s, two a byte, the lower nibble first.
func putWord(unit []byte, g, s, t int, b0, b1, b2, b3 byte) {
	binary.LittleEndian.PutUint32(unit[(4*g+t)*16+4*s:], nibbles[0][b0]|nibbles[1][b1]|nibbles[2][b2]|nibbles[3][b3])
}

// packNVFP4 places a row's blocks of 16, at most 8, in a unit.
func packNVFP4(unit []byte, g int, blocks []byte) {
	for i := 0; 9*i < len(blocks); i++ {
		b, s, half := blocks[9*i:9*i+9], i/2, i%2
		scale, zero := exponentFirst(b[0])
		if zero {
			continue
		}
		unit[512+8*g+4*half+s] = scale
		putWord(unit, g, s, 2*half, b[1], b[2], b[3], b[4])
		putWord(unit, g, s, 2*half+1, b[5], b[6], b[7], b[8])
	}
}

// exponentFirst turns an e4m3 that is no negative into 5 bits of exponent, from 2^-9 on, and 3 of mantissa, without subnormals.
func exponentFirst(b byte) (code byte, zero bool) {
	e, m := b>>3&15, b&7
	switch {
	case e > 0:
		return (e+2)<<3 | m, false
	case m >= 4:
		return 2<<3 | m<<1&7, false
	case m >= 2:
		return 1<<3 | m<<2&7, false
	}
	return 0, m == 0
}

// packMXFP4 places a row's blocks of 32, at most 4, in a unit. Scales below 2^-99 make zeros.
func packMXFP4(unit []byte, g int, blocks []byte) error {
	for s := 0; 17*s < len(blocks); s++ {
		b := blocks[17*s : 17*s+17]
		if b[0] < 28 {
			continue
		}
		if b[0] > 154 {
			return diag.Errorf(diag.Unsupported, "a scale of MXFP4 is 2^%d; kernels of this class take up to 2^27", int(b[0])-127)
		}
		unit[512+4*g+s] = b[0] + 100
		q := b[1:]
		low := func(i int) byte { return q[i]&15 | q[i+1]<<4 }
		high := func(i int) byte { return q[i]>>4 | q[i+1]&0xf0 }
		putWord(unit, g, s, 0, low(0), low(2), low(4), low(6))
		putWord(unit, g, s, 1, low(8), low(10), low(12), low(14))
		putWord(unit, g, s, 2, high(0), high(2), high(4), high(6))
		putWord(unit, g, s, 3, high(8), high(10), high(12), high(14))
	}
	return nil
}
