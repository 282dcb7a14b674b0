// SPDX-License-Identifier: MIT OR Apache-2.0

package modelconf

import (
	"slices"
	"strings"

	"github.com/metrale/metrale/internal/diag"
)

// fields reads the keys of an object one by one and keeps the first error; done refuses keys that nobody asked for.
// A key that is absent or null gives the zero value.
type fields struct {
	n    *Node
	used map[string]bool
	err  error
}

func readFields(n *Node) *fields {
	f := &fields{n: n, used: map[string]bool{}}
	if !n.IsNull() && n.Kind() != Object {
		f.err = n.Errorf("%s is %v; it must be an object", n.Path(), n.Kind())
	}
	return f
}

// get is the value under key, nil if absent or null.
func (f *fields) get(key string) *Node {
	f.used[key] = true
	v, _ := f.n.Child(key)
	if v.IsNull() {
		return nil
	}
	return v
}

// has says whether key is there and not null.
func (f *fields) has(key string) bool { v, _ := f.n.Child(key); return !v.IsNull() }

func (f *fields) fail(err error) {
	if f.err == nil {
		f.err = err
	}
}

// wrong reports a value of another kind than wanted.
func (f *fields) wrong(v *Node, want Kind) {
	f.fail(v.Errorf("%s is %v; it must be %v", v.Path(), v.Kind(), want))
}

// refuse reports a value that is understood but not supported.
func (f *fields) refuse(v *Node, why string) {
	e := v.Errorf("%s: %s is not supported%s", v.Path(), v.Literal(), why)
	e.Code = diag.Unsupported
	f.fail(e)
}

// str is a string; with allowed values, any other is refused.
func (f *fields) str(key string, allowed ...string) string {
	v := f.get(key)
	if v == nil {
		return ""
	}
	s, ok := v.Str()
	switch {
	case !ok:
		f.wrong(v, String)
	case len(allowed) > 0 && !slices.Contains(allowed, s):
		f.refuse(v, " ("+strings.Join(allowed, ", ")+")")
	}
	return s
}

// integer is an integer, def if absent.
func (f *fields) integer(key string, def int64) int64 {
	v := f.get(key)
	if v == nil {
		return def
	}
	i, ok := v.Int()
	if !ok {
		f.wrong(v, Int)
	}
	return i
}

// boolean is true or false, def if absent.
func (f *fields) boolean(key string, def bool) bool {
	v := f.get(key)
	if v == nil {
		return def
	}
	b, ok := v.Bool()
	if !ok {
		f.wrong(v, Bool)
	}
	return b
}

// texts are the items of a list of strings.
func (f *fields) texts(key string) []*Node {
	f.used[key] = true
	if _, err := stringList(f.n, key); err != nil {
		f.fail(err)
		return nil
	}
	return f.get(key).Items()
}

// only refuses every value of key but absent, null, false, {} and [].
func (f *fields) only(key string) {
	v := f.get(key)
	if b, ok := v.Bool(); v == nil || ok && !b || v.Len() == 0 && (v.Kind() == Object || v.Kind() == Array) {
		return
	}
	e := v.Errorf("%s is set, which is not supported", v.Path())
	e.Code = diag.Unsupported
	f.fail(e)
}

// skip marks keys that say nothing about how to compute.
func (f *fields) skip(keys ...string) {
	for _, k := range keys {
		f.used[k] = true
	}
}

// done is the first error, or refuses the first unknown key.
func (f *fields) done() error {
	if f.err != nil {
		return f.err
	}
	for i, key := range f.n.Keys() {
		if !f.used[key] {
			v := f.n.Items()[i]
			e := v.Errorf("the quantisation key %s is not known", v.Path())
			e.Code = diag.Unsupported
			return e
		}
	}
	return nil
}
