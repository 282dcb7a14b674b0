// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

// tests are jinja2's. In fn, a[0] is the value that is tested.
var tests map[string]*builtin

func init() {
	tests = table(testList...)
	for alias, name := range map[string]string{
		"==": "eq", "equalto": "eq", "!=": "ne", ">": "gt", "greaterthan": "gt", ">=": "ge",
		"<": "lt", "lessthan": "lt", "<=": "le",
	} {
		tests[alias] = tests[name]
	}
}

var testList = []*builtin{
	define("odd()", func(st *state, a []Value) Value { return remainder(st, a[0], Int(2), 1) }),
	define("even()", func(st *state, a []Value) Value { return remainder(st, a[0], Int(2), 0) }),
	define("divisibleby(num)", func(st *state, a []Value) Value { return remainder(st, a[0], a[1], 0) }),
	define("defined()", func(st *state, a []Value) Value { return Bool(a[0].kind != kUndefined) }),
	define("undefined()", func(st *state, a []Value) Value { return Bool(a[0].kind == kUndefined) }),
	define("filter()", func(st *state, a []Value) Value { return named(st, a[0], filters) }),
	define("test()", func(st *state, a []Value) Value { return named(st, a[0], tests) }),
	define("none()", func(st *state, a []Value) Value { return Bool(a[0].kind == kNone) }),
	define("boolean()", func(st *state, a []Value) Value { return Bool(a[0].kind == kBool) }),
	define("true()", func(st *state, a []Value) Value { return Bool(a[0].kind == kBool && a[0].num == 1) }),
	define("false()", func(st *state, a []Value) Value { return Bool(a[0].kind == kBool && a[0].num == 0) }),
	define("integer()", func(st *state, a []Value) Value { return Bool(a[0].kind == kInt || a[0].kind == kBigInt) }),
	define("float()", func(st *state, a []Value) Value { return Bool(a[0].kind == kFloat) }),
	define("number()", func(st *state, a []Value) Value { return Bool(a[0].isNumber()) }),
	define("string()", func(st *state, a []Value) Value { return Bool(a[0].isStr()) }),
	define("mapping()", func(st *state, a []Value) Value { return Bool(a[0].kind == kDict) }),
	define("lower()", func(st *state, a []Value) Value { return Bool(isLower(st.text(a[0]))) }),
	define("upper()", func(st *state, a []Value) Value { return Bool(isUpper(st.text(a[0]))) }),
	define("sequence()", func(st *state, a []Value) Value {
		switch a[0].kind {
		case kStr, kMarkup, kList, kTuple, kDict, kRange, kUndefined:
			return True
		}
		return False
	}),
	define("iterable()", func(st *state, a []Value) Value {
		switch a[0].kind {
		case kStr, kMarkup, kList, kTuple, kDict, kRange, kUndefined:
			return True
		case kOther:
			switch a[0].ref.(type) {
			case *generator, *view, *loop:
				return True
			}
		}
		return False
	}),
	define("callable()", func(st *state, a []Value) Value {
		if a[0].kind != kOther {
			return Bool(a[0].kind == kUndefined)
		}
		_, ok := a[0].ref.(callable)
		return Bool(ok)
	}),
	define("sameas(other)", func(st *state, a []Value) Value { return Bool(st.same(a[0], a[1])) }),
	define("escaped()", func(st *state, a []Value) Value { return Bool(a[0].kind == kMarkup) }),
	define("in(seq)", func(st *state, a []Value) Value { return Bool(st.contains(a[1], a[0])) }),
	define("eq(/other)", func(st *state, a []Value) Value { return Bool(st.equal(a[0], a[1])) }),
	define("ne(/other)", func(st *state, a []Value) Value { return Bool(!st.equal(a[0], a[1])) }),
	define("gt(/other)", func(st *state, a []Value) Value { return Bool(st.order(tokGt, a[0], a[1])) }),
	define("ge(/other)", func(st *state, a []Value) Value { return Bool(st.order(tokGe, a[0], a[1])) }),
	define("lt(/other)", func(st *state, a []Value) Value { return Bool(st.order(tokLt, a[0], a[1])) }),
	define("le(/other)", func(st *state, a []Value) Value { return Bool(st.order(tokLe, a[0], a[1])) }),
}

// remainder says whether v % by == want.
func remainder(st *state, v, by Value, want int64) Value {
	return Bool(st.equal(st.binary(tokMod, v, by), Int(want)))
}

func named(st *state, name Value, in map[string]*builtin) Value {
	st.hash(name) // fails on a list or a dict
	return Bool(name.isStr() && in[name.str] != nil)
}
