// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/gpu/cpu/linear"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights"
)

// layout is a weight layout: how a matrix [n, k] of a stored type lies in memory. Matrices follow each other.
type layout struct {
	name string
	rows int64                                                               // granularity of pack
	size func(d tensor.DType, n, k int64) (int64, error)                     // bytes of a matrix
	pack func(dst []byte, d tensor.DType, n, k, row int64, src []byte) error // rows from row into dst, the whole matrix
}

// layouts are all that the kernels of this class read.
var layouts = map[string]*layout{
	"": {
		name: "",
		rows: 1,
		size: storedSize,
		pack: func(dst []byte, d tensor.DType, _, k, row int64, src []byte) error {
			copy(dst[row*d.Bytes(k):], src)
			return nil
		},
	},
	"f32": {
		name: "f32",
		rows: 1,
		size: func(d tensor.DType, n, k int64) (int64, error) {
			_, err := storedSize(d, n, k)
			return 4 * n * k, err
		},
		pack: func(dst []byte, d tensor.DType, _, k, row int64, src []byte) error {
			elems, bytes := d.Block()
			n := int64(len(src)/bytes) * int64(elems)
			return weights.Dequantize(view[float32](dst)[row*k:row*k+n], d, src)
		},
	},
	"panel": {
		name: "panel",
		rows: linear.PackRows(),
		size: linear.PackedSize,
		pack: func(dst []byte, d tensor.DType, n, k, row int64, src []byte) error {
			return linear.Pack(dst, d, n, k, row, int64(len(src))/d.Bytes(k), src)
		},
	},
}

// storedSize is the size of a matrix as the checkpoint has it.
func storedSize(d tensor.DType, n, k int64) (int64, error) {
	if elems, _ := d.Block(); k%int64(elems) != 0 {
		return 0, diag.Errorf(diag.Unsupported, "rows of %d elements are no whole blocks of %v", k, d)
	}
	return n * d.Bytes(k), nil
}

// Layout gives a layout by name: "" as stored, "f32" row-major float32, "panel" as package linear packs.
func (d *Device) Layout(name string) (gpu.Layout, error) {
	l, ok := layouts[name]
	if !ok {
		return nil, diag.Errorf(diag.Unsupported, "the cpu class has no weight layout %q", name)
	}
	return l, nil
}

// matrices reads a shape as count matrices [n, k]: up to two axes are one matrix, with more the leading one counts them.
func matrices(s tensor.Shape) (count, n, k int64) {
	last := len(s) - 1
	switch last {
	case -1:
		return 1, 1, 1
	case 0:
		return 1, 1, s[0]
	case 1:
		return 1, s[0], s[1]
	}
	return s[0], s[1:last].Elems(), s[last]
}

// DType is float32 for "f32"; "panel" keeps the stored values.
func (l *layout) DType(d tensor.DType) tensor.DType {
	if l.name == "f32" {
		return tensor.F32
	}
	return d
}

// Rows is the granularity of Pack.
func (l *layout) Rows() int64 { return l.rows }

// Size is the packed size in bytes.
func (l *layout) Size(d tensor.DType, shape tensor.Shape) (int64, error) {
	count, n, k := matrices(shape)
	one, err := l.size(d, n, k)
	return count * one, err
}

// Pack writes rows [row, row+rows) of matrix m.
func (l *layout) Pack(dst gpu.Buffer, off int64, d tensor.DType, shape tensor.Shape, m, row, rows int64, src []byte) error {
	count, n, k := matrices(shape)
	one, err := l.size(d, n, k)
	if err != nil {
		return err
	}
	switch buf, ok := dst.(*buffer); {
	case !ok || buf.data == nil:
		return diag.Errorf(diag.Internal, "packing into memory of another device")
	case off < 0 || off%alignment != 0 || off+count*one > buf.Size():
		return diag.Errorf(diag.Internal, "packing %d bytes at %d of buffer %s of %d", count*one, off, buf.name, buf.Size())
	case m < 0 || m >= count || row < 0 || rows < 0 || row+rows > n || row%l.rows != 0 || rows%l.rows != 0 && row+rows != n:
		return diag.Errorf(diag.Internal, "packing rows %d to %d of matrix %d of a %v weight %v in layout %q", row, row+rows, m, d, shape, l.name)
	case int64(len(src)) != rows*d.Bytes(k):
		return diag.Errorf(diag.Internal, "%d bytes for %d rows of a %v weight %v", len(src), rows, d, shape)
	case rows == 0:
		return nil
	default:
		buf.dense()
		return l.pack(buf.data[off+m*one:off+(m+1)*one], d, n, k, row, src)
	}
}
