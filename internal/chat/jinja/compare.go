// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import "strings"

// equal is Python's a == b.
func (st *state) equal(a, b Value) bool {
	if a.kind == kStr && b.kind == kStr {
		return a.str == b.str
	}
	return st.equalDeep(a, b, 0)
}

func (st *state) equalDeep(a, b Value, depth int) bool {
	nested(depth)
	st.spend(1)
	switch {
	case a.isNumber() && b.isNumber():
		order, unordered := compareNumbers(a, b)
		return order == 0 && !unordered
	case a.isStr() && b.isStr():
		return a.str == b.str
	case a.kind != b.kind:
		return false
	}
	switch a.kind {
	case kList, kTuple:
		x, y := a.items(), b.items()
		if len(x) != len(y) {
			return false
		}
		for i := range x {
			if !st.same(x[i], y[i]) && !st.equalDeep(x[i], y[i], depth+1) {
				return false
			}
		}
		return true
	case kDict:
		x, y := a.dict(), b.dict()
		if x.len() != y.len() {
			return false
		}
		for i, key := range x.keys {
			j := y.lookup(st, key)
			if j < 0 || !st.same(x.vals[i], y.vals[j]) && !st.equalDeep(x.vals[i], y.vals[j], depth+1) {
				return false
			}
		}
		return true
	case kRange:
		return a.ref.(*span).equal(b.ref.(*span))
	case kOther:
		return a.ref == b.ref
	}
	return true // None, Undefined
}

// same is Python's a is b, as far as values here have an identity.
func (st *state) same(a, b Value) bool {
	if a.kind != b.kind {
		return false
	}
	switch a.kind {
	case kFloat, kBool, kInt:
		return a.num == b.num
	case kStr, kMarkup:
		return a.str == b.str
	case kUndefined:
		return a.num == b.num && a.str == b.str && a.ref == b.ref
	}
	return a.ref == b.ref
}

// order is Python's a op b for <, <=, > and >=.
func (st *state) order(op token, a, b Value) bool {
	return st.orderDeep(op, a, b, 0)
}

func (st *state) orderDeep(op token, a, b Value, depth int) bool {
	nested(depth)
	st.spend(1)
	switch {
	case a.kind == kUndefined:
		a.failUndefined()
	case b.kind == kUndefined:
		b.failUndefined()
	case a.isNumber() && b.isNumber():
		c, unordered := compareNumbers(a, b)
		return !unordered && holds(op, c)
	case a.isStr() && b.isStr():
		return holds(op, strings.Compare(a.str, b.str)) // the order of UTF-8 is that of code points
	case a.kind == b.kind && (a.kind == kList || a.kind == kTuple):
		x, y := a.items(), b.items()
		for i := 0; i < len(x) && i < len(y); i++ {
			if !st.same(x[i], y[i]) && !st.equalDeep(x[i], y[i], depth+1) {
				return st.orderDeep(op, x[i], y[i], depth+1)
			}
		}
		return holds(op, len(x)-len(y))
	}
	failType("%s not supported between instances of %s and %s", quote(op.String()), quote(a.typeName()), quote(b.typeName()))
	return false
}

func holds(op token, c int) bool {
	switch op {
	case tokLt:
		return c < 0
	case tokLe:
		return c <= 0
	case tokGt:
		return c > 0
	}
	return c >= 0
}

// contains is Python's v in c.
func (st *state) contains(c, v Value) bool {
	switch c.kind {
	case kStr, kMarkup:
		if !v.isStr() {
			failType("'in <string>' requires string as left operand, not %s", v.typeName())
		}
		st.scan(len(c.str))
		return strings.Contains(c.str, v.str)
	case kDict:
		return c.dict().lookup(st, v) >= 0
	case kList, kTuple:
		items := c.items()
		st.walk(len(items))
		for i := range items {
			if st.same(items[i], v) || st.equal(items[i], v) {
				return true
			}
		}
		return false
	case kRange:
		if n, ok := v.index(); ok && v.kind != kBigInt {
			return c.ref.(*span).has(n)
		}
	case kUndefined:
		return false
	case kOther:
		if view, ok := c.ref.(*view); ok && view.part == viewKeys {
			return view.of.lookup(st, v) >= 0
		}
	}
	it, ok := st.iterator(c)
	if !ok {
		failType("argument of type %s is not iterable", quote(c.typeName()))
	}
	for {
		item, ok := it.next(st)
		if !ok {
			return false
		}
		if st.same(item, v) || st.equal(item, v) {
			return true
		}
	}
}
