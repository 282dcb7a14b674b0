// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

// argCode evaluates the arguments of a call.
type argCode struct {
	pos            []expr
	names          []string
	kw             []expr
	star, starstar expr
}

// plain says that there are only positional arguments.
func (a *argCode) plain() bool { return len(a.kw) == 0 && a.star == nil && a.starstar == nil }

// eval gives the arguments. The positional ones lie on the stack: pop n values when the call is done.
func (a *argCode) eval(st *state) (args arguments, n int) {
	n = len(a.pos)
	args.pos = st.push(n)
	for i, e := range a.pos {
		args.pos[i] = e.eval(st)
	}
	if a.plain() {
		return args, n
	}
	if a.star != nil {
		more := st.collect(a.star.eval(st))
		st.allocValues(n + len(more))
		args.pos = append(append(make([]Value, 0, n+len(more)), args.pos...), more...)
	}
	args.kw = make([]keyword, 0, len(a.kw)+1)
	for i, e := range a.kw {
		args.kw = append(args.kw, keyword{a.names[i], e.eval(st)})
	}
	if a.starstar != nil {
		v := a.starstar.eval(st)
		if v.kind == kUndefined {
			v.failUndefined()
		}
		if v.kind != kDict {
			failType("argument after ** must be a mapping, not %s", v.typeName())
		}
		st.allocValues(2 * v.dict().len())
		for _, k := range keywordsOf(v.dict()) {
			for _, have := range a.names {
				if have == k.name {
					failType("got multiple values for keyword argument %s", quote(k.name))
				}
			}
			args.kw = append(args.kw, k)
		}
	}
	return args, n
}

// callCode is callee(args).
type callCode struct {
	line   int
	callee expr
	args   argCode
}

func (e *callCode) eval(st *state) Value {
	callee := e.callee.eval(st)
	args, n := e.args.eval(st)
	st.line = e.line
	v := st.call(callee, args)
	st.pop(n)
	return v
}

// emit lets a macro write straight to the output.
func (e *callCode) emit(st *state) {
	callee := e.callee.eval(st)
	args, n := e.args.eval(st)
	st.line = e.line
	if m, ok := callee.ref.(*macro); ok && callee.kind == kOther {
		m.run(st, args)
	} else {
		st.appendText(st.call(callee, args))
	}
	st.pop(n)
}

// methodExpr is object.name(args), without a value for the bound method.
type methodExpr struct {
	line int
	attr *attrExpr
	args argCode
}

func (e *methodExpr) eval(st *state) Value {
	obj := e.attr.object.eval(st)
	if m := methods(obj.kind)[e.attr.name]; m != nil {
		return applyBuiltin(st, m, obj, &e.args, e.line)
	}
	callee := e.attr.of(st, obj)
	args, n := e.args.eval(st)
	st.line = e.line
	v := st.call(callee, args)
	st.pop(n)
	return v
}

// applyExpr is a filter or a test on input.
type applyExpr struct {
	line  int
	fn    *builtin
	input expr
	args  argCode
}

func (e *applyExpr) eval(st *state) Value {
	return applyBuiltin(st, e.fn, e.input.eval(st), &e.args, e.line)
}

// emit lets a builtin that can write straight to the output.
func (e *applyExpr) emit(st *state) {
	if e.fn.emit == nil {
		st.appendText(e.eval(st))
		return
	}
	input := e.input.eval(st)
	args, n := e.args.eval(st)
	st.line = e.line
	all := st.bindAll(e.fn, input, args)
	e.fn.emit(st, all)
	st.pop(len(all))
	st.pop(n)
}

// applyBuiltin calls fn; with positional arguments only, they are evaluated where fn wants them.
func applyBuiltin(st *state, fn *builtin, self Value, a *argCode, line int) Value {
	if fn.raw == nil && fn.emit == nil && a.plain() && len(a.pos) >= fn.least && len(a.pos) <= len(fn.params) {
		args := st.push(1 + len(fn.params))
		args[0] = self
		for i, e := range a.pos {
			args[1+i] = e.eval(st)
		}
		st.line = line
		v := fn.fn(st, args)
		st.pop(len(args))
		return v
	}
	args, n := a.eval(st)
	st.line = line
	v := st.invoke(fn, self, args)
	st.pop(n)
	return v
}
