// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"cmp"
	"slices"
)

// arenaAlign is the alignment of a buffer in the arena, in bytes.
const arenaAlign = 64

// life is a buffer's lifetime in launches, both ends included, and its place.
type life struct {
	first, last int
	bytes       int64
	offset      int64
}

// layout places buffers so that no two that live at once overlap, and gives the bytes that all span. Large ones are placed
// first, each in the lowest gap that is free for its whole life.
func layout(lives []life) int64 {
	order := make([]int, len(lives))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(lives[b].bytes, lives[a].bytes), cmp.Compare(lives[a].first, lives[b].first))
	})
	var placed []int // by offset
	var span int64
	for _, i := range order {
		l := &lives[i]
		l.offset = 0
		for _, j := range placed {
			o := &lives[j]
			if o.last < l.first || l.last < o.first || o.offset+align(o.bytes) <= l.offset {
				continue
			}
			if l.offset+l.bytes <= o.offset {
				break
			}
			l.offset = o.offset + align(o.bytes)
		}
		at, _ := slices.BinarySearchFunc(placed, l.offset, func(j int, off int64) int { return cmp.Compare(lives[j].offset, off) })
		placed = slices.Insert(placed, at, i)
		span = max(span, l.offset+align(l.bytes))
	}
	return span
}

func align(n int64) int64 { return (n + arenaAlign - 1) &^ (arenaAlign - 1) }
