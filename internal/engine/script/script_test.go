// SPDX-License-Identifier: MIT OR Apache-2.0

package script

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/plan"
)

var small = exec.Limits{Limits: plan.Limits{Rows: 8, Seqs: 3, Outs: 3, PageSize: 2, Pages: 4}, NumPages: 6, NumSlots: 3}

// rows is one sequence's part of a step.
type rows struct {
	first  int32 // position
	tokens []int32
	pages  []int32
	slot   int32
	fresh  bool
}

// step lays sequences out as the engine does, with logits of each one's last row.
func step(seqs ...rows) *exec.Step {
	s := &exec.Step{CuRows: []int32{0}}
	for i, q := range seqs {
		for j, t := range q.tokens {
			pos := q.first + int32(j)
			s.Tokens = append(s.Tokens, t)
			s.Positions = append(s.Positions, pos)
			s.RowSeq = append(s.RowSeq, int32(i))
			slot := int32(0)
			if p := int(pos) / 2; p < len(q.pages) {
				slot = q.pages[p]*2 + pos%2
			}
			s.Slots = append(s.Slots, slot)
		}
		s.CuRows = append(s.CuRows, int32(len(s.Tokens)))
		s.Pages = append(s.Pages, q.pages)
		s.StateSlot = append(s.StateSlot, q.slot)
		fresh := int32(0)
		if q.fresh {
			fresh = 1
		}
		s.Fresh = append(s.Fresh, fresh)
		s.OutRows = append(s.OutRows, int32(len(s.Tokens)-1))
	}
	return s
}

// tops are the likeliest tokens.
func tops(logits [][]float32) (ids []int32) {
	for _, l := range logits {
		ids = append(ids, int32(slices.Index(l, slices.Max(l))))
	}
	return
}

func TestNextSeesTheHistory(t *testing.T) {
	var seen [][]int32
	r := New(Options{Limits: small, Next: func(h []int32) int32 {
		seen = append(seen, slices.Clone(h))
		return int32(len(h))
	}})
	for i, c := range []struct {
		s    *exec.Step
		want []int32
	}{
		{step(rows{0, []int32{5, 6, 7}, []int32{4, 1}, 2, true}), []int32{3}},
		{step(rows{3, []int32{8}, []int32{4, 1}, 2, false}, rows{0, []int32{9}, []int32{0}, 0, true}), []int32{4, 1}},
		{step(rows{4, []int32{1, 2}, []int32{4, 1, 5}, 2, false}), []int32{6}},
		// The same history again in other pages, as after preemption.
		{step(rows{0, []int32{5, 6, 7, 8, 1, 2}, []int32{2, 0, 3}, 1, true}), []int32{6}},
	} {
		got, err := r.Run(c.s)
		if err != nil || !slices.Equal(tops(got), c.want) {
			t.Fatalf("step %d: %v, %v", i, tops(got), err)
		}
	}
	if last := seen[len(seen)-1]; !slices.Equal(last, []int32{5, 6, 7, 8, 1, 2}) {
		t.Errorf("%v", last)
	}
}

// TestFaultsAreSeen breaks a good second step in every way that the model checks.
func TestFaultsAreSeen(t *testing.T) {
	good := func() *exec.Step {
		return step(rows{3, []int32{8}, []int32{4, 1}, 2, false}, rows{0, []int32{9, 3}, []int32{0}, 0, true})
	}
	for name, c := range map[string]struct {
		says  string
		spoil func(*exec.Step)
	}{
		"nothing wrong":           {"", func(s *exec.Step) {}},
		"no rows":                 {"0 rows", func(s *exec.Step) { *s = *step(); s.CuRows = []int32{0} }},
		"too many rows":           {"9 rows", func(s *exec.Step) { *s = *step(rows{0, make([]int32, 9), []int32{0}, 0, true}) }},
		"short positions":         {"positions", func(s *exec.Step) { s.Positions = s.Positions[1:] }},
		"short fresh":             {"fresh", func(s *exec.Step) { s.Fresh = nil }},
		"cu_rows":                 {"cu_rows", func(s *exec.Step) { s.CuRows[2] = 2 }},
		"empty sequence":          {"rows [0, 0)", func(s *exec.Step) { s.CuRows[1] = 0 }},
		"out_rows not rising":     {"out_rows", func(s *exec.Step) { s.OutRows[1] = 0 }},
		"row_seq":                 {"row_seq", func(s *exec.Step) { s.RowSeq[1] = 0 }},
		"token":                   {"token 300", func(s *exec.Step) { s.Tokens[0] = 300 }},
		"gap in positions":        {"position 2 after 0", func(s *exec.Step) { s.Positions[2] = 2 }},
		"no such page":            {"page 6", func(s *exec.Step) { s.Pages[1] = []int32{6} }},
		"page missing":            {"behind 1 pages", func(s *exec.Step) { s.Pages[0] = []int32{4} }},
		"slot and page disagree":  {"its page says", func(s *exec.Step) { s.Slots[0]++ }},
		"two write one page":      {"page 1 is written by", func(s *exec.Step) { s.Pages[1] = []int32{1}; s.Slots[1], s.Slots[2] = 2, 3 }},
		"reads what another owns": {"stands in the table of", func(s *exec.Step) { s.Pages[0] = []int32{4, 1, 0} }},
		"skipped a token":         {"another history", func(s *exec.Step) { s.Positions[0]++; s.Pages[0] = []int32{4, 1, 5}; s.Slots[0] = 10 }},
		"foreign page":            {"another history", func(s *exec.Step) { s.Pages[0] = []int32{3, 1} }},
		"stale state":             {"state slot 2 has seen", func(s *exec.Step) { s.Positions[0], s.Slots[0] = 2, 2 }},
		"state not fresh":         {"state slot 0 has seen", func(s *exec.Step) { s.Fresh[1] = 0 }},
		"fresh in the middle":     {"state slot 2 has seen 0", func(s *exec.Step) { s.Fresh[0] = 1 }},
		"state shared":            {"belongs to sequences", func(s *exec.Step) { s.StateSlot[1] = 2 }},
		"no such state":           {"state slot 3 of 3", func(s *exec.Step) { s.StateSlot[1] = 3 }},
	} {
		r := New(Options{Limits: small})
		if _, err := r.Run(step(rows{0, []int32{5, 6, 7}, []int32{4, 1}, 2, true})); err != nil {
			t.Fatal(err)
		}
		// What another sequence left in slot 0.
		if _, err := r.Run(step(rows{0, []int32{1}, []int32{5}, 0, true})); err != nil {
			t.Fatal(err)
		}
		s := good()
		c.spoil(s)
		_, err := r.Run(s)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

func TestReply(t *testing.T) {
	next := Reply([]int32{1, 2}, []int32{7, 8, 9}, 3)
	for _, c := range []struct {
		history []int32
		want    int32
	}{
		{[]int32{5}, 3},
		{[]int32{1, 2}, 7},
		{[]int32{1, 2, 7, 3, 4, 1, 2}, 7},
		{[]int32{4, 1, 2, 7, 8}, 9},
		{[]int32{4, 1, 2, 7, 8, 9}, 3},
		{[]int32{4, 1, 2, 7, 8, 9, 3}, 3},
	} {
		if got := next(c.history); got != c.want {
			t.Errorf("%v: %d, want %d", c.history, got, c.want)
		}
	}
}

func TestFaultDelayClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fault := errors.New("fault")
		r := New(Options{Limits: small, Delay: time.Second, Fault: func(step int) error {
			if step == 1 {
				return fault
			}
			return nil
		}})
		began := time.Now()
		s := step(rows{0, []int32{5}, []int32{0}, 0, true})
		if _, err := r.Run(s); err != nil || time.Since(began) != time.Second {
			t.Error(err, time.Since(began))
		}
		if _, err := r.Run(s); err != fault || r.Steps() != 2 {
			t.Error(err, r.Steps())
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if _, err := r.Run(s); err == nil {
			t.Error("a step after Close")
		}
		if err := r.Close(); err == nil {
			t.Error("two Closes")
		}
	})
}

// TestDrawer: steps overlap, rows are fed, what was asked comes back in order.
func TestDrawer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDrawer(Options{Limits: small, Delay: time.Second})
		if err := d.Seat(2, &exec.Seating{Banned: []int32{8}}); err != nil {
			t.Fatal(err)
		}
		greedy := exec.Draw{Seat: 2, Token: -1, Policy: exec.Policy{Greedy: true, Scale: 1, Repetition: 1}, Logprobs: -1}
		first := step(rows{0, []int32{5, 6, 7}, []int32{4, 1}, 2, true})
		banned := greedy
		banned.Banned = true
		first.Draws = []exec.Draw{banned}
		second := step(rows{3, []int32{-1}, []int32{4, 1}, 2, false})
		greedy.Logprobs = 2
		second.Feed, second.Draws = []int32{2}, []exec.Draw{greedy}
		began := time.Now()
		for _, s := range []*exec.Step{first, second} {
			if err := d.Start(s); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Start(second); err == nil {
			t.Error("a third step is started")
		}
		got, err := d.Finish(nil)
		if err != nil || time.Since(began) != time.Second {
			t.Fatal(err, time.Since(began))
		}
		if got, err = d.Finish(got); err != nil || time.Since(began) != 2*time.Second {
			t.Fatal(err, time.Since(began))
		}
		// 8 follows 7 but is banned; 0 is the lowest of the others. 1 follows 0.
		if len(got) != 2 || got[0].Token != 0 || got[1].Token != 1 || got[1].Logit != Peak || len(got[1].Best) != 2 || got[1].Total == 0 {
			t.Errorf("%+v", got)
		}
		if _, err := d.Finish(nil); err == nil {
			t.Error("no step is under way")
		}
		if err := d.Seat(3, &exec.Seating{}); err == nil {
			t.Error("seat 3 of 3")
		}
	})
}
