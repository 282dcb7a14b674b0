// SPDX-License-Identifier: MIT OR Apache-2.0

package weights

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/tensor"
)

// Names that a Quantised store has beside each packed tensor; no checkpoint has names with a slash.
const (
	ScaleOf = "/scale" // float32 that multiplies each row: [rows], or [stack, rows]; only where there is one
	FloatOf = "/f32"   // the weight itself in float32, scales multiplied
)

// packed is a tensor that is put together while it is read, from values and their scales.
//
//	values   [stack…, N, K]     codes, several to a byte, or e4m3
//	scale    [stack…, N/r, K/c] one for r rows × c columns, the last ones of fewer
//	rows     one for each row, each matrix of a stack or the whole tensor
//	weight = code · scale · rows
type packed struct {
	tensor.Info             // as it is shown
	store       Store       // that has the values
	values      tensor.Info // as stored
	shape       [3]int64    // of the weight: matrices, rows and columns
	codes       codec       // of the values
	scale       tensor.Info // without a name: none
	group       [2]int64    // rows and columns of a scale
	rows        *rowScale   // nil: none
	columns     *columns    // of values and scales that lie by columns; nil: by rows
}

// rowScale multiplies rows after everything else.
type rowScale struct {
	values []float32   // of the whole tensor or each matrix; nil: those of the tensor stored
	stored tensor.Info // a scale for each row
}

// rowBytes is what the values of a row take.
func (p *packed) rowBytes() int64 { return p.shape[2] * p.codes.bits / 8 }

// scaleRow is the row of the scales that belongs to a row of the weight, counted over all matrices.
func (p *packed) scaleRow(row int64) int64 {
	n := p.shape[1]
	return row/n*ceil(n, p.group[0]) + row%n/p.group[0]
}

func ceil(a, b int64) int64 { return (a + b - 1) / b }

// read puts together what lies from off on of the tensor as it is shown, or as float32.
func (p *packed) read(d tensor.DType, off int64, dst []byte) error {
	width := d.Bytes(p.shape[2])
	batch := max(1, batchBytes/max(width, p.rowBytes()))
	for len(dst) > 0 {
		row, skip := off/width, off%width
		n := min(batch, ceil(skip+int64(len(dst)), width))
		out := dst
		if skip != 0 || n*width > int64(len(dst)) {
			out = make([]byte, n*width) // only a part of it is wanted
		}
		out = out[:n*width]
		if err := p.readRows(d, row, n, out); err != nil {
			return err
		}
		got := int64(len(out)) - skip
		if &out[0] != &dst[0] {
			got = int64(copy(dst, out[skip:]))
		}
		dst, off = dst[got:], off+got
	}
	return nil
}

// readRows writes n rows from row on.
func (p *packed) readRows(d tensor.DType, row, n int64, out []byte) error {
	values, scales, err := p.stored(row, n)
	if err != nil {
		return err
	}
	if p.scale.Name == "" && d == p.values.DType {
		copy(out, values)
		return nil
	}
	per := p.scaleBytes() * ceil(p.shape[2], p.group[1])
	rows := make([]float32, n)
	if err := p.rowScales(row, rows); d == tensor.F32 && err != nil {
		return err
	}
	width := d.Bytes(p.shape[2])
	for r := range n {
		src, to := values[r*p.rowBytes():][:p.rowBytes()], out[r*width:][:width]
		own := scales[(p.scaleRow(row+r)-p.scaleRow(row))*per:][:per]
		if d == tensor.F32 {
			p.floats(to, src, own, rows[r])
			continue
		}
		elems, size := d.Block()
		p.codes.blocks(&blockRow{dst: to, values: src, scales: own, size: size, of: elems * int(p.codes.bits) / 8,
			scale: int(p.scaleBytes()), share: int(p.group[1]) / elems, d: p.scale.DType})
	}
	return nil
}

// scaleBytes is what a scale takes, with its zero point if there is one.
func (p *packed) scaleBytes() int64 {
	switch {
	case p.scale.Name == "":
		return 0
	case p.columns != nil:
		return p.scale.DType.Bytes(1) + 1
	}
	return p.scale.DType.Bytes(1)
}

// stored reads the values of rows, and the rows of scales that belong to them.
func (p *packed) stored(row, n int64) (values, scales []byte, err error) {
	if p.columns != nil {
		return p.columns.rows(p, row, n)
	}
	values = make([]byte, n*p.rowBytes())
	if err := p.store.Read(p.values.Name, row*p.rowBytes(), values); err != nil {
		return nil, nil, err
	}
	if p.values.DType == tensor.E4M3 && anyNaN(values) {
		return nil, nil, diag.Errorf(diag.Format, "tensor %s: a value is not a number", p.values.Name).For(p.values.Name)
	}
	if p.scale.Name == "" {
		return values, nil, nil
	}
	first, end := p.scaleRow(row), p.scaleRow(row+n-1)+1
	per := p.scaleBytes() * ceil(p.shape[2], p.group[1])
	scales = make([]byte, (end-first)*per)
	if err := p.store.Read(p.scale.Name, first*per, scales); err != nil {
		return nil, nil, err
	}
	if why := badScale(p.scale.DType, scales); why != "" {
		return nil, nil, diag.Errorf(diag.Format, "tensor %s: a scale is %s", p.scale.Name, why).For(p.scale.Name)
	}
	return values, scales, nil
}

// floats writes a row as float32.
func (p *packed) floats(dst, values, scales []byte, row float32) {
	x := make([]float32, p.shape[2])
	p.codes.float(x, values)
	if len(scales) > 0 {
		size := p.scaleBytes()
		for i := int64(0); i < p.shape[2]; i += p.group[1] {
			own := scales[i/p.group[1]*size:][:size]
			scale, zero := number(p.scale.DType, own), float32(0)
			if p.columns != nil {
				zero = float32(own[size-1])
			}
			for j := i; j < min(i+p.group[1], p.shape[2]); j++ {
				x[j] = (x[j] - zero) * scale
			}
		}
	}
	for i, v := range x {
		binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v*row))
	}
}

// rowScales are those of rows from row on; ones if there are none.
func (p *packed) rowScales(row int64, dst []float32) error {
	switch r := p.rows; {
	case r == nil:
		for i := range dst {
			dst[i] = 1
		}
	case r.values != nil:
		per := p.shape[0] * p.shape[1] / int64(len(r.values))
		for i := range dst {
			dst[i] = r.values[(row+int64(i))/per]
		}
	default:
		n := r.stored.DType.Bytes(1)
		raw := make([]byte, n*int64(len(dst)))
		if err := p.store.Read(r.stored.Name, row*n, raw); err != nil {
			return err
		}
		if why := badScale(r.stored.DType, raw); why != "" {
			return diag.Errorf(diag.Format, "tensor %s: a scale is %s", r.stored.Name, why).For(r.stored.Name)
		}
		return tensor.Decode(dst, r.stored.DType, raw)
	}
	return nil
}

// anyNaN says whether one of the e4m3 values is none.
func anyNaN(b []byte) bool {
	for ; len(b) >= 8; b = b[8:] {
		const low = 0x7F7F7F7F7F7F7F7F
		if (binary.LittleEndian.Uint64(b)&low+low/0x7F)&^low != 0 {
			return true
		}
	}
	return slices.ContainsFunc(b, func(x byte) bool { return x&0x7F == 0x7F })
}

// badScale says what is wrong with a scale of a tensor; "" nothing. The scale of a group may be 0 where it is e4m3: a group of
// small values below others.
func badScale(d tensor.DType, b []byte) string {
	switch d {
	case tensor.E4M3:
		for _, x := range b {
			if x&0x7F == 0x7F {
				return "not a number"
			}
			if x > 0x80 {
				return "negative"
			}
		}
		return ""
	case tensor.E8M0:
		if slices.Contains(b, 0xFF) {
			return "not a number"
		}
		return ""
	}
	_, n := d.Block()
	for ; len(b) > 0; b = b[n:] {
		if why := badNumber(number(d, b)); why != "" {
			return why
		}
	}
	return ""
}

func badNumber(v float32) string {
	switch f := float64(v); {
	case math.IsNaN(f):
		return "not a number"
	case math.IsInf(f, 0):
		return "infinite"
	case v < 0:
		return "negative"
	case v == 0:
		return "zero"
	}
	return ""
}

// quantised is a Store over a checkpoint's values and scales.
type quantised struct {
	Store // the files
	names []string
	by    map[string]*packed
	total int64
}

func (q *quantised) Names() []string { return q.names }

// shown finds a packed tensor, and how a name wants it: as its blocks, as float32, or its rows' scales.
func (q *quantised) shown(name string) (p *packed, as string) {
	for _, as := range []string{ScaleOf, FloatOf} {
		if base, ok := strings.CutSuffix(name, as); ok {
			return q.by[base], as
		}
	}
	return q.by[name], ""
}

func (q *quantised) Lookup(name string) (tensor.Info, bool) {
	p, as := q.shown(name)
	switch {
	case p == nil && as == FloatOf:
		t, ok := q.Lookup(strings.TrimSuffix(name, as))
		return tensor.Info{Name: name, DType: tensor.F32, Shape: t.Shape}, ok
	case p == nil:
		return q.Store.Lookup(name)
	case as == FloatOf:
		return tensor.Info{Name: name, DType: tensor.F32, Shape: p.Shape}, true
	case as == ScaleOf && (p.rows == nil || p.DType == tensor.F32): // in which they are multiplied
		return tensor.Info{}, false
	case as == ScaleOf:
		return tensor.Info{Name: name, DType: tensor.F32, Shape: p.Shape[:len(p.Shape)-1]}, true
	}
	return p.Info, true
}

func (q *quantised) Read(name string, off int64, dst []byte) error {
	p, as := q.shown(name)
	t, ok := q.Lookup(name)
	switch {
	case !ok:
		return missing(name)
	case p == nil && as == "":
		return q.Store.Read(name, off, dst)
	}
	if err := inRange(name, off, len(dst), t.Size()); err != nil {
		return err
	}
	switch {
	case p == nil:
		return q.readFloats(strings.TrimSuffix(name, as), off, dst)
	case as == FloatOf:
		return p.read(tensor.F32, off, dst)
	case as == ScaleOf:
		return p.readScales(off, dst)
	}
	return p.read(p.DType, off, dst)
}

// readScales reads scales of rows as float32.
func (p *packed) readScales(off int64, dst []byte) error {
	first, end := off/4, ceil(off+int64(len(dst)), 4)
	x := make([]float32, end-first)
	if err := p.rowScales(first, x); err != nil {
		return err
	}
	raw := make([]byte, 4*len(x))
	_ = tensor.Encode(raw, tensor.F32, x)
	copy(dst, raw[off-4*first:])
	return nil
}

// readFloats reads a tensor that is not packed as float32.
func (q *quantised) readFloats(name string, off int64, dst []byte) error {
	t, _ := q.Store.Lookup(name)
	first, end := off/4, ceil(off+int64(len(dst)), 4)
	raw, x := make([]byte, t.DType.Bytes(end-first)), make([]float32, end-first)
	if err := q.Store.Read(name, t.DType.Bytes(first), raw); err != nil {
		return err
	}
	if err := tensor.Decode(x, t.DType, raw); err != nil {
		return diag.Errorf(diag.Format, "tensor %s of type %v is no float32", name, t.DType).For(name).Because(err)
	}
	out := make([]byte, 4*len(x))
	_ = tensor.Encode(out, tensor.F32, x)
	copy(dst, out[off-4*first:])
	return nil
}

// Words are those of a tensor that is not packed, over a store of such.
func (q *quantised) Words(name string) (tensor.Words, bool) {
	random, ok := q.Store.(interface {
		Words(name string) (tensor.Words, bool)
	})
	if p, as := q.shown(name); !ok || p != nil || as != "" {
		return tensor.Words{}, false
	}
	return random.Words(name)
}

func (q *quantised) Bytes(name string) ([]byte, bool) {
	if p, as := q.shown(name); p != nil || as != "" {
		return nil, false
	}
	return q.Store.Bytes(name)
}

func (q *quantised) Drop(name string) {
	p, as := q.shown(name)
	if p == nil {
		q.Store.Drop(strings.TrimSuffix(name, as))
		return
	}
	if as != ScaleOf {
		q.Store.Drop(p.values.Name)
		if p.columns != nil {
			p.columns.drop()
		}
		if p.scale.Name != "" {
			q.Store.Drop(p.scale.Name)
		}
	}
}

func (q *quantised) TotalBytes() int64 { return q.total }
