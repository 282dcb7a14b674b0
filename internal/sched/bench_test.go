// SPDX-License-Identifier: MIT OR Apache-2.0

package sched

import (
	"fmt"
	"testing"

	"github.com/metrale/metrale/internal/kv"
	"github.com/metrale/metrale/internal/seq"
)

// steady is a scheduler whose sequences all decode, and a function that takes a step and draws all tokens.
func steady(batch int) (*Scheduler, func()) {
	cfg, err := Config{
		PageSize: 16, Pages: batch * 64, Rows: batch, Outs: batch, Prefill: batch, Batch: batch, Queue: batch, Context: 1024, Vocab: 1000,
	}.Fit()
	if err != nil {
		panic(err)
	}
	s := New(cfg)
	r := &seq.Request{Prompt: []int32{1}, Limits: seq.Limits{MaxTokens: 1000, Stop: []int32{2}}, Logprobs: -1}
	var events []Event
	id := seq.ID(0)
	add := func() {
		id++
		events = append(events, Event{Kind: Submit, ID: id, Request: r})
	}
	for range batch {
		add()
	}
	step := func() {
		d := s.Step(0, events)
		events = events[:0]
		for range d.Ends {
			add()
		}
		for i := range d.Work {
			events = append(events, Event{Kind: Token, ID: d.Work[i].ID, Token: 1})
		}
	}
	for range 2100 { // past the first generation
		step()
	}
	return s, step
}

// BenchmarkStep is a step with so many sequences that decode: growth of pages, endings and starts included.
func BenchmarkStep(b *testing.B) {
	for _, n := range []int{1, 64, 256, 1024} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			_, step := steady(n)
			b.ReportAllocs()
			for b.Loop() {
				step()
			}
		})
	}
}

func TestStepDoesNotAllocate(t *testing.T) {
	if kv.Invariants {
		t.Skip("assertions allocate")
	}
	_, step := steady(64)
	if n := testing.AllocsPerRun(3000, step); n != 0 {
		t.Errorf("%v allocations per step", n)
	}
}
