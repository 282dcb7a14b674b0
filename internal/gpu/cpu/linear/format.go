// SPDX-License-Identifier: MIT OR Apache-2.0

package linear

import (
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/tensor"
)

const (
	lanes = 16 // rows of a panel: one float32 each in a 64-byte vector
	block = 32 // elements along k that share an activation scale
	super = 256
)

// format is how a stored type lies in a panel. A block format has low > 0.
type format struct {
	d         tensor.DType
	elems     int       // elements along k of a record
	bytes     int       // of a record: lanes rows of elems elements
	low, high int       // bits of a code in its low and high plane
	zero      int       // code of the value 0, of formats without min
	group     int       // elements that share a scale: 16 or 32
	affine    bool      // has a min
	super     bool      // scales are integers times a scale of 256 elements
	bf16      bool      // scales are bf16, else f16
	float8    bool      // codes are e4m3, and scales, if any, float32
	book      *[16]byte // codes of a 4-bit index

	// offsets in the record
	mins, ints, intMins, planes int
}

// affine values of a codebook are stored with 128 added, so that codes are unsigned.
var bookIQ4 = [16]byte{1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241}

// bookMX is twice the E2M1 value plus 16; the scale is half the stored one.
var bookMX = [16]byte{16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4}

var formats = [64]*format{
	tensor.F32:    {d: tensor.F32, elems: 1, bytes: 4 * lanes},
	tensor.F16:    {d: tensor.F16, elems: 1, bytes: 2 * lanes},
	tensor.BF16:   {d: tensor.BF16, elems: 2, bytes: 4 * lanes},
	tensor.Q4_0:   blocks(format{d: tensor.Q4_0, low: 4, zero: 8, group: 32}),
	tensor.Q4_1:   blocks(format{d: tensor.Q4_1, low: 4, affine: true, group: 32}),
	tensor.Q5_0:   blocks(format{d: tensor.Q5_0, low: 4, high: 1, zero: 16, group: 32}),
	tensor.Q5_1:   blocks(format{d: tensor.Q5_1, low: 4, high: 1, affine: true, group: 32}),
	tensor.Q8_0:   blocks(format{d: tensor.Q8_0, low: 8, zero: 128, group: 32}),
	tensor.Q2_K:   blocks(format{d: tensor.Q2_K, low: 2, affine: true, super: true, group: 16}),
	tensor.Q3_K:   blocks(format{d: tensor.Q3_K, low: 2, high: 1, zero: 4, super: true, group: 16}),
	tensor.Q4_K:   blocks(format{d: tensor.Q4_K, low: 4, affine: true, super: true, group: 32}),
	tensor.Q5_K:   blocks(format{d: tensor.Q5_K, low: 4, high: 1, affine: true, super: true, group: 32}),
	tensor.Q6_K:   blocks(format{d: tensor.Q6_K, low: 4, high: 2, zero: 32, super: true, group: 16}),
	tensor.IQ4_NL: blocks(format{d: tensor.IQ4_NL, low: 4, zero: 128, book: &bookIQ4, group: 32}),
	tensor.MXFP4:  blocks(format{d: tensor.MXFP4, low: 4, zero: 16, book: &bookMX, bf16: true, group: 32}),

	tensor.INT4_B32:  blocks(format{d: tensor.INT4_B32, low: 4, zero: 8, bf16: true, group: 32}),
	tensor.NVFP4:     blocks(format{d: tensor.NVFP4, low: 4, zero: 16, book: &bookMX, group: 16}),
	tensor.E4M3:      {d: tensor.E4M3, elems: 1, bytes: lanes, float8: true},
	tensor.E4M3_B32:  {d: tensor.E4M3_B32, elems: 32, bytes: lanes * (4 + 32), float8: true},
	tensor.E4M3_B128: {d: tensor.E4M3_B128, elems: 128, bytes: lanes * (4 + 128), float8: true},
}

// blocks fills in sizes and offsets of a block format.
func blocks(f format) *format {
	planes := lanes * block / 8 * (f.low + f.high) // bytes of a block's codes
	at := 2 * lanes
	if f.affine {
		f.mins, at = at, at+2*lanes
	}
	f.elems = block
	if !f.super {
		at *= f.groups()
	} else {
		f.elems = super
		f.ints, at = at, at+super/f.group*lanes
		if f.affine {
			f.intMins, at = at, at+super/f.group*lanes
		}
	}
	f.planes = at
	f.bytes = at + f.elems/block*planes
	return &f
}

// planeBytes are the codes of one block of 32.
func (f *format) planeBytes() int { return lanes * block / 8 * (f.low + f.high) }

// panelBytes is the size of a panel of rows of k elements.
func (f *format) panelBytes(k int) int { return (k + f.elems - 1) / f.elems * f.bytes }

// quantised says whether the format has integer codes, so that Q8 can compute with it.
func (f *format) quantised() bool { return f.low > 0 }

// formatOf finds the format and checks that rows of k elements are whole blocks of the stored type.
func formatOf(d tensor.DType, k int64) (*format, error) {
	if int(d) >= len(formats) || formats[d] == nil {
		return nil, diag.Errorf(diag.Unsupported, "linear: no panel layout for weights in %v", d)
	}
	f := formats[d]
	if elems, _ := d.Block(); k <= 0 || elems > 1 && k%int64(f.elems) != 0 {
		return nil, diag.Errorf(diag.Unsupported, "linear: rows of %d elements are no whole records of %d %v", k, f.elems, d)
	}
	return f, nil
}

// PackRows is the height of a panel: Pack takes whole panels, but for a matrix's last.
func PackRows() int64 { return lanes }

// PackedSize is the size in bytes of a matrix [n, k] of stored type d in panels. The error (diag.Unsupported) names a type
// without panel layout or rows that are no whole blocks.
func PackedSize(d tensor.DType, n, k int64) (int64, error) {
	f, err := formatOf(d, k)
	if err != nil {
		return 0, err
	}
	return (n + lanes - 1) / lanes * int64(f.panelBytes(int(k))), nil
}
