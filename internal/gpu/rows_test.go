// SPDX-License-Identifier: MIT OR Apache-2.0

package gpu

import (
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/tensor"
)

// doubled packs rows, whole of them at a time, into twice their bytes.
type doubled struct {
	Layout
	whole int64
}

func (d doubled) Rows() int64 { return d.whole }

func (doubled) Size(d tensor.DType, s tensor.Shape) (int64, error) {
	count, n, k := Matrices(s)
	one, err := StoredSize(d, n, k)
	return 2 * count * one, err
}

// memory is a buffer of some bytes.
type memory struct {
	Buffer
	bytes int64
}

func (m memory) Size() int64 { return m.bytes }

func TestPackFindsItsMatrix(t *testing.T) {
	experts := tensor.Shape{3, 10, 64} // a matrix is 10 rows of 2 blocks of 34 bytes, packed into 1360 bytes
	for _, c := range []struct {
		name                 string
		off, m, row, rows, b int64
		shape                tensor.Shape
		want                 Target
		fault                string
	}{
		{"a vector", 0, 0, 0, 1, 68, tensor.Shape{64}, Target{0, 136, 1, 64}, ""},
		{"a matrix", 256, 0, 4, 4, 272, tensor.Shape{10, 64}, Target{256, 1360, 10, 64}, ""},
		{"the last rows", 256, 2, 8, 2, 136, experts, Target{256 + 2*1360, 1360, 10, 64}, ""},
		{"no rows", 0, 1, 4, 0, 0, experts, Target{1360, 1360, 10, 64}, ""},
		{"middle axes are rows", 0, 1, 0, 4, 272, tensor.Shape{2, 2, 5, 64}, Target{1360, 1360, 10, 64}, ""},
		{"no whole blocks", 0, 0, 0, 4, 0, tensor.Shape{10, 63}, Target{}, "no whole blocks of q8_0"},
		{"beyond the buffer", 257, 0, 0, 4, 272, experts, Target{}, "4080 bytes, at 257 of a buffer of 4336"},
		{"before it", -1, 0, 0, 4, 272, experts, Target{}, "at -1"},
		{"no such matrix", 0, 3, 0, 4, 272, experts, Target{}, "rows 0 to 4 of matrix 3"},
		{"none at all", 0, 0, 0, 4, 272, tensor.Shape{0, 10, 64}, Target{}, "of matrix 0"},
		{"no such rows", 0, 0, 8, 4, 272, experts, Target{}, "rows 8 to 12"},
		{"in the middle of four", 0, 0, 2, 4, 272, experts, Target{}, "4 rows at a time"},
		{"part of four", 0, 0, 4, 3, 204, experts, Target{}, "4 rows at a time"},
		{"other bytes", 0, 0, 4, 4, 271, experts, Target{}, "271 bytes for 4 rows"},
	} {
		got, err := PackTarget(doubled{whole: 4}, memory{bytes: 256 + 3*1360}, c.off, tensor.Q8_0, c.shape, c.m, c.row, c.rows, c.b)
		switch {
		case c.fault == "" && (err != nil || got != c.want):
			t.Errorf("%s: %+v, want %+v, %v", c.name, got, c.want, err)
		case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault) || !diag.Is(err, diag.Internal) && !diag.Is(err, diag.Unsupported)):
			t.Errorf("%s: %v, want %q", c.name, err, c.fault)
		}
	}
}
