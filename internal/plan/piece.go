// SPDX-License-Identifier: MIT OR Apache-2.0

package plan

import (
	"fmt"
	"strconv"
	"strings"
)

// Piece is a source of a weight: a checkpoint tensor or a part of it. Its text is "tensor#index^T[lo:hi:of]", each part of
// which may be missing:
//
//	#index      what lies at the index of the leading axis: one expert's matrix of a stack
//	^T          the matrix transposed: its columns are the rows
//	[lo:hi:of]  of each of rows, those from lo to before hi
//
//	rows     0 … of-1 | of … 2·of-1 | …
//	taken    [lo, hi) | [of+lo, of+hi) | …
type Piece struct {
	Tensor     string
	Picked     bool
	Index      int64
	Transposed bool
	Lo, Hi, Of int64 // Of is 0 for all rows
}

// ParsePiece reads a piece's text.
func ParsePiece(s string) (Piece, error) {
	bad := func() error { return fmt.Errorf("%q is no tensor#index^T[lo:hi:of]", s) }
	name, rows, cut := strings.Cut(s, "[")
	var p Piece
	name, p.Transposed = strings.CutSuffix(name, "^T")
	var index string
	if p.Tensor, index, p.Picked = strings.Cut(name, "#"); p.Picked {
		v, err := strconv.ParseInt(index, 10, 64)
		if err != nil || v < 0 || strings.Contains(p.Tensor, "^") {
			return p, bad()
		}
		p.Index = v
	}
	if !cut {
		return p, nil
	}
	nums := strings.Split(strings.TrimSuffix(rows, "]"), ":")
	if len(nums) != 3 || !strings.HasSuffix(rows, "]") {
		return p, bad()
	}
	for i, into := range []*int64{&p.Lo, &p.Hi, &p.Of} {
		v, err := strconv.ParseInt(nums[i], 10, 64)
		if err != nil {
			return p, bad()
		}
		*into = v
	}
	if p.Lo < 0 || p.Lo >= p.Hi || p.Hi > p.Of {
		return p, fmt.Errorf("%q takes no rows", s)
	}
	return p, nil
}

// String is what ParsePiece reads.
func (p Piece) String() string {
	s := p.Tensor
	if p.Picked {
		s += fmt.Sprintf("#%d", p.Index)
	}
	if p.Transposed {
		s += "^T"
	}
	if p.Of > 0 {
		s += fmt.Sprintf("[%d:%d:%d]", p.Lo, p.Hi, p.Of)
	}
	return s
}
