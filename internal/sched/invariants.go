// SPDX-License-Identifier: MIT OR Apache-2.0

package sched

import (
	"fmt"

	"github.com/metrale/metrale/internal/kv"
	"github.com/metrale/metrale/internal/seq"
)

// check panics when the scheduler's own state is inconsistent, in builds with the tag `invariants`.
func (s *Scheduler) check() {
	if !kv.Invariants {
		return
	}
	if err := s.verify(); err != nil {
		panic("sched: " + err.Error())
	}
}

// verify says what is inconsistent.
func (s *Scheduler) verify() error {
	holders := map[int32]seq.ID{}
	pages, slots := 0, 0
	last := seq.ID(0)
	underWay := false // a step whose outcome is to come
	older := func(q *sequence) error {
		if q.req == nil || s.byID[q.id] != q {
			return fmt.Errorf("sequence %d is listed but has ended", q.id)
		}
		if q.id <= last {
			return fmt.Errorf("sequence %d stands behind %d", q.id, last)
		}
		last = q.id
		return nil
	}
	for _, q := range s.running {
		if err := older(q); err != nil {
			return err
		}
		underWay = underWay || q.owed > 0 || q.worked == s.steps-1
		if q.unknown > q.owed || q.unknown > 0 && !s.cfg.Ahead {
			return fmt.Errorf("sequence %d: %d tokens are unknown, %d are owed", q.id, q.unknown, q.owed)
		}
		if q.computed > len(q.history) || s.pool.PagesFor(q.computed) > len(q.table.Pages()) {
			return fmt.Errorf("sequence %d: %d of %d tokens computed in %d pages", q.id, q.computed, len(q.history), len(q.table.Pages()))
		}
		if (s.pool.Slots() > 0) != (q.slot != kv.NoSlot) {
			return fmt.Errorf("running sequence %d has state slot %d", q.id, q.slot)
		}
		for _, p := range q.table.Pages() {
			if by, taken := holders[p]; taken || s.pool.Refs(p) != 1 {
				return fmt.Errorf("page %d of sequence %d has %d references, sequence %d among the holders", p, q.id, s.pool.Refs(p), by)
			}
			holders[p] = q.id
			pages++
		}
		if q.slot != kv.NoSlot {
			slots++
		}
	}
	for i := range s.waiting.len() {
		q := *s.waiting.at(i)
		if err := older(q); err != nil {
			return err
		}
		underWay = underWay || q.owed > 0
		if len(q.table.Pages()) > 0 || q.slot != kv.NoSlot || q.computed != 0 {
			return fmt.Errorf("waiting sequence %d holds %d pages, slot %d, %d computed tokens", q.id, len(q.table.Pages()), q.slot, q.computed)
		}
	}
	u := s.Usage()
	switch {
	case u.Pages != pages || u.Slots != slots:
		return fmt.Errorf("%d pages and %d slots are held, sequences hold %d and %d", u.Pages, u.Slots, pages, slots)
	case u.Running+u.Waiting != len(s.byID):
		return fmt.Errorf("%d run, %d wait, %d are known", u.Running, u.Waiting, len(s.byID))
	case u.Running > s.cfg.Batch:
		return fmt.Errorf("%d run, at most %d", u.Running, s.cfg.Batch)
	case len(s.decision.Work) == 0 && len(s.byID) > 0 && !(s.cfg.Ahead && underWay):
		return fmt.Errorf("%d sequences and no work", len(s.byID))
	}
	return nil
}
