// SPDX-License-Identifier: MIT OR Apache-2.0

package plan

import "testing"

func TestPiecesReadBack(t *testing.T) {
	for text, want := range map[string]Piece{
		"a.weight":         {Tensor: "a.weight"},
		"a.weight[0:4:12]": {Tensor: "a.weight", Hi: 4, Of: 12},
		"b[4:12:12]":       {Tensor: "b", Lo: 4, Hi: 12, Of: 12},
		"a.b#0":            {Tensor: "a.b", Picked: true},
		"a#12^T[0:1:2]":    {Tensor: "a", Picked: true, Index: 12, Transposed: true, Hi: 1, Of: 2},
		"a^T":              {Tensor: "a", Transposed: true},
	} {
		got, err := ParsePiece(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s: %+v %v", text, got, err)
		}
	}
	for _, text := range []string{"a[", "a[]", "a[1:2]", "a[1:2:3", "a[x:2:3]", "a[2:2:3]", "a[-1:2:3]", "a[0:4:3]", "a[0:1:2]]", "a#", "a#x", "a#-1", "a^T#1"} {
		if p, err := ParsePiece(text); err == nil {
			t.Errorf("%s is %+v", text, p)
		}
	}
}
