// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

// binary computes a op b for + - * / // % **.
func (st *state) binary(op token, a, b Value) Value {
	if a.isNumber() && b.isNumber() {
		if a.kind >= kBigInt || b.kind >= kBigInt || op == tokPow {
			st.spend(64) // arithmetic of any width
		}
		if op == tokPow && a.isInt() && b.isInt() {
			st.spend(4096)
		}
		return arith(op, a, b)
	}
	if a.kind == kUndefined {
		a.failUndefined()
	}
	if op == tokMod && a.isStr() {
		return st.percent(a, b)
	}
	if b.kind == kUndefined {
		b.failUndefined()
	}
	switch op {
	case tokAdd:
		return st.add(a, b)
	case tokMul:
		if a.isSequence() {
			return st.repeat(a, b)
		}
		if b.isSequence() {
			return st.repeat(b, a)
		}
	}
	name := op.String()
	if op == tokPow {
		name = "** or pow()"
	}
	failType("unsupported operand type(s) for %s: %s and %s", name, quote(a.typeName()), quote(b.typeName()))
	return Value{}
}

func (v Value) isSequence() bool { return v.isStr() || v.kind == kList || v.kind == kTuple }

// add is a + b for anything but two numbers.
func (st *state) add(a, b Value) Value {
	switch {
	case a.isStr() && b.isStr():
		if a.kind == kMarkup || b.kind == kMarkup {
			return markup(st.join(st.escape(a), st.escape(b)))
		}
		return String(st.join(a.str, b.str))
	case a.isSequence() && a.kind == b.kind:
		x, y := a.items(), b.items()
		st.allocValues(len(x) + len(y))
		items := make([]Value, 0, len(x)+len(y))
		return Value{kind: a.kind, ref: &seq{items: append(append(items, x...), y...)}}
	case a.isSequence():
		kind := a.typeName()
		if a.isStr() {
			kind = "str"
		}
		failType("can only concatenate %s (not \"%s\") to %s", kind, b.typeName(), kind)
	}
	failType("unsupported operand type(s) for +: %s and %s", quote(a.typeName()), quote(b.typeName()))
	return Value{}
}

// join gives a new string of two.
func (st *state) join(a, b string) string {
	st.alloc(len(a) + len(b))
	return a + b
}

// repeat is s * n.
func (st *state) repeat(s, n Value) Value {
	times, ok := n.index()
	if !ok {
		failType("can't multiply sequence by non-int of type %s", quote(n.typeName()))
	}
	if n.kind == kBigInt {
		fail("OverflowError", "cannot fit 'int' into an index-sized integer")
	}
	times = max(times, 0)
	size := int64(len(s.str))
	if !s.isStr() {
		size = int64(len(s.items()))
	}
	if size > 0 && times > MaxHeap/size {
		times = MaxHeap/size + 1 // refused by alloc
	}
	total := int(size * times)
	if s.isStr() {
		st.alloc(total)
		b := make([]byte, 0, total)
		for ; times > 0 && size > 0; times-- {
			b = append(b, s.str...)
		}
		return Value{kind: s.kind, str: string(b)}
	}
	st.allocValues(total)
	items := make([]Value, 0, total)
	for ; times > 0 && size > 0; times-- {
		items = append(items, s.items()...)
	}
	return Value{kind: s.kind, ref: &seq{items: items}}
}

// attr is jinja2's getattr: the attribute of that name, else the item under that key, else undefined.
func (st *state) attr(obj Value, name string) Value {
	if v := st.attribute(obj, name); v.kind != kAbsent {
		return v
	}
	switch obj.kind {
	case kDict:
		if v := obj.dict().get(name); v.kind != kAbsent {
			return v
		}
	case kUndefined:
		obj.failUndefined()
	case kOther:
		if s, ok := obj.ref.(subscripted); ok {
			if v := s.item(st, String(name)); v.kind != kAbsent {
				return v
			}
		}
	}
	return undefinedAttr(obj, name)
}

// attribute is Python's getattr through the sandbox; it gives the absent value where there is none.
func (st *state) attribute(obj Value, name string) Value {
	if m := methods(obj.kind)[name]; m != nil {
		return other(&method{self: obj, fn: m})
	}
	var v Value
	switch {
	case obj.isNumber():
		v = numberPart(obj, name)
	case obj.kind == kRange:
		v = rangePart(obj.ref.(*span), name)
	case obj.kind == kOther:
		if a, ok := obj.ref.(attributed); ok {
			v = a.attr(st, name)
		}
	case obj.kind == kTuple:
		for i, n := range obj.seq().names {
			if n == name {
				v = obj.items()[i]
			}
		}
	}
	if v.kind == kAbsent && hidden(obj, name) {
		return undefinedUnsafe(obj, name)
	}
	return v
}

// item is jinja2's getitem: the item under that key, else the attribute of that name, else undefined.
func (st *state) item(obj, key Value) Value {
	if v := st.subscript(obj, key); v.kind != kAbsent {
		return v
	}
	if key.isStr() {
		if v := st.attribute(obj, key.str); v.kind != kAbsent {
			return v
		}
	}
	return undefinedKey(obj, key)
}

// subscript is Python's obj[key], and the absent value where Python raises a LookupError or a TypeError.
func (st *state) subscript(obj, key Value) Value {
	switch obj.kind {
	case kDict:
		if key.kind == kList || key.kind == kDict {
			return Value{}
		}
		if i := obj.dict().lookup(st, key); i >= 0 {
			return obj.dict().vals[i]
		}
	case kUndefined:
		obj.failUndefined()
	case kOther:
		if s, ok := obj.ref.(subscripted); ok {
			return s.item(st, key)
		}
	case kList, kTuple:
		if n, ok := key.index(); ok {
			items := obj.items()
			if n < 0 {
				n += int64(len(items))
			}
			if n >= 0 && n < int64(len(items)) {
				return items[n]
			}
		}
	case kStr, kMarkup:
		if n, ok := key.index(); ok {
			if s := st.charAt(obj.str, n); s != "" {
				return Value{kind: obj.kind, str: s}
			}
		}
	case kRange:
		if n, ok := key.index(); ok {
			s := obj.ref.(*span)
			if n < 0 {
				n += s.len()
			}
			if n >= 0 && n < s.len() {
				return Int(s.start + n*s.step)
			}
		}
	}
	return Value{}
}
