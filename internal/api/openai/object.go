// SPDX-License-Identifier: MIT OR Apache-2.0

package openai

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/metrale/metrale/internal/diag"
)

// maxItems is how many items a list of objects or texts may have.
const maxItems = 1 << 16

// object is a JSON object whose fields are read one by one. The first fault sticks; what is read after it is zero.
type object struct {
	fault  *error
	path   string // of the object itself; "" at the top
	text   []byte
	fields []field
}

type field struct {
	key  string
	raw  []byte
	read bool
}

// parseBody checks a body and gives its fields.
func parseBody(body []byte) (*object, error) {
	if err := checkBody(body); err != nil {
		return nil, err
	}
	var fault error
	o := &object{fault: &fault}
	o.parse(body)
	return o, fault
}

// parse takes the fields of raw, which is an object.
func (o *object) parse(raw []byte) {
	o.text = raw
	s := scanner{data: raw}
	s.space()
	s.pos++
	for s.more() {
		s.space()
		key := unquote(s.skip())
		s.space()
		s.pos++
		value := s.skip()
		if i := slices.IndexFunc(o.fields, func(f field) bool { return f.key == key }); i >= 0 {
			o.fields[i].raw = value
			continue
		}
		if len(o.fields) == maxFields {
			o.fail("", "it has more than %d fields", maxFields)
			return
		}
		o.fields = append(o.fields, field{key: key, raw: value})
	}
}

// maxFields is how many fields an object that is read field by field may have.
const maxFields = 1000

func (o *object) err() error { return *o.fault }

// at is the path of a field.
func (o *object) at(key string) string {
	switch {
	case o.path == "":
		return key
	case key == "":
		return o.path
	}
	return o.path + "." + key
}

// fail notes a fault of a field; key "" is the object itself.
func (o *object) fail(key, format string, args ...any) {
	o.failWith(diag.Invalid, key, format, args...)
}

func (o *object) failWith(code diag.Code, key, format string, args ...any) {
	if *o.fault == nil {
		path := o.at(key)
		what := path
		if what == "" {
			what = "the request"
		}
		*o.fault = diag.Errorf(code, "%s: "+format, append([]any{what}, args...)...).For(path)
	}
}

// get is the text of a field, nil when it is left out or null.
func (o *object) get(key string) []byte {
	for i := range o.fields {
		if f := &o.fields[i]; f.key == key {
			f.read = true
			if string(f.raw) == "null" {
				return nil
			}
			return f.raw
		}
	}
	return nil
}

func (o *object) has(key string) bool { return o.get(key) != nil }

// ignore marks fields as known.
func (o *object) ignore(keys ...string) {
	for _, k := range keys {
		o.get(k)
	}
}

// unknown are the fields that nobody has read.
func (o *object) unknown() []string {
	var out []string
	for _, f := range o.fields {
		if !f.read {
			out = append(out, f.key)
		}
	}
	return out
}

// shown is a value in an error, shortened.
func shown(raw []byte) string {
	if len(raw) > 40 {
		return string(bytes.ToValidUTF8(raw[:40], nil)) + "…"
	}
	return string(raw)
}

func (o *object) bool(key string, otherwise bool) bool {
	raw := o.get(key)
	switch string(raw) {
	case "":
		return otherwise
	case "true":
		return true
	case "false":
		return false
	}
	o.fail(key, "it is %s; it must be true or false", shown(raw))
	return otherwise
}

// int reads an integer from lo to hi.
func (o *object) int(key string, lo, hi, otherwise int64) int64 {
	raw := o.get(key)
	if raw == nil {
		return otherwise
	}
	n, ok := integer(raw)
	if !ok || n < lo || n > hi {
		o.fail(key, "it is %s; it must be an integer from %d to %d", shown(raw), lo, hi)
		return otherwise
	}
	return n
}

// float reads a number from lo to hi; nil when left out.
func (o *object) float(key string, lo, hi float64) *float64 {
	raw := o.get(key)
	if raw == nil {
		return nil
	}
	f, ok := number(raw)
	if !ok || f < lo || f > hi {
		o.fail(key, "it is %s; it must be a number from %s to %s", shown(raw), short(lo), short(hi))
		return nil
	}
	return &f
}

func short(f float64) string { return strconv.FormatFloat(f, 'g', -1, 32) }

func (o *object) string(key string) string {
	raw := o.get(key)
	if raw == nil {
		return ""
	}
	if raw[0] != '"' {
		o.fail(key, "it is %s; it must be a string", shown(raw))
		return ""
	}
	return unquote(raw)
}

// oneOf reads a string that must be one of the words.
func (o *object) oneOf(key string, words ...string) string {
	if !o.has(key) {
		return ""
	}
	s := o.string(key)
	if !slices.Contains(words, s) {
		o.fail(key, "it is %s; it must be one of %v", shown(o.get(key)), words)
		return ""
	}
	return s
}

// object reads a nested object; nil when left out.
func (o *object) object(key string) *object {
	raw := o.get(key)
	if raw == nil {
		return nil
	}
	if raw[0] != '{' {
		o.fail(key, "it is %s; it must be an object", shown(raw))
		return nil
	}
	return o.child(key, raw)
}

// child makes an object of raw, which is one.
func (o *object) child(key string, raw []byte) *object {
	c := &object{fault: o.fault, path: o.at(key)}
	c.parse(raw)
	return c
}

// list reads the texts of an array's items; nil when left out.
func (o *object) list(key string) [][]byte {
	raw := o.get(key)
	if raw == nil {
		return nil
	}
	if raw[0] != '[' {
		o.fail(key, "it is %s; it must be a list", shown(raw))
		return nil
	}
	items := [][]byte{}
	s := scanner{data: raw, pos: 1}
	for s.more() {
		if len(items) == maxItems {
			o.fail(key, "it has more than %d items", maxItems)
			return nil
		}
		items = append(items, s.skip())
	}
	return items
}

// objects reads an array of objects, each under the path key.i.
func (o *object) objects(key string) []*object {
	var out []*object
	for i, raw := range o.list(key) {
		if raw[0] != '{' {
			o.fail(key+"."+strconv.Itoa(i), "it is %s; it must be an object", shown(raw))
			return nil
		}
		out = append(out, o.child(key+"."+strconv.Itoa(i), raw))
	}
	return out
}

// ids reads an array of integers from 0 to below; nil when left out.
func (o *object) ids(key string, below int) []int32 {
	raw := o.get(key)
	if raw == nil {
		return nil
	}
	if raw[0] != '[' {
		o.fail(key, "it is %s; it must be a list of token ids", shown(raw))
		return nil
	}
	return o.parseIDs(key, raw, below)
}

func (o *object) parseIDs(key string, raw []byte, below int) []int32 {
	out := []int32{}
	s := scanner{data: raw, pos: 1}
	for s.more() {
		item := s.skip()
		id, ok := integer(item)
		if !ok || id < 0 || id >= int64(below) {
			o.fail(key, "item %d is %s; token ids are integers from 0 to %d", len(out), shown(item), below-1)
			return nil
		}
		out = append(out, int32(id))
	}
	return out
}
