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
		size: gpu.StoredSize,
		pack: func(dst []byte, d tensor.DType, _, k, row int64, src []byte) error {
			copy(dst[row*d.Bytes(k):], src)
			return nil
		},
	},
	"f32": {
		name: "f32",
		rows: 1,
		size: func(d tensor.DType, n, k int64) (int64, error) {
			_, err := gpu.StoredSize(d, n, k)
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

// Layout gives a layout by name: "" as stored, "f32" row-major float32, "panel" as package linear packs.
func (d *Device) Layout(name string) (gpu.Layout, error) {
	l, ok := layouts[name]
	if !ok {
		return nil, diag.Errorf(diag.Unsupported, "the cpu class has no weight layout %q", name)
	}
	return l, nil
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
	count, n, k := gpu.Matrices(shape)
	one, err := l.size(d, n, k)
	return count * one, err
}

// Pack writes rows [row, row+rows) of matrix m.
func (l *layout) Pack(dst gpu.Buffer, off int64, d tensor.DType, shape tensor.Shape, m, row, rows int64, src []byte) error {
	buf, ok := dst.(*buffer)
	if !ok || buf.data == nil {
		return diag.Errorf(diag.Internal, "packing into memory of another device")
	}
	to, err := gpu.PackTarget(l, dst, off, d, shape, m, row, rows, int64(len(src)))
	switch {
	case err != nil:
		return err
	case off%alignment != 0:
		return diag.Errorf(diag.Internal, "packing at %d of buffer %s, which is not aligned", off, buf.name)
	case rows == 0:
		return nil
	}
	buf.dense()
	return l.pack(buf.data[to.Off:to.Off+to.Size], d, to.N, to.K, row, src)
}
