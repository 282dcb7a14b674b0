// SPDX-License-Identifier: MIT OR Apache-2.0

package gpu

import (
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/tensor"
)

// Matrices reads a weight's shape as count matrices [n, k]: up to two axes are one matrix, with more the leading one counts them.
func Matrices(s tensor.Shape) (count, n, k int64) {
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

// StoredSize is the size in bytes of a matrix [n, k] as the checkpoint has it.
func StoredSize(d tensor.DType, n, k int64) (int64, error) {
	elems, bytes := d.Block()
	if bytes == 0 || k%int64(elems) != 0 {
		return 0, diag.Errorf(diag.Unsupported, "rows of %d elements are no whole blocks of %v", k, d)
	}
	return n * d.Bytes(k), nil
}

// Target is the matrix [N, K] that a call of Layout.Pack writes to: Size packed bytes at Off of the buffer.
type Target struct{ Off, Size, N, K int64 }

// PackTarget checks the arguments of l.Pack, with src bytes, and finds its matrix; matrices follow each other.
func PackTarget(l Layout, dst Buffer, off int64, d tensor.DType, shape tensor.Shape, m, row, rows, src int64) (t Target, err error) {
	size, err := l.Size(d, shape)
	if err != nil {
		return t, err
	}
	count, n, k := Matrices(shape)
	whole := l.Rows()
	switch {
	case off < 0 || off+size > dst.Size():
		return t, diag.Errorf(diag.Internal, "packing a %v weight %v, %d bytes, at %d of a buffer of %d", d, shape, size, off, dst.Size())
	case m < 0 || m >= count || row < 0 || rows < 0 || row+rows > n || row%whole != 0 || rows%whole != 0 && row+rows != n:
		return t, diag.Errorf(diag.Internal, "packing rows %d to %d of matrix %d of a %v weight %v, %d rows at a time", row, row+rows, m, d, shape, whole)
	case src != rows*d.Bytes(k):
		return t, diag.Errorf(diag.Internal, "%d bytes for %d rows of a %v weight %v", src, rows, d, shape)
	}
	one := size / count
	return Target{Off: off + m*one, Size: one, N: n, K: k}, nil
}
