// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

// stmt is compiled code that writes to the output and to variables.
type stmt interface {
	exec(st *state) signal
}

// signal says how a statement ended.
type signal uint8

const (
	goOn signal = iota
	doBreak
	doContinue
)

// blockCode is a row of statements; cost are the steps that all of them take, inner blocks left out.
type blockCode struct {
	stmts []stmt
	cost  int64
}

func (b *blockCode) exec(st *state) signal {
	st.spend(b.cost)
	for _, s := range b.stmts {
		if sig := s.exec(st); sig != goOn {
			return sig
		}
	}
	return goOn
}

// loadCode gives a variable its value when its scope is entered.
type loadCode struct {
	slot   int
	global int      // number of the name to look up, or -1
	from   *varExpr // the variable to copy, or nil: the slot becomes absent
}

func (st *state) load(loads []loadCode) {
	for _, l := range loads {
		var v Value
		switch {
		case l.global >= 0:
			if v = st.exported[l.global]; v.kind == kAbsent {
				v = st.globals[l.global]
			}
		case l.from != nil:
			v = l.from.eval(st)
		}
		st.frame.slots[l.slot] = v
	}
}

// target takes an assigned value.
type target interface {
	assign(st *state, v Value)
}

type slotTarget struct{ slot int }

func (t *slotTarget) assign(st *state, v Value) { st.frame.slots[t.slot] = v }

// exportTarget is a variable of the top level.
type exportTarget struct{ slot, global int }

func (t *exportTarget) assign(st *state, v Value) {
	st.frame.slots[t.slot] = v
	st.exported[t.global] = v
}

type namespaceTarget struct {
	space expr
	attr  string
}

func (t *namespaceTarget) assign(st *state, v Value) {
	space := t.space.eval(st)
	if _, ok := space.ref.(*namespace); !ok {
		failType("%s object does not support item assignment", quote(space.typeName())) // by a set block
	}
	asNamespace(space).set(st, t.attr, v)
}

type tupleTarget struct{ items []target }

func (t *tupleTarget) assign(st *state, v Value) {
	vals := st.unpack(v, len(t.items))
	for i, item := range t.items {
		item.assign(st, vals[i])
	}
}

// unpack gives the n items of v.
func (st *state) unpack(v Value, n int) []Value {
	it, ok := st.iterator(v)
	if !ok {
		failType("cannot unpack non-iterable %s object", v.typeName())
	}
	if it.items != nil {
		switch {
		case len(it.items) < n:
			failValue("not enough values to unpack (expected %d, got %d)", n, len(it.items))
		case len(it.items) > n:
			failValue("too many values to unpack (expected %d)", n)
		}
		return it.items
	}
	st.allocValues(n)
	out := make([]Value, 0, n)
	for {
		item, ok := it.next(st)
		switch {
		case !ok && len(out) < n:
			failValue("not enough values to unpack (expected %d, got %d)", n, len(out))
		case !ok:
			return out
		case len(out) == n:
			failValue("too many values to unpack (expected %d)", n)
		}
		out = append(out, item)
	}
}

type textStmt struct{ text string }

func (s *textStmt) exec(st *state) signal {
	st.write(s.text)
	return goOn
}

type outputStmt struct {
	line   int
	value  expr
	emit   emitter // value, when it can write by itself
	escape bool
}

func (s *outputStmt) exec(st *state) signal {
	st.line = s.line
	switch {
	case s.escape:
		st.write(st.escape(s.value.eval(st)))
	case s.emit != nil:
		s.emit.emit(st)
	default:
		st.appendText(s.value.eval(st))
	}
	return goOn
}

type assignStmt struct {
	line   int
	spaces []expr // must be namespaces
	target target
	value  expr
}

func (s *assignStmt) exec(st *state) signal {
	st.line = s.line
	for _, space := range s.spaces {
		asNamespace(space.eval(st))
	}
	s.target.assign(st, s.value.eval(st))
	return goOn
}

// captureStmt is a set block.
type captureStmt struct {
	line   int
	target target
	filter expr
	loads  []loadCode
	body   *blockCode
}

func (s *captureStmt) exec(st *state) signal {
	st.line = s.line
	st.load(s.loads)
	start := len(st.out)
	if sig := s.body.exec(st); sig != goOn {
		st.out = st.out[:start]
		return sig
	}
	st.line = s.line
	text := String(st.take(start))
	if s.filter != nil {
		text = st.applyTo(s.filter, text)
	}
	if st.autoescape {
		text = markup(st.text(text))
	}
	s.target.assign(st, text)
	return goOn
}

// applyTo evaluates the filter of a block on its body.
func (st *state) applyTo(filter expr, body Value) Value {
	outer := st.captured
	st.captured = body
	v := filter.eval(st)
	st.captured = outer
	return v
}

type filterStmt struct {
	line   int
	filter expr
	loads  []loadCode
	body   *blockCode
	escape bool
}

func (s *filterStmt) exec(st *state) signal {
	st.load(s.loads)
	start := len(st.out)
	if sig := s.body.exec(st); sig != goOn {
		st.out = st.out[:start]
		return sig
	}
	st.line = s.line
	text := Value{kind: kStr, str: st.take(start)}
	if s.escape {
		text.kind = kMarkup
	}
	st.writeStr(st.applyTo(s.filter, text))
	return goOn
}

// writeStr writes what jinja2 does not turn into a str by itself.
func (st *state) writeStr(v Value) {
	if !v.isStr() {
		failType("expected str instance, %s found", v.typeName())
	}
	st.write(v.str)
}

type ifStmt struct {
	arms   []armCode
	orElse *blockCode
}

type armCode struct {
	line int
	test expr
	body *blockCode
}

func (s *ifStmt) exec(st *state) signal {
	for i := range s.arms {
		arm := &s.arms[i]
		st.line = arm.line
		if st.truth(arm.test.eval(st)) {
			return arm.body.exec(st)
		}
	}
	if s.orElse != nil {
		return s.orElse.exec(st)
	}
	return goOn
}

type withStmt struct {
	line    int
	targets []target
	values  []expr
	loads   []loadCode
	body    *blockCode
}

func (s *withStmt) exec(st *state) signal {
	st.line = s.line
	st.load(s.loads)
	for i, t := range s.targets {
		t.assign(st, s.values[i].eval(st))
	}
	return s.body.exec(st)
}

type escapeStmt struct {
	on    bool
	loads []loadCode
	body  *blockCode
}

func (s *escapeStmt) exec(st *state) signal {
	st.load(s.loads)
	outer := st.autoescape
	st.autoescape = s.on
	sig := s.body.exec(st)
	st.autoescape = outer
	return sig
}

type breakStmt struct{}

func (breakStmt) exec(*state) signal { return doBreak }

type continueStmt struct{}

func (continueStmt) exec(*state) signal { return doContinue }

// macroStmt defines a macro.
type macroStmt struct {
	code   *macroCode
	target target
}

func (s *macroStmt) exec(st *state) signal {
	s.target.assign(st, other(&macro{s.code, st.frame, st.autoescape}))
	return goOn
}

// callStmt is a call block; without a callee, it is {% generation %}, which only calls its body.
type callStmt struct {
	line   int
	code   *macroCode
	callee expr
	args   argCode
	escape bool
}

func (s *callStmt) exec(st *state) signal {
	st.line = s.line
	caller := &macro{s.code, st.frame, st.autoescape}
	if s.callee == nil {
		caller.run(st, arguments{})
		return goOn
	}
	callee := s.callee.eval(st)
	args, n := s.args.eval(st)
	args.kw = append(args.kw, keyword{"caller", other(caller)})
	st.line = s.line
	v := st.call(callee, args)
	st.pop(n)
	st.writeStr(v)
	return goOn
}

// blockStmt runs a block where it stands.
type blockStmt struct {
	line     int
	name     string
	code     *unitCode
	required bool
	locals   []localCode // for a scoped block: what the scopes around assign
}

type localCode struct {
	global int
	from   *varExpr
}

func (s *blockStmt) exec(st *state) signal {
	st.line = s.line
	if s.required {
		fail("TemplateRuntimeError", "Required block %s not found", quote(s.name))
	}
	if s.locals == nil {
		s.code.run(st, s.name)
		return goOn
	}
	outer := st.exported
	st.exported = append([]Value(nil), outer...)
	for _, l := range s.locals {
		if v := l.from.eval(st); v.kind != kAbsent {
			st.exported[l.global] = v
		}
	}
	s.code.run(st, s.name)
	st.exported = outer
	return goOn
}
