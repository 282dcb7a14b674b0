// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import (
	"strings"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// pieces resolves a weight's sources and makes sure that they are exactly its rows.
func (j *loadJob) pieces(store Store) ([]piece, error) {
	var elems int64
	var out []piece
	for _, src := range j.w.Sources {
		s, err := plan.ParsePiece(src)
		if err != nil {
			return nil, diag.Errorf(diag.Internal, "%w", err)
		}
		t, ok := store.Lookup(s.Tensor)
		if !ok {
			return nil, diag.Errorf(diag.Format, "the checkpoint has no tensor %s", s.Tensor)
		}
		if t.DType != j.w.DType {
			return nil, diag.Errorf(diag.Format, "tensor %s is %v, the plan says %v", s.Tensor, t.DType, j.w.DType)
		}
		p, n, err := cut(s, t)
		if err != nil {
			return nil, err
		}
		elems += n
		out = append(out, p)
	}
	last := map[string]bool{}
	for i := len(out) - 1; i >= 0; i-- {
		out[i].last, last[out[i].name] = !last[out[i].name], true
	}
	if want := j.w.Axes.Shape().Elems(); elems != want {
		return nil, diag.Errorf(diag.Format, "tensors %s hold %d elements, the plan says %v", strings.Join(j.w.Sources, ", "), elems, j.w.Axes.Shape())
	}
	return out, nil
}

// cut finds a piece's bytes in its tensor, and how many elements it has.
func cut(s plan.Piece, t tensor.Info) (piece, int64, error) {
	p, shape := piece{name: s.Tensor}, t.Shape
	bytes := t.Size()
	bad := func(why string, args ...any) (piece, int64, error) {
		return p, 0, diag.Errorf(diag.Format, "tensor %s is %v, "+why, append([]any{s.Tensor, t.Shape}, args...)...)
	}
	if s.Picked {
		if len(shape) < 2 || s.Index >= shape[0] {
			return bad("it has nothing at index %d", s.Index)
		}
		bytes /= shape[0]
		p.base, shape = s.Index*bytes, shape[1:]
	}
	if s.Transposed {
		elems, size := t.DType.Block()
		if len(shape) != 2 || elems != 1 {
			return bad("no matrix of single elements to transpose")
		}
		p.matrix, p.columns, p.elem = bytes, shape[1], int64(size)
		shape = tensor.Shape{shape[1], shape[0]}
	}
	p.groups, p.run = 1, bytes
	n := shape.Elems()
	if s.Of > 0 {
		if len(shape) == 0 || shape[0]%s.Of != 0 {
			return bad("no whole groups of %d rows", s.Of)
		}
		row := bytes / shape[0]
		p.groups, p.first, p.run, p.stride = shape[0]/s.Of, s.Lo*row, (s.Hi-s.Lo)*row, s.Of*row
		n = n / s.Of * (s.Hi - s.Lo)
	}
	return p, n, nil
}

// piece is a source in bytes: groups of run bytes each, stride apart, the first of them first bytes from base.
type piece struct {
	name               string
	last               bool // of this name
	base               int64
	groups             int64
	first, run, stride int64
	// Of a transposed matrix: its bytes as stored, columns as stored, and bytes of an element. Runs are those of the transposed.
	matrix, columns, elem int64
}

// sourceReader reads a weight's stored bytes. It is used by one goroutine.
type sourceReader struct {
	store  Store
	pieces []piece
	span   []byte // groups and what lies between them

	turned   []byte // the last matrix that was transposed
	turnedAt piece
}

// read fills dst with what lies from off on, as if the pieces were one tensor.
func (r *sourceReader) read(off int64, dst []byte) error {
	for i := range r.pieces {
		p := &r.pieces[i]
		size := p.groups * p.run
		for off < size && len(dst) > 0 {
			group, at := off/p.run, off%p.run
			n := min(p.run-at, int64(len(dst)))
			var err error
			if many := min(int64(len(dst)), size-off) / p.run; at == 0 && many > 1 && p.stride <= closeBytes && p.matrix == 0 {
				n = min(many, 1+spanBytes/p.stride) * p.run
				err = r.spread(p, p.first+group*p.stride, dst[:n])
			} else {
				err = r.bytes(p, p.first+group*p.stride+at, dst[:n])
			}
			if err != nil {
				return err
			}
			dst, off = dst[n:], off+n
		}
		off -= size
	}
	return nil
}

const (
	closeBytes = 64 << 10 // groups this close are read with what lies between them
	spanBytes  = 1 << 20  // about how much of that at a time
)

// spread reads whole groups, the first of which lies off bytes after a piece's base.
func (r *sourceReader) spread(p *piece, off int64, dst []byte) error {
	n := int64(len(dst)) / p.run
	size := (n-1)*p.stride + p.run
	if int64(cap(r.span)) < size {
		r.span = make([]byte, size)
	}
	span := r.span[:size]
	if err := r.store.Read(p.name, p.base+off, span); err != nil {
		return err
	}
	for i := range n {
		copy(dst[i*p.run:(i+1)*p.run], span[i*p.stride:])
	}
	return nil
}

// bytes reads what lies off bytes after a piece's base.
func (r *sourceReader) bytes(p *piece, off int64, dst []byte) error {
	if p.matrix == 0 {
		return r.store.Read(p.name, p.base+off, dst)
	}
	if r.turnedAt.name != p.name || r.turnedAt.base != p.base {
		stored := make([]byte, p.matrix)
		if err := r.store.Read(p.name, p.base, stored); err != nil {
			return err
		}
		r.turned, r.turnedAt = transpose(stored, p.columns, p.elem), *p
	}
	copy(dst, r.turned[off:])
	return nil
}

// transpose turns a matrix of elements of that many bytes.
func transpose(src []byte, columns, elem int64) []byte {
	dst := make([]byte, len(src))
	rows := int64(len(src)) / (columns * elem)
	for c := range columns {
		for r := range rows {
			to, from := dst[(c*rows+r)*elem:][:elem], src[(r*columns+c)*elem:][:elem]
			for i := range to {
				to[i] = from[i]
			}
		}
	}
	return dst
}
