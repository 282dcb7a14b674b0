// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import (
	"strings"
)

// globals are the names that every template knows.
var globals = map[string]Value{
	"range":           other(&function{&builtin{name: "safe_range", raw: makeRange}}),
	"dict":            other(dictType{}),
	"namespace":       other(&class{function{&builtin{name: "jinja2.utils.Namespace", raw: makeNamespace}}}),
	"cycler":          other(&class{function{&builtin{name: "jinja2.utils.Cycler", raw: makeCycler}}}),
	"joiner":          other(&class{function{define("jinja2.utils.Joiner(sep=)", makeJoiner)}}),
	"lipsum":          other(&function{refused("generate_lorem_ipsum", "lipsum")}),
	"raise_exception": other(&function{define("raise_exception(message)", raiseException)}),
	"strftime_now":    other(&function{define("strftime_now(format)", strftimeNow)}),
}

func raiseException(st *state, a []Value) Value {
	fail(raisedError, "%s", st.text(a[1]))
	return Value{}
}

func strftimeNow(st *state, a []Value) Value {
	format := argStr("strftime", a[1], "")
	st.alloc(len(format))
	s := strftime(st.now, format)
	st.alloc(len(s))
	return String(s)
}

func makeRange(st *state, _ Value, a arguments) Value {
	if len(a.kw) > 0 {
		failType("range() takes no keyword arguments")
	}
	if len(a.pos) < 1 || len(a.pos) > 3 {
		failType("range expected 1 to 3 arguments, got %d", len(a.pos))
	}
	n := [3]int64{0, 0, 1}
	for i, v := range a.pos {
		if v.kind == kBigInt {
			fail(limitError, "range() of integers beyond 64 bits")
		}
		k, ok := v.index()
		if !ok {
			failType("%s object cannot be interpreted as an integer", quote(v.typeName()))
		}
		n[i] = k
	}
	if len(a.pos) == 1 {
		n[0], n[1] = 0, n[0]
	}
	if n[2] == 0 {
		failValue("range() arg 3 must not be zero")
	}
	s := &span{n[0], n[1], n[2]}
	if size := s.len(); size > MaxRange || size < 0 {
		fail("OverflowError", "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", MaxRange)
	}
	return Value{kind: kRange, ref: s}
}

// class is a function that Python has as a class.
type class struct{ function }

func (c *class) typeName() string           { return "type" }
func (c *class) print(st *state, depth int) { st.write("<class '" + c.fn.name + "'>") }

// dictType is the global dict.
type dictType struct{}

func (dictType) typeName() string           { return "type" }
func (dictType) print(st *state, depth int) { st.write("<class 'dict'>") }

func (dictType) call(st *state, a arguments) Value { return st.makeDict("dict", a).value() }

func (dictType) attr(st *state, name string) Value {
	if name == "fromkeys" {
		return other(&function{define("fromkeys(/iterable, /value=)", func(st *state, a []Value) Value {
			return st.fromKeys(a[1], a[2])
		})})
	}
	return Value{}
}

// makeDict is Python's dict(mapping or pairs, **kw).
func (st *state) makeDict(name string, a arguments) *dict {
	if len(a.pos) > 1 {
		failType("%s expected at most 1 argument, got %d", name, len(a.pos))
	}
	d := newDict(len(a.kw))
	st.allocValues(2 * len(a.kw))
	if len(a.pos) == 1 {
		st.updateDict(d, a.pos[0])
	}
	for _, k := range a.kw {
		d.setName(k.name, k.val)
	}
	return d
}

func (st *state) updateDict(d *dict, from Value) {
	if from.kind == kDict {
		src := from.dict()
		st.allocValues(2 * src.len())
		for i, k := range src.keys {
			d.set(st, k, src.vals[i])
		}
		return
	}
	for i, pair := range st.collect(from) {
		if _, ok := st.iterator(pair); !ok {
			failType("cannot convert dictionary update sequence element #%d to a sequence", i)
		}
		kv := st.collect(pair)
		if len(kv) != 2 {
			failValue("dictionary update sequence element #%d has length %d; 2 is required", i, len(kv))
		}
		st.allocValues(4)
		d.set(st, kv[0], kv[1])
	}
}

// namespace is the one thing that a template may change.
type namespace struct{ attrs *dict }

func makeNamespace(st *state, _ Value, a arguments) Value {
	d := st.makeDict("dict", a)
	for _, k := range d.keys {
		checkName(k)
	}
	return other(&namespace{d})
}

// asNamespace gives v as a namespace, or fails as an assignment to something else does.
func asNamespace(v Value) *namespace {
	if ns, ok := v.ref.(*namespace); ok && v.kind == kOther {
		return ns
	}
	fail("TemplateRuntimeError", "cannot assign attribute on non-namespace object")
	return nil
}

func checkName(k Value) {
	if k.isStr() && strings.HasPrefix(k.str, "_") {
		fail("SecurityError", "Chat templates cannot store underscore-prefixed attributes on a namespace, but got %s. Please rename the attribute.", quote(k.str))
	}
}

func (ns *namespace) typeName() string { return "Namespace" }

func (ns *namespace) set(st *state, name string, v Value) {
	checkName(String(name))
	if ns.attrs.find(name) < 0 {
		st.allocValues(4)
	}
	ns.attrs.setName(name, v)
}

func (ns *namespace) attr(st *state, name string) Value { return ns.attrs.get(name) }

func (ns *namespace) print(st *state, depth int) {
	st.write("<Namespace ")
	st.appendRepr(ns.attrs.value(), depth+1)
	st.write(">")
}

// cycler gives its items in turn.
type cycler struct {
	items []Value
	pos   int
}

func makeCycler(st *state, _ Value, a arguments) Value {
	if len(a.kw) > 0 {
		failType("Cycler.__init__() got an unexpected keyword argument %s", quote(a.kw[0].name))
	}
	if len(a.pos) == 0 {
		fail("RuntimeError", "at least one item has to be provided")
	}
	return other(&cycler{items: append([]Value(nil), a.pos...)})
}

func (c *cycler) typeName() string { return "Cycler" }

func (c *cycler) attr(st *state, name string) Value {
	switch name {
	case "current":
		return c.items[c.pos]
	case "pos":
		return Int(int64(c.pos))
	case "items":
		return tuple(c.items...)
	case "next":
		return other(&method{other(c), cyclerNext})
	case "reset":
		return other(&method{other(c), cyclerReset})
	}
	return Value{}
}

var cyclerNext = define("next()", func(st *state, a []Value) Value {
	c := a[0].ref.(*cycler)
	v := c.items[c.pos]
	c.pos = (c.pos + 1) % len(c.items)
	return v
})

var cyclerReset = define("reset()", func(st *state, a []Value) Value {
	a[0].ref.(*cycler).pos = 0
	return Null
})

// joiner gives nothing the first time and its separator from then on.
type joiner struct {
	sep  Value
	used bool
}

func makeJoiner(st *state, a []Value) Value {
	j := &joiner{sep: String(", ")}
	if a[1].kind != kAbsent {
		j.sep = a[1]
	}
	return other(j)
}

func (j *joiner) typeName() string { return "Joiner" }

func (j *joiner) attr(st *state, name string) Value {
	switch name {
	case "sep":
		return j.sep
	case "used":
		return Bool(j.used)
	}
	return Value{}
}

func (j *joiner) call(st *state, a arguments) Value {
	if len(a.pos)+len(a.kw) > 0 {
		failType("Joiner.__call__() takes no arguments")
	}
	if !j.used {
		j.used = true
		return String("")
	}
	return j.sep
}
