// SPDX-License-Identifier: MIT OR Apache-2.0

package sample

import (
	"testing"

	"github.com/metrale/metrale/internal/seq"
)

func TestGreedyTakesTheLowestOfEqual(t *testing.T) {
	var w Scratch
	var s Seq
	p := seq.Greedy()
	s.Reset(&p, nil)
	got, err := w.Sample(&s, Row{Logits: []float32{1, 3, 2, 3, 3, 0, 0, 0, 0, 3}})
	if err != nil || got != 1 {
		t.Fatalf("got %d, %v", got, err)
	}
}
