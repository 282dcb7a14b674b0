// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import "math"

// The methods of list, tuple, dict and numbers that the sandbox lets through.

var listMethods = table(
	define("index(/value, /start=, /stop=)", seqIndex),
	define("count(/value)", seqCount),
	define("copy()", func(st *state, a []Value) Value { return List(a[0].items()...) }),
)

var tupleMethods = table(
	define("index(/value, /start=, /stop=)", seqIndex),
	define("count(/value)", seqCount),
)

func seqIndex(st *state, a []Value) Value {
	items := a[0].items()
	st.walk(len(items))
	from, n := sliceBounds(int64(len(items)), a[2], a[3], 1)
	for i := from; i < from+n; i++ {
		if st.equal(items[i], a[1]) {
			return Int(i)
		}
	}
	if a[0].kind == kTuple {
		failValue("tuple.index(x): x not in tuple")
	}
	failValue("%s is not in list", reprText(a[1]))
	return Value{}
}

func seqCount(st *state, a []Value) Value {
	n := 0
	st.walk(len(a[0].items()))
	for _, item := range a[0].items() {
		if st.equal(item, a[1]) {
			n++
		}
	}
	return Int(int64(n))
}

var dictMethods = table(
	define("get(/key, /default=)", func(st *state, a []Value) Value {
		if i := a[0].dict().lookup(st, a[1]); i >= 0 {
			return a[0].dict().vals[i]
		}
		if a[2].kind == kAbsent {
			return Null
		}
		return a[2]
	}),
	define("keys()", func(st *state, a []Value) Value { return other(&view{a[0].dict(), viewKeys}) }),
	define("values()", func(st *state, a []Value) Value { return other(&view{a[0].dict(), viewValues}) }),
	define("items()", func(st *state, a []Value) Value { return other(&view{a[0].dict(), viewItems}) }),
	define("copy()", func(st *state, a []Value) Value { copied := *a[0].dict(); return copied.value() }),
	define("fromkeys(/iterable, /value=)", func(st *state, a []Value) Value { return st.fromKeys(a[1], a[2]) }),
)

func (st *state) fromKeys(keys, val Value) Value {
	if val.kind == kAbsent {
		val = Null
	}
	d := newDict(0)
	for _, key := range st.collect(keys) {
		st.allocValues(4)
		d.set(st, key, val)
	}
	return d.value()
}

// keywordsOf gives a dict with str keys as keyword arguments.
func keywordsOf(d *dict) []keyword {
	kw := make([]keyword, d.len())
	for i, k := range d.keys {
		if !k.isStr() {
			failType("keywords must be strings")
		}
		kw[i] = keyword{k.str, d.vals[i]}
	}
	return kw
}

// numberPart gives the attribute of that name of a number; absent when there is none.
func numberPart(v Value, name string) Value {
	switch name {
	case "real":
		return positive(v)
	case "imag":
		if v.kind == kFloat {
			return Float(0)
		}
		return Int(0)
	}
	if v.isInt() && name == "numerator" {
		return positive(v)
	}
	if v.isInt() && name == "denominator" {
		return Int(1)
	}
	return Value{}
}

var rangeMethods = table(
	define("index(/value)", func(st *state, a []Value) Value {
		s := a[0].ref.(*span)
		n, ok := a[1].index()
		if !ok || !s.has(n) {
			failValue("%s is not in range", reprText(a[1]))
		}
		return Int((n - s.start) / s.step)
	}),
	define("count(/value)", func(st *state, a []Value) Value {
		n, ok := a[1].index()
		if ok && a[0].ref.(*span).has(n) {
			return Int(1)
		}
		return Int(0)
	}),
)

// rangePart gives start, stop or step of a range; absent for other names.
func rangePart(s *span, name string) Value {
	switch name {
	case "start":
		return Int(s.start)
	case "stop":
		return Int(s.stop)
	case "step":
		return Int(s.step)
	}
	return Value{}
}

var intMethods = table(
	define("bit_length()", func(st *state, a []Value) Value { return Int(int64(a[0].big().BitLen())) }),
	define("conjugate()", func(st *state, a []Value) Value { return positive(a[0]) }),
	refused("to_bytes", "bytes"), refused("as_integer_ratio", "int.as_integer_ratio"),
)

var floatMethods = table(
	define("is_integer()", func(st *state, a []Value) Value {
		f := a[0].float()
		return Bool(f == math.Trunc(f) && !math.IsInf(f, 0))
	}),
	define("conjugate()", func(st *state, a []Value) Value { return a[0] }),
	refused("hex", "float.hex"), refused("as_integer_ratio", "float.as_integer_ratio"),
)
