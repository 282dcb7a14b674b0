// SPDX-License-Identifier: MIT OR Apache-2.0

package plan

import (
	"fmt"
	"strconv"
	"strings"
)

// Piece is a source of a weight: a checkpoint tensor, or of each Of rows of it those from Lo to before Hi. Of is 0 for a
// whole tensor.
//
//	rows     0 … Of-1 | Of … 2·Of-1 | …
//	taken    [Lo, Hi) | [Of+Lo, Of+Hi) | …
type Piece struct {
	Tensor     string
	Lo, Hi, Of int64
}

// ParsePiece reads "tensor" or "tensor[lo:hi:of]".
func ParsePiece(s string) (Piece, error) {
	name, rows, ok := strings.Cut(s, "[")
	p := Piece{Tensor: name}
	if !ok {
		return p, nil
	}
	nums := strings.Split(strings.TrimSuffix(rows, "]"), ":")
	if len(nums) != 3 || !strings.HasSuffix(rows, "]") {
		return p, fmt.Errorf("%q is no tensor[lo:hi:of]", s)
	}
	for i, into := range []*int64{&p.Lo, &p.Hi, &p.Of} {
		v, err := strconv.ParseInt(nums[i], 10, 64)
		if err != nil {
			return p, fmt.Errorf("%q is no tensor[lo:hi:of]", s)
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
	if p.Of == 0 {
		return p.Tensor
	}
	return fmt.Sprintf("%s[%d:%d:%d]", p.Tensor, p.Lo, p.Hi, p.Of)
}
