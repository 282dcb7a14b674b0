// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/rand/v2"
)

// dict keeps the order of insertion. It is built once and then only read.
type dict struct {
	keys, vals []Value
	names      map[string]int  // where each str key is, once the dict is large
	others     map[hashKey]int // where each other key is
}

// smallDict is the number of keys up to which a dict is searched by looking at each.
const smallDict = 8

// hashKey is equal for keys that Python holds equal: 1, 1.0 and True are one key.
type hashKey struct {
	kind kind
	num  uint64
	str  string
	ref  any
}

func newDict(capacity int) *dict {
	room := make([]Value, 2*capacity)
	return &dict{keys: room[:0:capacity], vals: room[capacity:capacity]}
}

// Field is a key and a value of a dict with str keys.
type Field struct {
	Name  string
	Value Value
}

// Dict gives a dict of those fields, in that order; of fields with the same name the last one counts.
func Dict(fields ...Field) Value {
	d := newDict(len(fields))
	for _, f := range fields {
		d.setName(f.Name, f.Value)
	}
	return d.value()
}

func (d *dict) value() Value { return Value{kind: kDict, ref: d} }

func (d *dict) len() int { return len(d.keys) }

// find gives the position of a str key, or -1.
func (d *dict) find(name string) int {
	if d.names != nil {
		if i, ok := d.names[name]; ok {
			return i
		}
		return -1
	}
	for i := range d.keys {
		if k := &d.keys[i]; len(k.str) == len(name) && k.str == name && k.isStr() {
			return i
		}
	}
	return -1
}

// get gives the value under a str key, or the absent value.
func (d *dict) get(name string) Value {
	if i := d.find(name); i >= 0 {
		return d.vals[i]
	}
	return Value{}
}

// lookup gives the position of any key, or -1; it fails on a key that cannot be hashed.
func (d *dict) lookup(st *state, key Value) int {
	if key.isStr() {
		return d.find(key.str)
	}
	h := st.hash(key)
	if i, ok := d.others[h]; ok {
		return i
	}
	return -1
}

// setName puts a value under a str key, in place when the key is there.
func (d *dict) setName(name string, val Value) {
	if i := d.find(name); i >= 0 {
		d.vals[i] = val
		return
	}
	d.add(String(name), val)
}

// set puts a value under any key.
func (d *dict) set(st *state, key, val Value) {
	if i := d.lookup(st, key); i >= 0 {
		d.vals[i] = val
		return
	}
	if !key.isStr() {
		if d.others == nil {
			d.others = map[hashKey]int{}
		}
		d.others[st.hash(key)] = len(d.keys)
	}
	d.add(key, val)
}

// add appends a key that is not there yet.
func (d *dict) add(key, val Value) {
	d.keys = append(d.keys, key)
	d.vals = append(d.vals, val)
	switch {
	case d.names != nil:
		if key.isStr() {
			d.names[key.str] = len(d.keys) - 1
		}
	case len(d.keys) > smallDict:
		d.names = make(map[string]int, 2*len(d.keys))
		for i, k := range d.keys {
			if k.isStr() {
				d.names[k.str] = i
			}
		}
	}
}

// hash gives v as a key of a Go map; it fails where Python's hash() does.
func (st *state) hash(v Value) hashKey {
	switch v.kind {
	case kList, kDict:
		failType("unhashable type: %s", quote(v.typeName()))
	case kBool, kInt:
		return hashKey{kind: kInt, num: v.num}
	case kFloat:
		f := v.float()
		if f == math.Trunc(f) && math.Abs(f) < 1<<63 {
			return hashKey{kind: kInt, num: uint64(int64(f))}
		}
		if f == math.Trunc(f) && !math.IsInf(f, 0) {
			b, _ := big.NewFloat(f).Int(nil)
			return hashKey{kind: kBigInt, str: b.String()}
		}
		if f != f {
			return hashKey{kind: kFloat, num: rand.Uint64(), str: "nan"} // equal to nothing, itself included
		}
		return hashKey{kind: kFloat, num: v.num}
	case kBigInt:
		return hashKey{kind: kBigInt, str: v.ref.(*big.Int).String()}
	case kStr, kMarkup:
		return hashKey{kind: kStr, str: v.str}
	case kTuple:
		return hashKey{kind: kTuple, str: string(st.hashBytes(nil, v, 0))}
	case kRange:
		s := v.ref.(*span)
		return hashKey{kind: kRange, str: reprText(tuple(Int(s.start), Int(s.stop), Int(s.step)))}
	case kOther:
		if w, ok := v.ref.(*view); ok {
			failType("unhashable type: %s", quote(w.typeName()))
		}
		return hashKey{kind: kOther, ref: v.ref}
	}
	return hashKey{kind: v.kind}
}

// hashBytes appends a form of a tuple that is equal for equal tuples.
func (st *state) hashBytes(b []byte, v Value, depth int) []byte {
	nested(depth)
	st.spend(1)
	if v.kind == kTuple {
		b = append(b, '(')
		for _, item := range v.items() {
			b = st.hashBytes(b, item, depth+1)
		}
		return append(b, ')')
	}
	h := st.hash(v)
	if h.ref != nil {
		failType("unhashable type: %s", quote(v.typeName()))
	}
	st.alloc(len(h.str) + 16)
	b = append(b, byte(h.kind))
	b = binary.BigEndian.AppendUint64(b, h.num)
	b = binary.BigEndian.AppendUint32(b, uint32(len(h.str)))
	return append(b, h.str...)
}
