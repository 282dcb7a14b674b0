// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

// unitCode is code that runs in an activation record of its own.
type unitCode struct {
	slots   int
	nested  bool           // other units are written in it: its records may outlive the call
	special map[string]int // slots of self and super
	loads   []loadCode
	body    *blockCode
}

// newFrame makes a record with absent slots; undo it with dropFrame.
func (st *state) newFrame(u *unitCode, env *frame) *frame {
	if u.nested {
		st.allocValues(u.slots)
		return &frame{slots: make([]Value, u.slots), parent: env}
	}
	return &frame{slots: st.push(u.slots), parent: env}
}

func (st *state) dropFrame(u *unitCode) {
	if !u.nested {
		st.pop(u.slots)
	}
}

// run runs the template or a block in the context as it is.
func (u *unitCode) run(st *state, name string) {
	outer := st.frame
	st.enter()
	st.frame = st.newFrame(u, nil)
	for special, slot := range u.special {
		v := other(&templateRef{})
		if special == "super" {
			v = undefinedHint("there is no parent block called " + quote(name) + ".")
		}
		st.frame.slots[slot] = v
	}
	st.load(u.loads)
	u.body.exec(st)
	st.dropFrame(u)
	st.frame = outer
	st.depth--
}

// macroCode is a macro or the body of a call block. Slots are -1 for what the body does not use.
type macroCode struct {
	name                    string // "" for the body of a call block
	params                  []paramCode
	caller, kwargs, varargs int
	unitCode
}

type paramCode struct {
	name   string
	slot   int
	orElse expr // nil when there is no default
}

// macro is a macro as a value.
type macro struct {
	code       *macroCode
	env        *frame // where it was defined
	autoescape bool
}

func (m *macro) typeName() string { return "Macro" }

func (m *macro) print(st *state, depth int) {
	name := "anonymous"
	if m.code.name != "" {
		name = quote(m.code.name)
	}
	st.write("<Macro " + name + ">")
}

func (m *macro) attr(st *state, name string) Value {
	switch name {
	case "name":
		if m.code.name == "" {
			return Null
		}
		return String(m.code.name)
	case "arguments":
		names := make([]Value, len(m.code.params))
		for i, p := range m.code.params {
			names[i] = String(p.name)
		}
		return tuple(names...)
	case "catch_kwargs":
		return Bool(m.code.kwargs >= 0)
	case "catch_varargs":
		return Bool(m.code.varargs >= 0)
	case "caller":
		return Bool(m.code.caller >= 0)
	}
	return Value{}
}

func (m *macro) call(st *state, a arguments) Value {
	start := len(st.out)
	m.run(st, a)
	return Value{kind: st.textKind(), str: st.take(start)}
}

// run writes the macro's text to the output.
func (m *macro) run(st *state, a arguments) {
	code := m.code
	st.enter()
	outer, line := st.frame, st.line
	f := st.newFrame(&code.unitCode, m.env)
	m.bind(st, f, a)
	st.frame = f
	st.load(code.loads)
	for i := range code.params {
		p := &code.params[i]
		if f.slots[p.slot].kind != kAbsent {
			continue
		}
		if p.orElse != nil {
			f.slots[p.slot] = p.orElse.eval(st)
		} else {
			f.slots[p.slot] = undefinedHint("parameter " + quote(p.name) + " was not provided")
		}
	}
	code.body.exec(st)
	st.dropFrame(&code.unitCode)
	st.frame, st.line = outer, line
	st.depth--
}

// bind puts the arguments into f.
func (m *macro) bind(st *state, f *frame, a arguments) {
	code := m.code
	n := min(len(a.pos), len(code.params))
	for i := range n {
		f.slots[code.params[i].slot] = a.pos[i]
	}
	explicitCaller := false
	for i, p := range code.params {
		if i >= n && len(a.kw) > 0 {
			f.slots[p.slot] = a.take(p.name)
		}
		explicitCaller = explicitCaller || p.name == "caller"
	}
	if code.caller >= 0 && !explicitCaller {
		caller := a.take("caller")
		if !caller.given() {
			caller = undefinedHint("No caller defined")
		}
		f.slots[code.caller] = caller
	}
	switch {
	case code.kwargs >= 0:
		d := newDict(len(a.kw))
		for _, k := range a.kw {
			d.setName(k.name, k.val)
		}
		f.slots[code.kwargs] = d.value()
	case len(a.kw) > 0:
		name := a.kw[0].name
		for _, k := range a.kw {
			if k.name == "caller" {
				failType("macro %s was invoked with two values for the special caller argument. This is most likely a bug.", m.label())
			}
		}
		failType("macro %s takes no keyword argument %s", m.label(), quote(name))
	}
	switch {
	case code.varargs >= 0:
		f.slots[code.varargs] = tuple(append([]Value{}, a.pos[n:]...)...)
	case len(a.pos) > n:
		failType("macro %s takes not more than %d argument(s)", m.label(), len(code.params))
	}
}

func (m *macro) label() string {
	if m.code.name == "" {
		return "None"
	}
	return quote(m.code.name)
}

// templateRef is self.
type templateRef struct{}

func (*templateRef) typeName() string           { return "TemplateReference" }
func (*templateRef) print(st *state, depth int) { st.write("<TemplateReference None>") }
func (r *templateRef) item(st *state, k Value) Value {
	if code := st.tpl.blocks[k.str]; code != nil && k.isStr() {
		return other(&blockRef{k.str, code})
	}
	return Value{}
}

// blockRef is self.name: a block that can be called.
type blockRef struct {
	name string
	code *unitCode
}

func (*blockRef) typeName() string { return "BlockReference" }

func (b *blockRef) call(st *state, a arguments) Value {
	if len(a.pos)+len(a.kw) > 0 {
		failType("BlockReference.__call__() takes no arguments")
	}
	start := len(st.out)
	b.code.run(st, b.name)
	return Value{kind: st.textKind(), str: st.take(start)}
}
