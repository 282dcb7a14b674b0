// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import "strings"

// arguments are what a call passes.
type arguments struct {
	pos []Value
	kw  []keyword
}

type keyword struct {
	name string
	val  Value
}

// take removes a keyword argument and gives it; absent when it was not passed.
func (a *arguments) take(name string) Value {
	for i, k := range a.kw {
		if k.name == name {
			a.kw = append(append([]keyword(nil), a.kw[:i]...), a.kw[i+1:]...)
			return k.val
		}
	}
	return Value{}
}

// builtin is a function, method, filter or test that is written in Go.
type builtin struct {
	name   string
	params []string // without self or the piped value; a name that starts with "/" is positional only
	least  int      // how many of them must be given
	// fn gets self or the piped value in a[0] (absent for a function), then one value per parameter, absent when not given.
	fn func(st *state, a []Value) Value
	// raw, when set, replaces params and fn: it takes any arguments.
	raw func(st *state, self Value, a arguments) Value
	// emit, when set, replaces fn: it writes its result, a str, to the output.
	emit func(st *state, a []Value)
}

// define makes a builtin from a signature as "name(a, b, c=)": a parameter with = may be left out, one with / in front
// cannot be passed by name.
func define(signature string, fn func(st *state, a []Value) Value) *builtin {
	name, list, _ := strings.Cut(strings.TrimSuffix(signature, ")"), "(")
	b := &builtin{name: name, fn: fn}
	for _, p := range strings.Split(list, ",") {
		if p = strings.TrimSpace(p); p == "" {
			continue
		}
		param, optional := strings.CutSuffix(p, "=")
		b.params = append(b.params, param)
		if !optional {
			b.least = len(b.params)
		}
	}
	return b
}

// table indexes builtins by name.
func table(list ...*builtin) map[string]*builtin {
	m := make(map[string]*builtin, len(list))
	for _, b := range list {
		m[b.name] = b
	}
	return m
}

// invoke calls b on self.
func (st *state) invoke(b *builtin, self Value, a arguments) Value {
	st.spend(1)
	if b.raw != nil {
		return b.raw(st, self, a)
	}
	args := st.bindAll(b, self, a)
	var v Value
	if b.emit != nil {
		start := len(st.out)
		b.emit(st, args)
		v = String(st.take(start))
	} else {
		v = b.fn(st, args)
	}
	st.pop(len(args))
	return v
}

// bindAll puts self and the arguments in their places on the stack; pop them when the call is done.
func (st *state) bindAll(b *builtin, self Value, a arguments) []Value {
	if len(a.pos) > len(b.params) {
		failType("%s() takes at most %d arguments (%d given)", b.name, len(b.params), len(a.pos)+len(a.kw))
	}
	args := st.push(1 + len(b.params))
	args[0] = self
	copy(args[1:], a.pos)
	for _, k := range a.kw {
		b.bind(args[1:], k)
	}
	for i := range b.least {
		if args[1+i].kind == kAbsent {
			failType("%s() missing required argument: %s", b.name, quote(strings.TrimPrefix(b.params[i], "/")))
		}
	}
	return args
}

// bind puts a keyword argument in its place.
func (b *builtin) bind(args []Value, k keyword) {
	for i, p := range b.params {
		if p == k.name {
			if args[i].kind != kAbsent {
				failType("%s() got multiple values for argument %s", b.name, quote(k.name))
			}
			args[i] = k.val
			return
		}
	}
	failType("%s() got an unexpected keyword argument %s", b.name, quote(k.name))
}

// call is Python's callee(*a.pos, **a.kw).
func (st *state) call(callee Value, a arguments) Value {
	switch callee.kind {
	case kUndefined:
		callee.failUndefined()
	case kOther:
		if f, ok := callee.ref.(callable); ok {
			return f.call(st, a)
		}
	}
	failType("%s object is not callable", quote(callee.typeName()))
	return Value{}
}

type callable interface {
	call(st *state, a arguments) Value
}

// function is a builtin as a value.
type function struct{ fn *builtin }

func (f *function) typeName() string                  { return "function" }
func (f *function) call(st *state, a arguments) Value { return st.invoke(f.fn, Value{}, a) }
func (f *function) print(st *state, depth int)        { st.write("<function " + f.fn.name + ">") }

// method is a builtin bound to a value.
type method struct {
	self Value
	fn   *builtin
}

func (m *method) typeName() string                  { return "builtin_function_or_method" }
func (m *method) call(st *state, a arguments) Value { return st.invoke(m.fn, m.self, a) }
func (m *method) print(st *state, depth int) {
	st.write("<built-in method " + m.fn.name + " of " + m.self.typeName() + " object>")
}

// methods are the attributes that a template may see on values of kind k.
func methods(k kind) map[string]*builtin {
	switch k {
	case kStr, kMarkup:
		return strMethods
	case kDict:
		return dictMethods
	case kList:
		return listMethods
	case kTuple:
		return tupleMethods
	case kBool, kInt, kBigInt:
		return intMethods
	case kFloat:
		return floatMethods
	case kRange:
		return rangeMethods
	}
	return nil
}

// hidden says whether obj has that attribute in Python and the sandbox refuses it: what changes a list or a dict, and
// all that starts with two underscores.
func hidden(obj Value, name string) bool {
	switch obj.kind {
	case kList:
		switch name {
		case "append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove":
			return true
		}
	case kDict:
		switch name {
		case "clear", "pop", "popitem", "setdefault", "update":
			return true
		}
	}
	return strings.HasPrefix(name, "__") && dunders[name]
}

// dunders are the special attributes that values of every type have, and those of sequences.
var dunders = func() map[string]bool {
	m := map[string]bool{}
	for _, n := range strings.Fields(`class doc init new repr str eq ne lt le gt ge hash dir format getattribute setattr
		delattr reduce reduce_ex sizeof subclasshook init_subclass len contains getitem iter add mul rmul call name
		dict module getstate globals code closure self qualname`) {
		m["__"+n+"__"] = true
	}
	return m
}()

// argStr gives a str argument, or missing when it was not given.
func argStr(b string, v Value, missing string) string {
	if v.kind == kAbsent {
		return missing
	}
	if !v.isStr() {
		failType("%s() argument must be str, not %s", b, v.typeName())
	}
	return v.str
}

// argInt gives an integer argument, or missing when it was not given.
func argInt(v Value, missing int64) int64 {
	if v.kind == kAbsent {
		return missing
	}
	n, ok := v.index()
	if !ok {
		failType("%s object cannot be interpreted as an integer", quote(v.typeName()))
	}
	return n
}

// argWidth gives an integer argument that sizes a result; what is too large for any result is cut to a refused size.
func argWidth(v Value, missing int64) int { return int(min(max(argInt(v, missing), 0), MaxHeap+1)) }

// argBool gives the truth of an argument, or missing when it was not given.
func (st *state) argBool(v Value, missing bool) bool {
	if v.kind == kAbsent {
		return missing
	}
	return st.truth(v)
}

// given says whether an optional argument was passed and is not None.
func (v Value) given() bool { return v.kind != kAbsent && v.kind != kNone }
