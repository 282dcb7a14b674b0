// SPDX-License-Identifier: MIT OR Apache-2.0

package script

import (
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/exec"
)

// memory is a fake device memory that knows what belongs where.
type memory struct {
	limits exec.Limits
	kv     []entry // [pages * page size]
	states []state // [slots]
	wrote  []int   // per KV slot: the step that wrote it last
	step   int
	owner  map[int32]int // of pages written in this step: the sequence
	slots  map[int32]int // of state slots used in this step: the sequence
}

// entry is what a KV slot holds.
type entry struct {
	token, pos int32
	hash       uint64 // of the history up to and with token; 0: never written
}

// state is what a recurrent-state slot holds.
type state struct {
	tokens int32
	hash   uint64
}

// begin is the hash of the empty history.
const begin = 0x9E3779B97F4A7C15

// extend is the hash of a history with one more token.
func extend(h uint64, token int32) uint64 {
	h = (h ^ uint64(uint32(token))) * 0xD6E8FEB86659FD93
	return (h ^ h>>32) | 1
}

func newMemory(l exec.Limits) memory {
	n := l.NumPages * int(l.PageSize)
	return memory{limits: l, kv: make([]entry, n), wrote: make([]int, n), states: make([]state, l.NumSlots),
		owner: map[int32]int{}, slots: map[int32]int{}}
}

func bad(format string, args ...any) error {
	return diag.Errorf(diag.Internal, "script: "+format, args...)
}

// run checks a step's shape, writes its rows and follows its states.
func (m *memory) run(s *exec.Step) error {
	m.step++
	clear(m.owner)
	clear(m.slots)
	rows, seqs := len(s.Tokens), len(s.Pages)
	l := m.limits
	switch {
	case rows == 0 || int64(rows) > l.Rows || int64(seqs) > l.Seqs || int64(len(s.OutRows)) > l.Outs:
		return bad("%d rows, %d sequences, %d outputs; at most %d, %d, %d", rows, seqs, len(s.OutRows), l.Rows, l.Seqs, l.Outs)
	case len(s.Positions) != rows || len(s.RowSeq) != rows || len(s.Slots) != rows:
		return bad("%d tokens, %d positions, %d row_seq, %d slots", rows, len(s.Positions), len(s.RowSeq), len(s.Slots))
	case len(s.CuRows) != seqs+1 || len(s.StateSlot) != seqs || len(s.Fresh) != seqs:
		return bad("%d sequences, %d cu_rows, %d state slots, %d fresh", seqs, len(s.CuRows), len(s.StateSlot), len(s.Fresh))
	case s.CuRows[0] != 0 || int(s.CuRows[seqs]) != rows:
		return bad("cu_rows spans [%d, %d) of %d rows", s.CuRows[0], s.CuRows[seqs], rows)
	}
	for i, r := range s.OutRows {
		if r < 0 || int(r) >= rows || i > 0 && r <= s.OutRows[i-1] {
			return bad("out_rows[%d] is %d", i, r)
		}
	}
	for i := range s.Pages {
		if err := m.sequence(s, i); err != nil {
			return err
		}
	}
	return m.shared(s)
}

// sequence writes the rows of the i-th sequence.
func (m *memory) sequence(s *exec.Step, i int) error {
	first, end, pages, l := int(s.CuRows[i]), int(s.CuRows[i+1]), s.Pages[i], m.limits
	if first >= end || end > len(s.Tokens) || int64(len(pages)) > l.Pages {
		return bad("sequence %d: rows [%d, %d), %d pages", i, first, end, len(pages))
	}
	for _, p := range pages {
		if p < 0 || int(p) >= l.NumPages {
			return bad("sequence %d: page %d of %d", i, p, l.NumPages)
		}
	}
	h, err := m.before(s.Positions[first], pages)
	if err != nil {
		return bad("sequence %d: %v", i, err)
	}
	st, err := m.state(s, i)
	if err != nil {
		return err
	}
	for r := first; r < end; r++ {
		pos, slot := s.Positions[r], s.Slots[r]
		switch {
		case int(s.RowSeq[r]) != i:
			return bad("row %d of sequence %d has row_seq %d", r, i, s.RowSeq[r])
		case pos != s.Positions[first]+int32(r-first):
			return bad("row %d of sequence %d: position %d after %d", r, i, pos, s.Positions[r-1])
		case s.Tokens[r] < 0 || int(s.Tokens[r]) >= l.Vocab:
			return bad("row %d: token %d", r, s.Tokens[r])
		case int(pos)/int(l.PageSize) >= len(pages):
			return bad("row %d: position %d lies behind %d pages", r, pos, len(pages))
		}
		page := pages[int(pos)/int(l.PageSize)]
		if want := page*int32(l.PageSize) + pos%int32(l.PageSize); slot != want {
			return bad("row %d: position %d goes to slot %d, its page says %d", r, pos, slot, want)
		}
		if m.wrote[slot] == m.step {
			return bad("row %d: slot %d is written twice", r, slot)
		}
		if by, ok := m.owner[page]; ok && by != i {
			return bad("page %d is written by sequences %d and %d", page, by, i)
		}
		m.owner[page], m.wrote[slot] = i, m.step
		h = extend(h, s.Tokens[r])
		m.kv[slot] = entry{s.Tokens[r], pos, h}
	}
	if st != nil {
		*st = state{s.Positions[end-1] + 1, h}
	}
	return nil
}

// before is the hash of the history before a position, which must be in the pages.
func (m *memory) before(pos int32, pages []int32) (uint64, error) {
	h := uint64(begin)
	for p := range pos {
		if int(p)/int(m.limits.PageSize) >= len(pages) {
			return 0, bad("position %d lies behind %d pages", p, len(pages))
		}
		e := m.kv[pages[int(p)/int(m.limits.PageSize)]*int32(m.limits.PageSize)+p%int32(m.limits.PageSize)]
		h = extend(h, e.token)
		if e.pos != p || e.hash != h {
			return 0, bad("position %d holds token %d of position %d and another history", p, e.token, e.pos)
		}
	}
	return h, nil
}

// state checks the i-th sequence's state slot and gives it, nil when the model has none.
func (m *memory) state(s *exec.Step, i int) (*state, error) {
	if m.limits.NumSlots == 0 {
		return nil, nil
	}
	slot, pos := s.StateSlot[i], s.Positions[s.CuRows[i]]
	if slot < 0 || int(slot) >= m.limits.NumSlots {
		return nil, bad("sequence %d: state slot %d of %d", i, slot, m.limits.NumSlots)
	}
	if by, ok := m.slots[slot]; ok {
		return nil, bad("state slot %d belongs to sequences %d and %d", slot, by, i)
	}
	m.slots[slot] = i
	st := &m.states[slot]
	if s.Fresh[i] == 1 {
		*st = state{0, begin}
	}
	h, err := m.before(pos, s.Pages[i])
	if err != nil {
		return nil, bad("sequence %d: %v", i, err)
	}
	if st.tokens != pos || st.hash != h {
		return nil, bad("sequence %d: state slot %d has seen %d tokens or another history, %d are before this step", i, slot, st.tokens, pos)
	}
	return st, nil
}

// shared makes sure that a page written in this step stands in one table only.
func (m *memory) shared(s *exec.Step) error {
	for i, pages := range s.Pages {
		for _, p := range pages {
			if by, ok := m.owner[p]; ok && by != i {
				return bad("page %d is written by sequence %d and stands in the table of %d", p, by, i)
			}
		}
	}
	return nil
}

// read appends the history up to and with a row, as its pages spell it.
func (m *memory) read(dst []int32, s *exec.Step, row int) ([]int32, error) {
	pages, pos := s.Pages[s.RowSeq[row]], s.Positions[row]
	if _, err := m.before(pos+1, pages); err != nil {
		return dst, bad("row %d: %v", row, err)
	}
	for p := range pos + 1 {
		dst = append(dst, m.kv[pages[int(p)/int(m.limits.PageSize)]*int32(m.limits.PageSize)+p%int32(m.limits.PageSize)].token)
	}
	return dst, nil
}
