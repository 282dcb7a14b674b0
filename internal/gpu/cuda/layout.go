// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda

import (
	"unsafe"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights"
)

// layout says how a matrix [n, k] of a stored type lies in device memory. Matrices follow each other.
type layout struct {
	name   string
	rows   int64 // granularity of packing
	dtype  func(d tensor.DType) tensor.DType
	size   func(d tensor.DType, n, k int64) (int64, error)             // bytes of a matrix
	pieces func(d tensor.DType, n, k, row, rows int64) []piece         // where the packed rows go
	pack   func(dst []byte, d tensor.DType, k int64, src []byte) error // rows, piece after piece
	packs  func(d tensor.DType) bool                                   // whether what is packed differs from what is stored
}

// piece is a run of packed bytes: where it lies in its matrix, and how long it is.
type piece struct{ off, bytes int64 }

// layouts are all that kernels of the CUDA classes read: "" as stored; "f32" dequantised float32; "dense" float32, bfloat16
// and float16 as stored, every other format dequantised to float32; "rows" see rows.go.
var layouts = map[string]*layout{
	"":      storedLayout(""),
	"f32":   floatLayout("f32"),
	"dense": floatLayout("dense", tensor.F32, tensor.BF16, tensor.F16),
	"rows":  rowsLayout(),
}

// storedLayout keeps rows as they are.
func storedLayout(name string) *layout {
	return &layout{
		name:  name,
		rows:  1,
		dtype: func(d tensor.DType) tensor.DType { return d },
		packs: func(tensor.DType) bool { return false },
		size:  gpu.StoredSize,
		pieces: func(d tensor.DType, _, k, row, rows int64) []piece {
			return []piece{{row * d.Bytes(k), rows * d.Bytes(k)}}
		},
	}
}

// floatLayout dequantises to float32 all but some types.
func floatLayout(name string, kept ...tensor.DType) *layout {
	keep := map[tensor.DType]bool{tensor.F32: true}
	for _, d := range kept {
		keep[d] = true
	}
	seen := func(d tensor.DType) tensor.DType {
		if keep[d] {
			return d
		}
		return tensor.F32
	}
	return &layout{
		name:  name,
		rows:  1,
		dtype: seen,
		packs: func(d tensor.DType) bool { return seen(d) != d },
		size: func(d tensor.DType, n, k int64) (int64, error) {
			_, err := gpu.StoredSize(d, n, k)
			return n * seen(d).Bytes(k), err
		},
		pieces: func(d tensor.DType, _, k, row, rows int64) []piece {
			return []piece{{row * seen(d).Bytes(k), rows * seen(d).Bytes(k)}}
		},
		pack: func(dst []byte, d tensor.DType, k int64, src []byte) error {
			return weights.Dequantize(unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(dst))), len(dst)/4), d, src)
		},
	}
}

// Layout gives a layout by name.
func (d *Device) Layout(name string) (gpu.Layout, error) {
	l, ok := layouts[name]
	if !ok {
		return nil, diag.Errorf(diag.Unsupported, "the CUDA classes have no weight layout %q", name)
	}
	return l, nil
}

// DType is the element type that kernels see.
func (l *layout) DType(d tensor.DType) tensor.DType { return l.dtype(d) }

// Keeps says that nothing is packed.
func (l *layout) Keeps(d tensor.DType) bool { return !l.packs(d) }

// PackRows packs rows into host memory.
func (l *layout) PackRows(dst []byte, d tensor.DType, k int64, src []byte) error {
	if l.Keeps(d) {
		copy(dst, src)
		return nil
	}
	return l.pack(dst, d, k, src)
}

// Rows is the granularity of Pack.
func (l *layout) Rows() int64 { return l.rows }

// Size is the packed size in bytes.
func (l *layout) Size(d tensor.DType, shape tensor.Shape) (int64, error) {
	count, n, k := gpu.Matrices(shape)
	one, err := l.size(d, n, k)
	return count * one, err
}

// rowsOf is a checked call of Pack: the buffer, and where the packed rows go in it.
type rowsOf struct {
	dst    *buffer
	pieces []piece
	bytes  int64 // packed
	k      int64
}

// target checks the arguments of Pack.
func (l *layout) target(dst gpu.Buffer, off int64, d tensor.DType, shape tensor.Shape, m, row, rows, src int64) (rowsOf, error) {
	b, ok := dst.(*buffer)
	if !ok {
		return rowsOf{}, diag.Errorf(diag.Internal, "packing into memory of another device")
	}
	to, err := gpu.PackTarget(l, dst, off, d, shape, m, row, rows, src)
	if err != nil {
		return rowsOf{}, err
	}
	t := rowsOf{dst: b, pieces: l.pieces(d, to.N, to.K, row, rows), k: to.K}
	for i := range t.pieces {
		t.pieces[i].off += to.Off
		t.bytes += t.pieces[i].bytes
	}
	return t, nil
}

// Pack writes rows and waits.
func (l *layout) Pack(dst gpu.Buffer, off int64, d tensor.DType, shape tensor.Shape, m, row, rows int64, src []byte) error {
	t, err := l.target(dst, off, d, shape, m, row, rows, int64(len(src)))
	if err != nil {
		return err
	}
	packed := make([]byte, t.bytes)
	if err := l.PackRows(packed, d, t.k, src); err != nil {
		return err
	}
	for _, p := range t.pieces {
		if err := t.dst.Write(p.off, packed[:p.bytes]); err != nil {
			return err
		}
		packed = packed[p.bytes:]
	}
	return nil
}
