// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import "strconv"

// forStmt is a loop. A recursive one is a unit of its own, so that loop(items) can run it again.
type forStmt struct {
	line        int
	iter        expr
	target      target
	test        *filterCode
	loopSlot    int // of the loop variable, or -1 when the body does not use it
	loads       []loadCode
	body        *blockCode
	orElse      *blockCode
	orElseLoads []loadCode
	unit        *unitCode // of a recursive loop
}

func (s *forStmt) exec(st *state) signal {
	st.line = s.line
	items := s.iter.eval(st)
	if s.unit == nil {
		return s.run(st, items, st.frame, 0)
	}
	s.recurse(st, items, st.frame, 0)
	return goOn
}

// recurse runs a recursive loop in a record of its own; env is the record of the unit around it.
func (s *forStmt) recurse(st *state, items Value, env *frame, depth int) {
	outer, line := st.frame, st.line
	st.enter()
	st.frame = st.newFrame(s.unit, env)
	s.run(st, items, env, depth)
	st.dropFrame(s.unit)
	st.frame, st.line = outer, line
	st.depth--
}

func (s *forStmt) run(st *state, items Value, env *frame, depth int) signal {
	it := st.iterate(items)
	if s.test != nil {
		it = iterator{gen: s.test.generator(st, it, env)}
	}
	slots := st.frame.slots
	var loop *loop
	if s.loopSlot >= 0 {
		loop = newLoop(s, it, env, depth)
		slots[s.loopSlot] = Value{}
	}
	ran := false // a round that break or continue cuts short does not count, as in jinja2
	for {
		var v Value
		var ok bool
		if loop != nil {
			v, ok = loop.next(st)
		} else {
			v, ok = it.next(st)
		}
		if !ok {
			break
		}
		st.spend(1)
		s.target.assign(st, v)
		if loop != nil {
			slots[s.loopSlot] = other(loop)
		}
		st.load(s.loads)
		sig := s.body.exec(st)
		if sig == doBreak {
			break
		}
		ran = ran || sig == goOn
	}
	if s.orElse != nil && !ran {
		st.load(s.orElseLoads)
		return s.orElse.exec(st)
	}
	return goOn
}

// filterCode is the if of a loop.
type filterCode struct {
	target target
	value  expr // what the loop gets, for a target that is a tuple
	test   expr
	loads  []loadCode
	slots  int
}

// generator gives the items of it that pass the test.
func (f *filterCode) generator(st *state, it iterator, env *frame) *generator {
	own := &frame{slots: make([]Value, f.slots), parent: env}
	started := false
	return &generator{kind: "generator", name: "t_1", pull: func(st *state) (v Value, ok bool) {
		outer := st.frame
		st.frame = own
		if !started {
			started = true
			st.load(f.loads)
		}
		for {
			if v, ok = it.next(st); !ok {
				break
			}
			st.spend(1)
			f.target.assign(st, v)
			if st.truth(f.test.eval(st)) {
				if f.value != nil {
					v = f.value.eval(st)
				}
				break
			}
		}
		st.frame = outer
		return v, ok
	}}
}

// loop is the loop variable.
type loop struct {
	stmt    *forStmt
	env     *frame // of the unit around a recursive loop
	it      iterator
	size_   int // -1 until it is asked for
	index0  int
	depth0  int
	before  Value
	current Value
	after   Value // looked at ahead
	ahead   bool  // after holds the next item, or is absent because there is none
	seen    []Value
}

func newLoop(s *forStmt, it iterator, env *frame, depth int) *loop {
	l := &loop{stmt: s, env: env, it: it, size_: -1, index0: -1, depth0: depth}
	switch {
	case it.gen != nil || it.text != "":
	case it.span != nil:
		l.size_ = int(it.span.len())
	default:
		l.size_ = len(it.items)
	}
	return l
}

func (l *loop) next(st *state) (v Value, ok bool) {
	if l.ahead && l.after.kind != kAbsent {
		v, ok = l.after, true
		l.after, l.ahead = Value{}, false
	} else {
		v, ok = l.it.next(st)
	}
	if ok {
		l.index0++
		l.before, l.current = l.current, v
	}
	return v, ok
}

// peek gives the next item without taking it; absent at the end.
func (l *loop) peek(st *state) Value {
	if !l.ahead || l.after.kind == kAbsent {
		l.after, _ = l.it.next(st)
		l.ahead = true
	}
	return l.after
}

// size is the number of items; those of a generator are computed for it.
func (l *loop) size(st *state) int {
	if l.size_ < 0 {
		rest := st.drain(&l.it)
		l.it = iterator{items: rest}
		l.size_ = len(rest) + l.index0 + 1
		if l.after.kind != kAbsent {
			l.size_++
		}
	}
	return l.size_
}

func (l *loop) typeName() string { return "LoopContext" }

func (l *loop) print(st *state, depth int) {
	st.write("<LoopContext " + strconv.Itoa(l.index0+1) + "/" + strconv.Itoa(l.size(st)) + ">")
}

func (l *loop) attr(st *state, name string) Value {
	num := func(n int) Value { return Int(int64(n)) }
	switch name {
	case "index":
		return num(l.index0 + 1)
	case "index0":
		return num(l.index0)
	case "first":
		return Bool(l.index0 == 0)
	case "last":
		return Bool(l.peek(st).kind == kAbsent)
	case "length":
		return num(l.size(st))
	case "revindex":
		return num(l.size(st) - l.index0)
	case "revindex0":
		return num(l.size(st) - l.index0 - 1)
	case "depth":
		return num(l.depth0 + 1)
	case "depth0":
		return num(l.depth0)
	case "previtem":
		if l.index0 == 0 {
			return undefinedHint("there is no previous item")
		}
		return l.before
	case "nextitem":
		if v := l.peek(st); v.kind != kAbsent {
			return v
		}
		return undefinedHint("there is no next item")
	case "cycle":
		return other(&method{other(l), loopCycle})
	case "changed":
		return other(&method{other(l), loopChanged})
	}
	return Value{}
}

var loopCycle = &builtin{name: "cycle", raw: func(st *state, self Value, a arguments) Value {
	if len(a.kw) > 0 {
		failType("LoopContext.cycle() got an unexpected keyword argument %s", quote(a.kw[0].name))
	}
	if len(a.pos) == 0 {
		failType("no items for cycling given")
	}
	l := self.ref.(*loop)
	return a.pos[(l.index0%len(a.pos)+len(a.pos))%len(a.pos)]
}}

var loopChanged = &builtin{name: "changed", raw: func(st *state, self Value, a arguments) Value {
	if len(a.kw) > 0 {
		failType("LoopContext.changed() got an unexpected keyword argument %s", quote(a.kw[0].name))
	}
	l := self.ref.(*loop)
	now := append([]Value{}, a.pos...) // not nil: the arguments are no longer ours after the call
	if l.seen != nil && st.equal(tuple(l.seen...), tuple(now...)) {
		return False
	}
	l.seen = now
	return True
}}

// call is loop(items) in a recursive loop: the text of the loop over other items.
func (l *loop) call(st *state, a arguments) Value {
	if len(a.pos) != 1 || len(a.kw) > 0 {
		failType("LoopContext.__call__() takes one argument: the items to loop over")
	}
	if l.stmt.unit == nil {
		failType("The loop must have the 'recursive' marker to be called recursively.")
	}
	start := len(st.out)
	l.stmt.recurse(st, a.pos[0], l.env, l.depth0+1)
	return Value{kind: st.textKind(), str: st.take(start)}
}

// textKind is the kind of what macros and recursive loops give.
func (st *state) textKind() kind {
	if st.autoescape {
		return kMarkup
	}
	return kStr
}
