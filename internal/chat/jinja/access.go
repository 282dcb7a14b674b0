// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import "fmt"

// What code outside of templates may do with a Value: look into it, write it as JSON.

// IsAbsent says that v is the zero Value.
func (v Value) IsAbsent() bool { return v.kind == kAbsent }

// IsNull says that v is None or absent.
func (v Value) IsNull() bool { return v.kind == kNone || v.kind == kAbsent }

// Text gives the text of a str.
func (v Value) Text() (string, bool) { return v.str, v.isStr() }

// Items gives the items of a list, which are not to be changed.
func (v Value) Items() ([]Value, bool) {
	if v.kind != kList && v.kind != kTuple {
		return nil, false
	}
	return v.items(), true
}

// IsDict says that v is a dict.
func (v Value) IsDict() bool { return v.kind == kDict }

// Len is the number of keys of a dict or items of a list, else 0.
func (v Value) Len() int {
	switch v.kind {
	case kDict:
		return v.dict().len()
	case kList, kTuple:
		return len(v.items())
	}
	return 0
}

// Get gives what a dict has under a str key; absent when v is no dict or has no such key.
func (v Value) Get(name string) Value {
	if v.kind != kDict {
		return Value{}
	}
	return v.dict().get(name)
}

// Field gives the i-th key, which must be a str, and value of a dict.
func (v Value) Field(i int) Field { return Field{v.dict().keys[i].str, v.dict().vals[i]} }

// MarshalJSON writes v as Python's json.dumps does, with the keys of objects in their order.
func (v Value) MarshalJSON() (data []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(*Error)
			if !ok {
				panic(r)
			}
			data, err = nil, fmt.Errorf("JSON: %s", e.Msg)
		}
	}()
	if v.kind == kAbsent {
		v = Null
	}
	st := &state{steps: MaxSteps, heap: MaxHeap}
	w := &jsonWriter{st: st, item: ", ", key: ": "}
	w.value(v, 0)
	return st.out, nil
}

// UnmarshalJSON reads v with ParseJSON.
func (v *Value) UnmarshalJSON(data []byte) (err error) {
	*v, err = ParseJSON(data)
	return err
}
