// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

// expr is compiled code that gives a value. It changes nothing but the state.
type expr interface {
	eval(st *state) Value
}

// emitter is an expr that can write its text straight to the output, which saves the str.
type emitter interface {
	emit(st *state)
}

type constExpr struct{ val Value }

func (e *constExpr) eval(st *state) Value { return e.val }

// varExpr reads a slot of the unit hops levels out; absent when the variable is not set.
type varExpr struct{ hops, slot int }

func (e *varExpr) eval(st *state) Value {
	f := st.frame
	for range e.hops {
		f = f.parent
	}
	return f.slots[e.slot]
}

// slotExpr reads a variable of the running unit.
type slotExpr struct {
	slot int
	name string
}

func (e *slotExpr) eval(st *state) Value {
	if v := st.frame.slots[e.slot]; v.kind != kAbsent {
		return v
	}
	return undefinedName(e.name)
}

// outerExpr reads a variable of a unit around the running one.
type outerExpr struct {
	varExpr
	name string
}

func (e *outerExpr) eval(st *state) Value {
	if v := e.varExpr.eval(st); v.kind != kAbsent {
		return v
	}
	return undefinedName(e.name)
}

// failExpr is an error that waits to be reached.
type failExpr struct{ class, msg string }

func (e *failExpr) eval(st *state) Value {
	fail(e.class, "%s", e.msg)
	return Value{}
}

// holeExpr is the captured body that the filter of a block is applied to.
type holeExpr struct{}

func (holeExpr) eval(st *state) Value { return st.captured }

// seqExpr makes a list or a tuple.
type seqExpr struct {
	kind  kind
	items []expr
}

func (e *seqExpr) eval(st *state) Value {
	st.allocValues(len(e.items) + 1)
	items := make([]Value, len(e.items))
	for i, item := range e.items {
		items[i] = item.eval(st)
	}
	return Value{kind: e.kind, ref: &seq{items: items}}
}

type dictExpr struct{ keys, vals []expr }

func (e *dictExpr) eval(st *state) Value {
	st.allocValues(4 * (len(e.keys) + 1))
	d := newDict(len(e.keys))
	for i := range e.keys {
		key := e.keys[i].eval(st)
		d.set(st, key, e.vals[i].eval(st))
	}
	return d.value()
}

type unaryExpr struct {
	op      token
	operand expr
}

func (e *unaryExpr) eval(st *state) Value {
	if e.op == tokSub {
		return negate(e.operand.eval(st))
	}
	return positive(e.operand.eval(st))
}

type notExpr struct{ operand expr }

func (e *notExpr) eval(st *state) Value { return Bool(!st.truth(e.operand.eval(st))) }

type binaryExpr struct {
	op          token
	left, right expr
}

func (e *binaryExpr) eval(st *state) Value {
	left := e.left.eval(st)
	return st.binary(e.op, left, e.right.eval(st))
}

// sumExpr is a + b + …, from the left. As long as all terms are plain str, they are written one after the other to the
// tail of the output; the first other term makes a value of that tail and goes on with +.
type sumExpr struct{ terms []expr }

func (e *sumExpr) eval(st *state) Value {
	start := len(st.out)
	if v := e.run(st, start); v.kind != kAbsent {
		return v
	}
	return String(st.take(start))
}

func (e *sumExpr) emit(st *state) {
	if v := e.run(st, len(st.out)); v.kind != kAbsent {
		st.appendText(v)
	}
}

// run gives the sum, or the absent value when the sum is the tail of the output.
func (e *sumExpr) run(st *state, start int) Value {
	first := e.terms[0].eval(st)
	if first.kind != kStr {
		return e.generic(st, first, 1)
	}
	st.write(first.str)
	for i, term := range e.terms[1:] {
		v := term.eval(st)
		if v.kind != kStr {
			sum := String(st.take(start))
			return e.generic(st, st.binary(tokAdd, sum, v), i+2)
		}
		st.write(v.str)
	}
	return Value{}
}

func (e *sumExpr) generic(st *state, sum Value, from int) Value {
	for _, term := range e.terms[from:] {
		sum = st.binary(tokAdd, sum, term.eval(st))
	}
	return sum
}

type logicExpr struct {
	or          bool
	left, right expr
}

func (e *logicExpr) eval(st *state) Value {
	if v := e.left.eval(st); st.truth(v) == e.or {
		return v
	}
	return e.right.eval(st)
}

// concatExpr is a ~ b ~ ….
type concatExpr struct {
	line   int
	items  []expr
	escape bool // autoescape is on: the result is Markup if a part is, and then the other parts are escaped
}

func (e *concatExpr) eval(st *state) Value {
	if e.escape {
		return e.joinMarkup(st)
	}
	start := len(st.out)
	e.emit(st)
	return String(st.take(start))
}

func (e *concatExpr) emit(st *state) {
	if e.escape {
		st.appendText(e.joinMarkup(st))
		return
	}
	// Parts are evaluated before any is turned into text, as in Python.
	vals := st.push(len(e.items))
	for i, item := range e.items {
		vals[i] = item.eval(st)
	}
	for _, v := range vals {
		st.appendText(v)
	}
	st.pop(len(e.items))
}

// joinMarkup keeps what comes before the first Markup as it is; MarkupSafe escapes it when that comes.
func (e *concatExpr) joinMarkup(st *state) Value {
	vals := make([]Value, len(e.items))
	safe := false
	for i, item := range e.items {
		vals[i] = item.eval(st)
		safe = safe || vals[i].kind == kMarkup
	}
	start := len(st.out)
	for _, v := range vals {
		if safe {
			st.write(st.escape(v))
		} else {
			st.appendText(v)
		}
	}
	if safe {
		return markup(st.take(start))
	}
	return String(st.take(start))
}

type compareExpr struct {
	first expr
	ops   []operation
}

type operation struct {
	op      token
	operand expr
}

func (e *compareExpr) eval(st *state) Value {
	left := e.first.eval(st)
	for i := range e.ops {
		right := e.ops[i].operand.eval(st)
		if !st.holds(e.ops[i].op, left, right) {
			return False
		}
		left = right
	}
	return True
}

func (st *state) holds(op token, a, b Value) bool {
	switch op {
	case tokEq:
		return st.equal(a, b)
	case tokNe:
		return !st.equal(a, b)
	case tokIn:
		return st.contains(b, a)
	case tokNotIn:
		return !st.contains(b, a)
	}
	return st.order(op, a, b)
}

type condExpr struct {
	test, then, orElse expr
	thenEmit, elseEmit emitter
}

func (e *condExpr) eval(st *state) Value {
	if st.truth(e.test.eval(st)) {
		return e.then.eval(st)
	}
	return e.orElse.eval(st)
}

func (e *condExpr) emit(st *state) {
	branch, em := e.orElse, e.elseEmit
	if st.truth(e.test.eval(st)) {
		branch, em = e.then, e.thenEmit
	}
	if em != nil {
		em.emit(st)
		return
	}
	st.appendText(branch.eval(st))
}

// attrExpr is object.name.
type attrExpr struct {
	object expr
	name   string
	plain  bool // no dict has an attribute of that name: only its keys count
}

func newAttrExpr(object expr, name string) *attrExpr {
	return &attrExpr{object, name, dictMethods[name] == nil && !hidden(Value{kind: kDict}, name)}
}

func (e *attrExpr) eval(st *state) Value { return e.of(st, e.object.eval(st)) }

func (e *attrExpr) of(st *state, obj Value) Value {
	if obj.kind == kDict && e.plain {
		d := obj.ref.(*dict)
		if i := d.find(e.name); i >= 0 {
			return d.vals[i]
		}
		return undefinedAttr(obj, e.name)
	}
	return st.attr(obj, e.name)
}

type itemExpr struct{ object, key expr }

func (e *itemExpr) eval(st *state) Value {
	obj := e.object.eval(st)
	return st.item(obj, e.key.eval(st))
}

type sliceExpr struct{ object, start, stop, step expr }

func (e *sliceExpr) eval(st *state) Value {
	bound := func(e expr) Value {
		if e == nil {
			return Value{}
		}
		return e.eval(st)
	}
	obj := e.object.eval(st)
	start, stop := bound(e.start), bound(e.stop)
	return st.slice(obj, start, stop, bound(e.step))
}
