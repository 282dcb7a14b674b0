// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import "unicode/utf8"

// iterator visits the items of a value once. Exactly one source is set.
type iterator struct {
	items []Value // list, tuple, keys of a dict
	text  string  // str, by code points; those of Markup are plain str, as there
	span  *span
	gen   *generator
	pos   int64
}

// next gives the next item, or false at the end.
func (it *iterator) next(st *state) (Value, bool) {
	switch {
	case it.items != nil:
		if it.pos < int64(len(it.items)) {
			it.pos++
			return it.items[it.pos-1], true
		}
	case it.text != "":
		_, size := utf8.DecodeRuneInString(it.text)
		c := it.text[:size]
		it.text = it.text[size:]
		return String(c), true
	case it.span != nil:
		if it.pos < it.span.len() {
			it.pos++
			return Int(it.span.start + (it.pos-1)*it.span.step), true
		}
	case it.gen != nil:
		return it.gen.next(st)
	}
	return Value{}, false
}

// iterator starts a visit; ok is false when v cannot be iterated over.
func (st *state) iterator(v Value) (it iterator, ok bool) {
	switch v.kind {
	case kList, kTuple:
		it.items = v.items()
	case kDict:
		it.items = v.dict().keys
	case kStr, kMarkup:
		it.text = v.str
	case kRange:
		it.span = v.ref.(*span)
	case kUndefined:
	case kOther:
		switch o := v.ref.(type) {
		case *generator:
			it.gen = o
		case *view:
			it.items = o.items(st)
		default:
			return it, false
		}
	default:
		return it, false
	}
	return it, true
}

// iterate is iterator for what must be iterable.
func (st *state) iterate(v Value) iterator {
	it, ok := st.iterator(v)
	if !ok {
		failType("%s object is not iterable", quote(v.typeName()))
	}
	return it
}

// collect is Python's list(v). The result may be shared: it is not to be changed.
func (st *state) collect(v Value) []Value {
	switch v.kind {
	case kList, kTuple:
		return v.items()
	case kDict:
		return v.dict().keys
	}
	it := st.iterate(v)
	return st.drain(&it)
}

// drain gives what is left of it.
func (st *state) drain(it *iterator) []Value {
	var out []Value
	for {
		v, ok := it.next(st)
		if !ok {
			return out
		}
		st.allocValues(1)
		out = append(out, v)
	}
}

// sized objects have a len().
type sized interface{ size(st *state) int }

// subscripted objects have items; an absent value says that there is none.
type subscripted interface {
	item(st *state, key Value) Value
}

// attributed objects have attributes; an absent value says that there is none.
type attributed interface {
	attr(st *state, name string) Value
}

// printed objects know their repr.
type printed interface{ print(st *state, depth int) }

// length is Python's len(v).
func (st *state) length(v Value) int {
	switch v.kind {
	case kStr, kMarkup:
		return st.runeLen(v.str)
	case kList, kTuple:
		return len(v.items())
	case kDict:
		return v.dict().len()
	case kRange:
		return int(v.ref.(*span).len())
	case kUndefined:
		return 0
	case kOther:
		if s, ok := v.ref.(sized); ok {
			return s.size(st)
		}
	}
	failType("object of type %s has no len()", quote(v.typeName()))
	return 0
}

// span is a range: start, start+step, … before stop.
type span struct{ start, stop, step int64 }

func (s *span) len() int64 {
	switch {
	case s.step > 0 && s.start < s.stop:
		return int64((uint64(s.stop)-uint64(s.start)-1)/uint64(s.step)) + 1
	case s.step < 0 && s.stop < s.start:
		return int64((uint64(s.start)-uint64(s.stop)-1)/-uint64(s.step)) + 1
	}
	return 0
}

func (s *span) has(n int64) bool {
	if s.step > 0 {
		return n >= s.start && n < s.stop && (n-s.start)%s.step == 0
	}
	return n <= s.start && n > s.stop && (s.start-n)%-s.step == 0
}

func (s *span) equal(o *span) bool {
	n := s.len()
	return n == o.len() && (n == 0 || s.start == o.start && (n == 1 || s.step == o.step))
}

// generator is a lazy sequence that can be visited once.
type generator struct {
	kind string // Python's type
	name string // of the Python generator function; "" for reversed iterators
	pull func(st *state) (Value, bool)
	done bool
	busy bool // being pulled: a template that reads a generator from within itself is refused
}

func newGenerator(name string, pull func(st *state) (Value, bool)) Value {
	return other(&generator{kind: "generator", name: name, pull: pull})
}

func (g *generator) next(st *state) (Value, bool) {
	if g.done {
		return Value{}, false
	}
	if g.busy {
		failValue("generator already executing")
	}
	st.spend(1)
	st.enter()
	g.busy = true
	v, ok := g.pull(st)
	g.busy = false
	st.depth--
	g.done = !ok
	return v, ok
}

func (g *generator) typeName() string { return g.kind }

func (g *generator) print(st *state, depth int) {
	st.write("<" + g.kind + " object")
	if g.name != "" {
		st.write(" " + g.name)
	}
	st.write(">")
}

// view is what d.keys(), d.values() and d.items() give.
type view struct {
	of   *dict
	part viewPart
}

type viewPart uint8

const (
	viewKeys viewPart = iota
	viewValues
	viewItems
)

func (w *view) typeName() string {
	return [...]string{"dict_keys", "dict_values", "dict_items"}[w.part]
}

func (w *view) size(st *state) int { return w.of.len() }

func (w *view) items(st *state) []Value {
	switch w.part {
	case viewKeys:
		return w.of.keys
	case viewValues:
		return w.of.vals
	}
	return st.pairs(w.of)
}

// pairs gives the items of d as tuples of two.
func (st *state) pairs(d *dict) []Value {
	n := d.len()
	st.allocValues(4 * n)
	out, flat, seqs := make([]Value, n), make([]Value, 2*n), make([]seq, n)
	for i := range out {
		pair := flat[2*i : 2*i+2 : 2*i+2]
		pair[0], pair[1] = d.keys[i], d.vals[i]
		seqs[i].items = pair
		out[i] = Value{kind: kTuple, ref: &seqs[i]}
	}
	return out
}

func (w *view) print(st *state, depth int) {
	st.write(w.typeName() + "([")
	st.appendReprs(w.items(st), depth)
	st.write("])")
}
