// SPDX-License-Identifier: MIT OR Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/tensor"
)

// StepFields are the fields of the step block; see the package's doc.
var StepFields = []string{"head", "tokens", "positions", "row_seq", "slots", "cu_rows", "block_table", "state_slot", "fresh", "out_rows", "feature_row", "hidden_row", "coords", "grids", "meet"}

// arenaAlign is the alignment of buffers in bytes.
const arenaAlign = 64

// Array gives the name, element type and axes of what an argument names, a step field excepted. The index must be valid.
func (p *Plan) Array(a *Arg) (name string, d tensor.DType, axes Axes) {
	switch a.Kind {
	case ArgBuffer:
		b := &p.Buffers[a.Index]
		return b.Name, b.DType, b.Axes
	case ArgWeight:
		w := &p.Weights[a.Index]
		return w.Name, w.DType, w.Axes
	case ArgConst:
		c := &p.Consts[a.Index]
		return c.Name, tensor.F32, Axes{{c.Name, int64(len(c.Values))}}
	case ArgState:
		s := &p.States[a.Index]
		return s.Name, s.DType, s.Axes
	}
	return a.Step, tensor.I32, nil
}

// Verify checks that the plan can run: names are unique, indices and sizes valid, buffers written before they are read and
// never overlapping another that lives at the same time, constants and weights only read. Errors are of code Internal: a
// bad plan is the compiler's fault.
func (p *Plan) Verify() error {
	v := verifier{p: p}
	v.limits()
	v.arrays()
	v.launches()
	if v.err == nil {
		v.overlaps()
	}
	if v.err != nil {
		return diag.Errorf(diag.Internal, "plan %s: %s", p.Circuit, v.err)
	}
	return nil
}

type verifier struct {
	p     *Plan
	lives []span // of each buffer
	err   error
}

// span is the first launch that touches a buffer and the last.
type span struct{ first, last int }

func (v *verifier) fail(format string, args ...any) {
	if v.err == nil {
		v.err = fmt.Errorf(format, args...)
	}
}

func (v *verifier) limits() {
	l := v.p.Limits
	for _, n := range []int64{l.Rows, l.Seqs, l.Outs, l.PageSize, l.Pages} {
		if n < 1 || n > 1<<40 {
			v.fail("limits %+v", l)
		}
	}
}

// bytes is an array's size; -1 and an error if it has none.
func (v *verifier) bytes(what, name string, d tensor.DType, axes Axes) int64 {
	n := int64(1)
	for _, a := range axes {
		if a.Size < 1 || n > (1<<56)/a.Size {
			v.fail("%s %s: axis %s of %d", what, name, a.Name, a.Size)
			return -1
		}
		n *= a.Size
	}
	elems, bytes := d.Block()
	if bytes == 0 || n%int64(elems) != 0 {
		v.fail("%s %s: %d elements of type %v", what, name, n, d)
		return -1
	}
	return d.Bytes(n)
}

func (v *verifier) split(what, name string, s Split, axes Axes) {
	if s.Axis < -1 || s.Axis >= len(axes) || (s.Axis < 0) != (s.Mesh == "") {
		v.fail("%s %s: split %d over %q", what, name, s.Axis, s.Mesh)
	}
}

func (v *verifier) arrays() {
	p := v.p
	names := map[string]string{}
	unique := func(what, name string) {
		if other, ok := names[what+name]; ok || name == "" {
			v.fail("%s %q has no name of its own %s", what, name, other)
		}
		names[what+name] = what
	}
	for i := range p.Consts {
		unique("const", p.Consts[i].Name)
		if len(p.Consts[i].Values) == 0 {
			v.fail("const %s is empty", p.Consts[i].Name)
		}
	}
	for i := range p.Weights {
		w := &p.Weights[i]
		unique("weight", w.Name)
		v.bytes("weight", w.Name, w.DType, w.Axes)
		v.split("weight", w.Name, w.Split, w.Axes)
		if len(w.Sources) == 0 {
			v.fail("weight %s has no sources", w.Name)
		}
		for _, s := range w.Sources {
			if _, err := ParsePiece(s); err != nil {
				v.fail("weight %s: %v", w.Name, err)
			}
		}
	}
	for i := range p.States {
		s := &p.States[i]
		unique("state", s.Name)
		v.bytes("state", s.Name, s.DType, s.Axes)
		if e, page := max(1, s.Every), max(1, p.Limits.PageSize); s.Every < 0 || s.Kind == Slot && s.Every != 0 || page%e != 0 && e%page != 0 {
			v.fail("state %s: %d tokens share an entry of pages of %d", s.Name, s.Every, page)
		}
		v.split("state", s.Name, s.Split, s.Axes)
	}
	for i := range p.Buffers {
		b := &p.Buffers[i]
		unique("buffer", b.Name)
		v.split("buffer", b.Name, b.Split, b.Axes)
		n := v.bytes("buffer", b.Name, b.DType, b.Axes)
		if b.Port.Name != "" {
			v.port(b)
		} else if b.Offset < 0 || b.Offset%arenaAlign != 0 || b.Offset > p.Arena-n {
			v.fail("buffer %s: %d bytes at %d of an arena of %d", b.Name, n, b.Offset, p.Arena)
		}
	}
	if p.Logits < -1 || p.Logits >= len(p.Buffers) {
		v.fail("logits is buffer %d of %d", p.Logits, len(p.Buffers))
	}
}

// port checks a buffer that a port names: it has no place in the arena, and the port goes in once and out once at most.
func (v *verifier) port(b *Buffer) {
	if b.Offset != 0 || b.Port.Dir == InOut {
		v.fail("buffer %s: offset %d, access %d of port %s", b.Name, b.Offset, b.Port.Dir, b.Port.Name)
	}
	for i := range v.p.Buffers {
		if o := &v.p.Buffers[i]; o != b && o.Port == b.Port {
			v.fail("buffers %s and %s have one port", b.Name, o.Name)
		}
	}
}

func (v *verifier) launches() {
	p := v.p
	v.lives = make([]span, len(p.Buffers))
	for i := range v.lives {
		v.lives[i] = span{-1, -1}
	}
	names, ops := map[string]bool{}, map[string]bool{}
	for i := range p.Launches {
		l := &p.Launches[i]
		if names[l.Name] || l.Name == "" || l.Kernel == "" {
			v.fail("launch %q of kernel %q has no name of its own", l.Name, l.Kernel)
		}
		names[l.Name] = true
		for _, o := range l.Ops {
			if ops[o] {
				v.fail("op %s is in two launches", o)
			}
			ops[o] = true
		}
		if len(l.Grid)%5 != 0 {
			v.fail("launch %s has %d grid expressions, not x, y, z, block and shared bytes each", l.Name, len(l.Grid))
		}
		for _, x := range l.Grid {
			if _, err := tensor.Names(x); err != nil {
				v.fail("launch %s: %s", l.Name, err)
			}
		}
		params, attrs := map[string]bool{}, map[string]bool{}
		for j := range l.Args {
			if params[l.Args[j].Param] {
				v.fail("launch %s binds %s twice", l.Name, l.Args[j].Param)
			}
			params[l.Args[j].Param] = true
			v.arg(i, l, &l.Args[j])
		}
		for _, a := range l.Attrs {
			if attrs[a.Name] || a.Name == "" {
				v.fail("launch %s has attribute %q twice", l.Name, a.Name)
			}
			attrs[a.Name] = true
		}
	}
	if !p.givesSomething() {
		v.fail("it has neither logits nor a port out")
	}
	for i := range p.Buffers {
		if b := &p.Buffers[i]; v.lives[i].first < 0 && (i == p.Logits || b.Port.goes(Out)) {
			v.fail("no launch writes the %s", b.Name)
		}
	}
}

// givesSomething says whether somebody can read what the plan computes.
func (p *Plan) givesSomething() bool {
	return p.Logits >= 0 || slices.ContainsFunc(p.Buffers, func(b Buffer) bool { return b.Port.goes(Out) })
}

// goes says whether it is a port in that direction.
func (p Port) goes(d Access) bool { return p.Name != "" && p.Dir == d }

// arg checks an argument. Reads come before writes: an input that an output of the same launch aliases was written earlier.
func (v *verifier) arg(i int, l *Launch, a *Arg) {
	p := v.p
	count := map[ArgKind]int{ArgBuffer: len(p.Buffers), ArgWeight: len(p.Weights), ArgConst: len(p.Consts), ArgState: len(p.States)}
	if a.Kind == ArgStep {
		if !slices.Contains(StepFields, a.Step) || a.Access != In {
			v.fail("launch %s: step field %q", l.Name, a.Step)
		}
		return
	}
	n, ok := count[a.Kind]
	if !ok || a.Index < 0 || a.Index >= n {
		v.fail("launch %s, argument %s: index %d of %d", l.Name, a.Param, a.Index, n)
		return
	}
	switch a.Kind {
	case ArgWeight, ArgConst:
		if a.Access != In {
			v.fail("launch %s writes %s", l.Name, a.Param)
		}
	case ArgBuffer:
		if a.Access != In && p.Buffers[a.Index].Port.goes(In) {
			v.fail("launch %s writes %s, which comes in through a port", l.Name, p.Buffers[a.Index].Name)
		}
		s := &v.lives[a.Index]
		if s.first < 0 {
			if a.Access != Out && !p.Buffers[a.Index].Port.goes(In) {
				v.fail("launch %s reads %s before it is written", l.Name, p.Buffers[a.Index].Name)
			}
			s.first = i
		}
		s.last = i
	}
}

// overlaps looks at buffers in order of offset, so that only neighbours in memory are compared. A port that goes in and out
// is read before it is written.
func (v *verifier) overlaps() {
	p := v.p
	if p.Logits >= 0 {
		v.lives[p.Logits].last = len(p.Launches) // the host reads them
	}
	var order []int
	for i := range p.Buffers {
		if p.Buffers[i].Port.Name == "" {
			order = append(order, i)
		}
		for j := range p.Buffers {
			in, out := &p.Buffers[i], &p.Buffers[j]
			if in.Port.goes(In) && out.Port.goes(Out) && in.Port.Name == out.Port.Name && v.lives[i].last >= v.lives[j].first {
				v.fail("port %s is written before its last value is read", in.Port.Name)
			}
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(p.Buffers[a].Offset, p.Buffers[b].Offset) })
	var open []int // buffers whose bytes reach the current offset
	for _, i := range order {
		b := &p.Buffers[i]
		open = slices.DeleteFunc(open, func(j int) bool {
			o := &p.Buffers[j]
			return o.Offset+o.DType.Bytes(o.Axes.Shape().Elems()) <= b.Offset
		})
		for _, j := range open {
			if v.lives[i].first >= 0 && v.lives[j].first >= 0 && v.lives[i].first <= v.lives[j].last && v.lives[j].first <= v.lives[i].last {
				v.fail("buffers %s and %s share bytes while both live", p.Buffers[j].Name, b.Name)
			}
		}
		open = append(open, i)
	}
}
