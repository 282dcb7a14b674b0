// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// What code outside of templates may do with a Value: look into it, make one from Go data, write it as JSON.

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

// FromGo gives Go data as a value: nil, bool, integers, floats, strings, slices, arrays, pointers, Values, structs (by
// their json tags, in the order of their fields) and what marshals itself to JSON. Maps are refused: they have no order.
func FromGo(v any) (Value, error) { return fromGo(reflect.ValueOf(v), 0) }

var marshalerType = reflect.TypeFor[json.Marshaler]()

func fromGo(r reflect.Value, depth int) (Value, error) {
	if !r.IsValid() {
		return Null, nil
	}
	if depth > MaxDepth {
		return Value{}, fmt.Errorf("nested more than %d deep", MaxDepth)
	}
	switch x := r.Interface().(type) {
	case Value:
		if x.kind == kAbsent {
			return Null, nil
		}
		return x, nil
	case json.RawMessage:
		if x == nil {
			return Null, nil
		}
		return ParseJSON(x)
	}
	if r.Type().Implements(marshalerType) && (r.Kind() != reflect.Pointer || !r.IsNil()) {
		data, err := r.Interface().(json.Marshaler).MarshalJSON()
		if err != nil {
			return Value{}, err
		}
		return ParseJSON(bytes.TrimSpace(data))
	}
	switch r.Kind() {
	case reflect.Bool:
		return Bool(r.Bool()), nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return Int(r.Int()), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return ParseJSON(fmt.Append(nil, r.Uint()))
	case reflect.Float32, reflect.Float64:
		return Float(r.Float()), nil
	case reflect.String:
		return String(strings.ToValidUTF8(r.String(), "\ufffd")), nil
	case reflect.Pointer, reflect.Interface:
		if r.IsNil() {
			return Null, nil
		}
		return fromGo(r.Elem(), depth+1)
	case reflect.Slice, reflect.Array:
		if r.Kind() == reflect.Slice && r.IsNil() {
			return Null, nil
		}
		items := make([]Value, r.Len())
		for i := range items {
			item, err := fromGo(r.Index(i), depth+1)
			if err != nil {
				return Value{}, err
			}
			items[i] = item
		}
		return List(items...), nil
	case reflect.Struct:
		d := newDict(r.NumField())
		if err := addFields(d, r, depth); err != nil {
			return Value{}, err
		}
		return d.value(), nil
	}
	return Value{}, fmt.Errorf("a value of type %s cannot go into a template", r.Type())
}

// addFields puts the fields of a struct into d, those of embedded structs among them.
func addFields(d *dict, r reflect.Value, depth int) error {
	for i := range r.NumField() {
		f := r.Type().Field(i)
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		field := r.Field(i)
		if f.Anonymous && name == "" {
			if field.Kind() == reflect.Pointer && !field.IsNil() {
				field = field.Elem()
			}
			if field.Kind() == reflect.Struct {
				if err := addFields(d, field, depth+1); err != nil {
					return err
				}
				continue
			}
		}
		opts := strings.Split(options, ",")
		if !f.IsExported() || tag == "-" || slices.Contains(opts, "omitempty") && isEmpty(field) ||
			slices.Contains(opts, "omitzero") && field.IsZero() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		v, err := fromGo(field, depth+1)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		d.setName(name, v)
	}
	return nil
}

// isEmpty is what omitempty leaves out.
func isEmpty(r reflect.Value) bool {
	switch r.Kind() {
	case reflect.Slice, reflect.Array, reflect.String, reflect.Map:
		return r.Len() == 0
	case reflect.Struct:
		return false
	}
	return r.IsZero()
}
