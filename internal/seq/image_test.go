// SPDX-License-Identifier: MIT OR Apache-2.0

package seq

import (
	"slices"
	"testing"
)

// Text, an image of 4×6 patches, text, an image of 2×2: the places of every token, whichever part of them is asked for.
func TestCoords(t *testing.T) {
	images := []*Image{{First: 2, Grid: [3]int32{1, 4, 6}, Merge: 2}, {First: 9, Grid: [3]int32{1, 2, 2}, Merge: 2}}
	want := [][3]int32{
		{0, 0, 0}, {1, 1, 1},
		{2, 2, 2}, {2, 2, 3}, {2, 2, 4},
		{2, 3, 2}, {2, 3, 3}, {2, 3, 4},
		{5, 5, 5}, // behind the longest side, 3
		{6, 6, 6},
		{7, 7, 7}, {8, 8, 8},
	}
	for first := range want {
		for n := range len(want) - first {
			got := make([][3]int32, n)
			Coords(images, first, got)
			if !slices.Equal(got, want[first:first+n]) {
				t.Errorf("[%d, %d): %v, want %v", first, first+n, got, want[first:first+n])
			}
		}
	}
}

func TestPatches(t *testing.T) {
	m := Image{Grid: [3]int32{1, 4, 4}, Merge: 2}
	var got [][2]int32
	for i := range m.Patches() {
		row, col := m.Patch(i)
		got = append(got, [2]int32{row, col})
	}
	want := [][2]int32{{0, 0}, {0, 1}, {1, 0}, {1, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 0}, {2, 1}, {3, 0}, {3, 1}, {2, 2}, {2, 3}, {3, 2}, {3, 3}}
	if !slices.Equal(got, want) || m.Tokens() != 4 {
		t.Errorf("%v", got)
	}
}
