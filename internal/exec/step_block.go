// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import (
	"encoding/binary"
	"slices"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/plan"
)

// stepBlock is the device array that the host fills before each step; plan's doc lists its fields. Each bucket has its own layout
// in it, no larger than its steps need, since all of it up to the last used page is sent.
type stepBlock struct {
	buf    gpu.Buffer
	sides  [2]side // written in turn: the device may still fetch the one before
	at     int     // the side of the last step
	direct bool    // a side is the buffer itself
}

// side is host memory as large as the block.
type side struct {
	host   []byte
	pinned gpu.Pinned // that memory, where the device fetches it by itself
}

// stepLayout says where a bucket's fields lie. Every field starts at a fixed, 64-byte aligned offset, so that bound launches and
// captured graphs stay valid.
type stepLayout struct {
	fields map[string]stepField
	pages  int // row stride of block_table
	size   int64
}

type stepField struct {
	off  int64
	axes plan.Axes
}

const (
	headLen   = 8    // of the first field, head: rows, seqs, outs, draws and room for what later classes need
	coordAxes = 3    // of a row's coordinates
	meetLen   = 8192 // counters of the field meet
)

// newStepLayout lays out the fields of a bucket of a part that uses those fields, and draws rows of the sampler.
func newStepLayout(l plan.Limits, uses map[string]bool, draws int64) *stepLayout {
	y := &stepLayout{fields: map[string]stepField{}, pages: int(l.Pages)}
	add := func(name string, axes ...plan.Axis) {
		y.fields[name] = stepField{y.size, axes}
		y.size = (y.size + plan.Axes(axes).Shape().Elems()*4 + 63) &^ 63
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
	by := plan.Axis{Name: "axes", Size: coordAxes}
	for _, f := range []struct {
		name string
		axes plan.Axes
	}{{"feature_row", plan.Axes{rows}}, {"hidden_row", plan.Axes{rows}}, {"coords", plan.Axes{rows, by}}, {"grids", plan.Axes{seqs, by}}} {
		if uses[f.name] {
			add(f.name, f.axes...)
		}
	}
	if draws > 0 {
		add("feed", rows)
		add("draws", plan.Axis{Name: "draws", Size: draws}, plan.Axis{Name: "words", Size: drawWords})
	}
	add("block_table", seqs, plan.Axis{Name: "pages", Size: l.Pages}) // last: only the rows of a step's sequences are sent
	return y
}

// placeMeet puts the counters by which blocks of a launch find each other behind what any bucket of the layouts uses, so that nothing is ever
// written there from outside, and returns the size of it all.
func placeMeet(layouts []*stepLayout) int64 {
	var end int64
	for _, y := range layouts {
		end = max(end, y.size)
	}
	for _, y := range layouts {
		y.fields["meet"] = stepField{end, plan.Axes{{Name: "meet", Size: meetLen}}}
	}
	return end + 4*meetLen
}

func newStepBlock(dev gpu.Device, alloc func(string, int64) (gpu.Buffer, error), size int64) (*stepBlock, error) {
	b := &stepBlock{}
	var err error
	if b.buf, err = alloc("step", size); err != nil {
		return nil, err
	}
	h, direct := b.buf.(gpu.HostBuffer)
	p, pins := dev.(gpu.Pinner)
	b.direct = direct
	for i := range b.sides {
		s := &b.sides[i]
		switch {
		case direct:
			s.host = h.Bytes()
		case pins:
			if s.pinned, err = p.Pinned("step", size); err != nil {
				b.free()
				return nil, err
			}
			s.host = s.pinned.Bytes()
			clear(s.host)
		default:
			s.host = make([]byte, size)
		}
	}
	return b, nil
}

func (b *stepBlock) free() {
	for _, s := range b.sides {
		if s.pinned != nil {
			s.pinned.Free()
		}
	}
}

// fill writes a checked step and sends it, in the order of launches. The step before the last one has ended.
func (b *stepBlock) fill(k *bucket, t *part, s *Step, draws []drawRow) error {
	b.at ^= 1
	w := blockWriter{k.layout, b.sides[b.at].host}
	w.put("head", 0, []int32{int32(len(s.RowSeq)), int32(len(s.CuRows) - 1), int32(max(len(s.OutRows), s.Outs)), int32(len(draws))})
	w.put("tokens", 0, s.Tokens)
	w.put("positions", 0, s.Positions)
	w.put("row_seq", 0, s.RowSeq)
	w.put("slots", 0, s.Slots)
	w.put("cu_rows", 0, s.CuRows)
	for i, pages := range s.Pages {
		w.put("block_table", i*w.pages, pages)
	}
	w.put("state_slot", 0, s.StateSlot)
	w.put("fresh", 0, s.Fresh)
	w.put("out_rows", 0, s.OutRows)
	w.putParts(t, s)
	if s.Feed != nil {
		w.put("feed", 0, s.Feed)
	}
	for i := range draws {
		w.put("draws", i*drawWords, draws[i][:])
	}
	used := w.fields["block_table"].off + int64(len(s.Pages)*w.pages*4)
	side := &b.sides[b.at]
	switch {
	case b.direct:
		return nil
	case side.pinned != nil:
		return side.pinned.Upload(b.buf, 0, used)
	}
	return b.buf.Write(0, side.host[:used])
}

// blockWriter writes fields into host memory.
type blockWriter struct {
	*stepLayout
	host []byte
}

// putParts writes the fields that only models with further parts have.
func (w blockWriter) putParts(t *part, s *Step) {
	if t.uses["hidden_row"] {
		w.put("hidden_row", 0, s.HiddenRow)
	}
	for i := 0; t.uses["grids"] && i < len(s.Grids); i++ {
		w.put("grids", coordAxes*i, s.Grids[i][:])
	}
	for i := 0; t.uses["coords"] && i < len(s.RowSeq); i++ {
		if s.Coords != nil {
			w.put("coords", coordAxes*i, s.Coords[i][:])
		} else {
			p := s.Positions[i]
			w.put("coords", coordAxes*i, []int32{p, p, p})
		}
	}
	if t.uses["feature_row"] {
		w.put("feature_row", 0, s.FeatureRow)
		for i := range s.RowSeq[len(s.FeatureRow):] {
			w.put("feature_row", len(s.FeatureRow)+i, []int32{-1})
		}
	}
}

func (w blockWriter) put(field string, at int, values []int32) {
	dst := w.host[w.fields[field].off+int64(at)*4:]
	for i, v := range values {
		binary.LittleEndian.PutUint32(dst[i*4:], uint32(v))
	}
}

// check refuses a step that breaks the block's contract: the engine's fault, never the client's.
func (m *Model) check(t *part, s *Step) error {
	if err := checkSequences(t, s); err != nil {
		return err
	}
	if t.uses["grids"] {
		return checkGrids(t, s)
	}
	if err := m.checkPages(t, s); err != nil {
		return err
	}
	rows := len(s.RowSeq)
	for i, r := range s.OutRows {
		if r < 0 || int(r) >= rows || i > 0 && r <= s.OutRows[i-1] {
			return badStep("out_rows[%d] is %d", i, r)
		}
	}
	switch {
	case t.uses["hidden_row"] && len(s.HiddenRow) != rows:
		return badStep("%d hidden rows for %d rows", len(s.HiddenRow), rows)
	case s.FeatureRow != nil && (len(s.FeatureRow) != rows || !t.uses["feature_row"]):
		return badStep("%d feature rows for %d rows", len(s.FeatureRow), rows)
	case s.Coords != nil && (len(s.Coords) != rows || !t.uses["coords"]):
		return badStep("%d coordinates for %d rows", len(s.Coords), rows)
	}
	if t.uses["hidden_row"] {
		if err := m.checkRowsOf(hidden, s.HiddenRow, 0); err != nil {
			return err
		}
	}
	return m.checkRowsOf(features, s.FeatureRow, -1)
}

// checkRowsOf looks at rows of a port, which are at least least.
func (m *Model) checkRowsOf(name string, list []int32, least int32) error {
	for i, r := range list {
		if t := m.ports[name]; t == nil || r < least || int64(r) >= t.rows {
			return badStep("row %d wants row %d of port %s", i, r, name)
		}
	}
	return nil
}

func badStep(format string, args ...any) error {
	return diag.Errorf(diag.Internal, "step: "+format, args...)
}

// checkSequences looks at how rows make sequences.
func checkSequences(t *part, s *Step) error {
	rows, seqs, l := len(s.RowSeq), len(s.CuRows)-1, &t.limits
	switch {
	case rows == 0 || seqs < 1 || int64(seqs) > l.Seqs:
		return badStep("%d rows of %d sequences (at most %d)", rows, seqs, l.Seqs)
	case int64(max(len(s.OutRows), s.Outs)) > l.Outs:
		return badStep("%d rows with logits, at most %d", max(len(s.OutRows), s.Outs), l.Outs)
	case s.CuRows[0] != 0 || int(s.CuRows[seqs]) != rows:
		return badStep("cu_rows spans [%d, %d) of %d rows", s.CuRows[0], s.CuRows[seqs], rows)
	}
	for i := range seqs {
		if first, end := s.CuRows[i], s.CuRows[i+1]; first >= end || int(end) > rows {
			return badStep("sequence %d: rows [%d, %d)", i, first, end)
		}
	}
	for r, q := range s.RowSeq {
		if q < 0 || int(q) >= seqs || int32(r) < s.CuRows[q] || int32(r) >= s.CuRows[q+1] {
			return badStep("row %d names sequence %d", r, q)
		}
	}
	return nil
}

// checkPages looks at tokens, and at where their keys, values and recurrent state live.
func (m *Model) checkPages(t *part, s *Step) error {
	rows, seqs, l := len(s.RowSeq), len(s.Pages), &t.limits
	switch {
	case len(s.Tokens) != rows || len(s.Positions) != rows || len(s.Slots) != rows:
		return badStep("%d tokens, %d positions, %d row_seq, %d slots", len(s.Tokens), len(s.Positions), rows, len(s.Slots))
	case s.Feed != nil && (len(s.Feed) != rows || m.sampler == nil || int(slices.Max(s.Feed)) >= m.sampler.Seats):
		return badStep("rows are fed from seats %v", s.Feed)
	case len(s.CuRows) != seqs+1 || len(s.StateSlot) != seqs || len(s.Fresh) != seqs:
		return badStep("%d sequences, %d cu_rows, %d state slots, %d fresh", seqs, len(s.CuRows), len(s.StateSlot), len(s.Fresh))
	}
	for i, pages := range s.Pages {
		first, end := s.CuRows[i], s.CuRows[i+1]
		if int64(len(pages)) > l.Pages {
			return badStep("sequence %d: rows [%d, %d), %d pages of at most %d", i, first, end, len(pages), l.Pages)
		}
		for r := first; r < end; r++ {
			switch pos := int64(s.Positions[r]); {
			case r > first && s.Positions[r] != s.Positions[r-1]+1:
				return badStep("sequence %d: position %d follows %d", i, pos, s.Positions[r-1])
			case pos < 0 || pos/l.PageSize >= int64(len(pages)):
				return badStep("sequence %d: position %d lies outside its %d pages", i, pos, len(pages))
			}
		}
		if m.limits.NumSlots > 0 && (s.StateSlot[i] < 0 || int(s.StateSlot[i]) >= m.limits.NumSlots) {
			return badStep("sequence %d: state slot %d of %d", i, s.StateSlot[i], m.limits.NumSlots)
		}
		for _, p := range pages {
			if p < 0 || int(p) >= m.limits.NumPages {
				return badStep("sequence %d: page %d of %d", i, p, m.limits.NumPages)
			}
		}
	}
	for r, tok := range s.Tokens {
		if s.Feed != nil && s.Feed[r] >= 0 {
			tok = 0 // it is on the device
		}
		q, pos := s.RowSeq[r], int64(s.Positions[r])
		if want := int64(s.Pages[q][pos/l.PageSize])*l.PageSize + pos%l.PageSize; tok < 0 || int(tok) >= m.limits.Vocab || int64(s.Slots[r]) != want {
			return badStep("row %d: token %d of %d, position %d in slot %d, its page says %d", r, tok, m.limits.Vocab, pos, s.Slots[r], want)
		}
	}
	return nil
}

// checkGrids looks at the images of a vision tower's step.
func checkGrids(t *part, s *Step) error {
	if rows := len(s.RowSeq); len(s.Coords) != rows || len(s.Grids) != len(s.CuRows)-1 {
		return badStep("%d coordinates for %d rows, %d grids for %d images", len(s.Coords), rows, len(s.Grids), len(s.CuRows)-1)
	}
	for i, g := range s.Grids {
		n := int64(s.CuRows[i+1] - s.CuRows[i])
		if g[0] < 1 || g[1] < 1 || g[2] < 1 || int64(g[1])*int64(g[2]) > n || int64(g[0])*int64(g[1])*int64(g[2]) != n {
			return badStep("image %d: a grid of %v for %d rows", i, g, n)
		}
	}
	for r, at := range s.Coords {
		if g := s.Grids[s.RowSeq[r]]; at[0] < 0 || at[0] >= g[0] || at[1] < 0 || at[1] >= g[1] || at[2] < 0 || at[2] >= g[2] {
			return badStep("row %d is at %v of a grid of %v", r, at, g)
		}
	}
	return nil
}
