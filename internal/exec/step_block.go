// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import (
	"encoding/binary"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/plan"
)

// stepBlock is the device array that the host fills before each step; plan's doc lists its fields. Every field starts at
// a fixed, 64-byte aligned offset, so that bound launches and captured graphs stay valid.
type stepBlock struct {
	buf    gpu.Buffer
	host   []byte     // what fill writes: the buffer itself, or a copy that is then sent to it
	direct bool       // the buffer itself
	pinned gpu.Pinned // that copy, where the device fetches it by itself
	pages  int        // row stride of block_table
	fields map[string]stepField
}

type stepField struct {
	off  int64
	axes plan.Axes
}

// head is the first field: rows, seqs, outs and room for what later classes need.
const headLen = 8

func newStepBlock(dev gpu.Device, alloc func(string, int64) (gpu.Buffer, error), l plan.Limits) (*stepBlock, error) {
	b := &stepBlock{fields: map[string]stepField{}, pages: int(l.Pages)}
	size := int64(0)
	add := func(name string, axes ...plan.Axis) {
		b.fields[name] = stepField{size, axes}
		size = (size + plan.Axes(axes).Shape().Elems()*4 + 63) &^ 63
	}
	rows, seqs, outs := plan.Axis{Name: plan.Rows, Size: l.Rows}, plan.Axis{Name: plan.Seqs, Size: l.Seqs}, plan.Axis{Name: plan.Outs, Size: l.Outs}
	add("head", plan.Axis{Name: "head", Size: headLen})
	for _, name := range []string{"tokens", "positions", "row_seq", "slots"} {
		add(name, rows)
	}
	add("cu_rows", plan.Axis{Name: "seqs+1", Size: l.Seqs + 1})
	add("state_slot", seqs)
	add("fresh", seqs)
	add("out_rows", outs)
	add("block_table", seqs, plan.Axis{Name: "pages", Size: l.Pages}) // last: only the rows of a step's sequences are sent
	var err error
	if b.buf, err = alloc("step", size); err != nil {
		return nil, err
	}
	if h, ok := b.buf.(gpu.HostBuffer); ok {
		b.host, b.direct = h.Bytes(), true
	} else if p, ok := dev.(gpu.Pinner); ok {
		if b.pinned, err = p.Pinned("step", size); err != nil {
			return nil, err
		}
		b.host = b.pinned.Bytes()
		clear(b.host)
	} else {
		b.host = make([]byte, size)
	}
	return b, nil
}

// fill writes a checked step and sends it, in the order of launches. The last step has ended.
func (b *stepBlock) fill(s *Step) error {
	b.put("head", 0, []int32{int32(len(s.Tokens)), int32(len(s.Pages)), int32(len(s.OutRows))})
	b.put("tokens", 0, s.Tokens)
	b.put("positions", 0, s.Positions)
	b.put("row_seq", 0, s.RowSeq)
	b.put("slots", 0, s.Slots)
	b.put("cu_rows", 0, s.CuRows)
	for i, pages := range s.Pages {
		b.put("block_table", i*b.pages, pages)
	}
	b.put("state_slot", 0, s.StateSlot)
	b.put("fresh", 0, s.Fresh)
	b.put("out_rows", 0, s.OutRows)
	used := b.fields["block_table"].off + int64(len(s.Pages)*b.pages*4)
	switch {
	case b.direct:
		return nil
	case b.pinned != nil:
		return b.pinned.Upload(b.buf, 0, used)
	}
	return b.buf.Write(0, b.host[:used])
}

func (b *stepBlock) put(field string, at int, values []int32) {
	dst := b.host[b.fields[field].off+int64(at)*4:]
	for i, v := range values {
		binary.LittleEndian.PutUint32(dst[i*4:], uint32(v))
	}
}

// check refuses a step that breaks the block's contract: the engine's fault, never the client's.
func (m *Model) check(s *Step) error {
	rows, seqs, l := len(s.Tokens), len(s.Pages), m.limits
	bad := func(format string, args ...any) error { return diag.Errorf(diag.Internal, "step: "+format, args...) }
	switch {
	case rows == 0 || len(s.Positions) != rows || len(s.RowSeq) != rows || len(s.Slots) != rows:
		return bad("%d tokens, %d positions, %d row_seq, %d slots", rows, len(s.Positions), len(s.RowSeq), len(s.Slots))
	case int64(seqs) > l.Seqs || len(s.CuRows) != seqs+1 || len(s.StateSlot) != seqs || len(s.Fresh) != seqs:
		return bad("%d sequences (at most %d), %d cu_rows, %d state slots, %d fresh", seqs, l.Seqs, len(s.CuRows), len(s.StateSlot), len(s.Fresh))
	case int64(len(s.OutRows)) > l.Outs:
		return bad("%d rows with logits, at most %d", len(s.OutRows), l.Outs)
	case s.CuRows[0] != 0 || int(s.CuRows[seqs]) != rows:
		return bad("cu_rows spans [%d, %d) of %d rows", s.CuRows[0], s.CuRows[seqs], rows)
	}
	for i, pages := range s.Pages {
		first, end := s.CuRows[i], s.CuRows[i+1]
		if first >= end || int(end) > rows || int64(len(pages)) > l.Pages {
			return bad("sequence %d: rows [%d, %d), %d pages of at most %d", i, first, end, len(pages), l.Pages)
		}
		for r := first; r < end; r++ {
			switch pos := int64(s.Positions[r]); {
			case r > first && s.Positions[r] != s.Positions[r-1]+1:
				return bad("sequence %d: position %d follows %d", i, pos, s.Positions[r-1])
			case pos < 0 || pos/l.PageSize >= int64(len(pages)):
				return bad("sequence %d: position %d lies outside its %d pages", i, pos, len(pages))
			}
		}
		if l.NumSlots > 0 && (s.StateSlot[i] < 0 || int(s.StateSlot[i]) >= l.NumSlots) {
			return bad("sequence %d: state slot %d of %d", i, s.StateSlot[i], l.NumSlots)
		}
		for _, p := range pages {
			if p < 0 || int(p) >= l.NumPages {
				return bad("sequence %d: page %d of %d", i, p, l.NumPages)
			}
		}
	}
	for r, t := range s.Tokens {
		q, pos := s.RowSeq[r], int64(s.Positions[r])
		if q < 0 || int(q) >= seqs || int32(r) < s.CuRows[q] || int32(r) >= s.CuRows[q+1] {
			return bad("row %d names sequence %d", r, q)
		}
		if want := int64(s.Pages[q][pos/l.PageSize])*l.PageSize + pos%l.PageSize; t < 0 || int(t) >= l.Vocab || int64(s.Slots[r]) != want {
			return bad("row %d: token %d of %d, position %d in slot %d, its page says %d", r, t, l.Vocab, pos, s.Slots[r], want)
		}
	}
	for i, r := range s.OutRows {
		if r < 0 || int(r) >= rows || i > 0 && r <= s.OutRows[i-1] {
			return bad("out_rows[%d] is %d", i, r)
		}
	}
	return nil
}
