// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import (
	"math"
	"math/big"
)

// Value is a Python value as templates see it. The zero Value is absent: an argument or a variable that was never given.
//
//	kind          num              str    ref
//	bool          0 or 1
//	int           two's complement
//	bigInt                                *big.Int, outside int64
//	float         IEEE bits
//	str, markup                    text
//	list, tuple                           *seq
//	dict                                  *dict
//	range                                 *span
//	undefined     why            name     see undefName…
//	other                                 object: functions, macros, namespaces, loops, views, generators
type Value struct {
	kind kind
	num  uint64
	str  string
	ref  any
}

const valueSize = 48

type kind uint8

const (
	kAbsent kind = iota
	kUndefined
	kNone
	kBool
	kInt
	kBigInt
	kFloat
	kStr
	kMarkup // a str that is marked as safe HTML
	kList
	kTuple
	kDict
	kRange
	kOther
)

// seq is the content of a list or a tuple. names makes it a named tuple.
type seq struct {
	items []Value
	names []string
}

// Why a value is undefined (num of an undefined value); its message is the text of the UndefinedError.
const (
	undefName   = iota // no variable called str
	undefHint          // str is the message
	undefAttr          // the value that ref and num>>8 describe has no attribute str
	undefItem          // ref is a *missingItem
	undefUnsafe        // as undefAttr, but the sandbox hides it: SecurityError
)

// missingItem is a subscript that found nothing and is not a str.
type missingItem struct{ obj, key Value }

// object is a value of kind other.
type object interface {
	typeName() string
}

// Null is Python's None.
var Null = Value{kind: kNone}

// True and False are Python's.
var (
	True  = Value{kind: kBool, num: 1}
	False = Value{kind: kBool}
)

// Bool gives True or False.
func Bool(b bool) Value {
	if b {
		return True
	}
	return False
}

// Int gives an integer.
func Int(n int64) Value { return Value{kind: kInt, num: uint64(n)} }

// Float gives a float.
func Float(f float64) Value { return Value{kind: kFloat, num: math.Float64bits(f)} }

// String gives a str. The text must be valid UTF-8.
func String(s string) Value { return Value{kind: kStr, str: s} }

func markup(s string) Value { return Value{kind: kMarkup, str: s} }

// List gives a list that owns items.
func List(items ...Value) Value { return Value{kind: kList, ref: &seq{items: items}} }

func tuple(items ...Value) Value { return Value{kind: kTuple, ref: &seq{items: items}} }

func other(o object) Value { return Value{kind: kOther, ref: o} }

// bigInt gives an integer of any size, in its smallest form.
func bigInt(b *big.Int) Value {
	if b.IsInt64() {
		return Int(b.Int64())
	}
	if b.BitLen() > MaxIntBits {
		fail(limitError, "integer of more than %d bits", MaxIntBits)
	}
	return Value{kind: kBigInt, ref: b}
}

// undefinedHint is an undefined value with a fixed message.
func undefinedHint(hint string) Value { return Value{kind: kUndefined, num: undefHint, str: hint} }

// undefinedName is an unknown variable.
func undefinedName(name string) Value { return Value{kind: kUndefined, num: undefName, str: name} }

// undefinedAttr is a missing attribute, or a missing item under a str key.
func undefinedAttr(obj Value, name string) Value {
	return Value{kind: kUndefined, num: undefAttr | uint64(obj.kind)<<8, str: name, ref: obj.ref}
}

// undefinedKey is the missing item of obj under any key.
func undefinedKey(obj, key Value) Value {
	if key.isStr() {
		return undefinedAttr(obj, key.str)
	}
	return Value{kind: kUndefined, num: undefItem, ref: &missingItem{obj, key}}
}

// undefinedUnsafe is an attribute that the sandbox hides.
func undefinedUnsafe(obj Value, name string) Value {
	return Value{kind: kUndefined, num: undefUnsafe | uint64(obj.kind)<<8, str: name, ref: obj.ref}
}

// failUndefined reports the use of an undefined value.
func (v Value) failUndefined() {
	obj := Value{kind: kind(v.num >> 8), ref: v.ref}
	switch v.num & 0xff {
	case undefName:
		fail("UndefinedError", "%s is undefined", quote(v.str))
	case undefAttr:
		fail("UndefinedError", "%s has no attribute %s", quote(obj.describe()), quote(v.str))
	case undefItem:
		m := v.ref.(*missingItem)
		fail("UndefinedError", "%s has no element %s", m.obj.describe(), reprText(m.key))
	case undefUnsafe:
		fail("SecurityError", "access to attribute %s of %s object is unsafe.", quote(v.str), quote(obj.typeName()))
	}
	fail("UndefinedError", "%s", v.str)
}

func (v Value) isStr() bool    { return v.kind == kStr || v.kind == kMarkup }
func (v Value) isNumber() bool { return v.kind >= kBool && v.kind <= kFloat }
func (v Value) isInt() bool    { return v.kind >= kBool && v.kind <= kBigInt } // in Python a bool is an int
func (v Value) int() int64     { return int64(v.num) }
func (v Value) float() float64 { return math.Float64frombits(v.num) }
func (v Value) seq() *seq      { return v.ref.(*seq) }
func (v Value) items() []Value { return v.ref.(*seq).items }
func (v Value) dict() *dict    { return v.ref.(*dict) }

// typeName is Python's type(v).__name__.
func (v Value) typeName() string {
	switch v.kind {
	case kUndefined:
		return "Undefined"
	case kNone:
		return "NoneType"
	case kBool:
		return "bool"
	case kInt, kBigInt:
		return "int"
	case kFloat:
		return "float"
	case kStr:
		return "str"
	case kMarkup:
		return "Markup"
	case kList:
		return "list"
	case kTuple:
		if v.seq().names != nil {
			return "_GroupTuple"
		}
		return "tuple"
	case kDict:
		return "dict"
	case kRange:
		return "range"
	case kOther:
		return v.ref.(object).typeName()
	}
	return "absent"
}

// describe names v in the messages of undefined values.
func (v Value) describe() string {
	if v.kind == kNone {
		return "None"
	}
	switch name := v.typeName(); name {
	case "Markup":
		return "markupsafe.Markup object"
	case "Namespace", "Cycler", "Joiner":
		return "jinja2.utils." + name + " object"
	case "Macro", "LoopContext", "Undefined", "TemplateReference", "BlockReference":
		return "jinja2.runtime." + name + " object"
	default:
		return name + " object"
	}
}

// truth is Python's bool(v).
func (st *state) truth(v Value) bool {
	switch v.kind {
	case kBool, kInt:
		return v.num != 0
	case kFloat:
		return v.float() != 0
	case kBigInt:
		return true
	case kStr, kMarkup:
		return v.str != ""
	case kList, kTuple:
		return len(v.items()) > 0
	case kDict:
		return v.dict().len() > 0
	case kRange:
		return v.ref.(*span).len() > 0
	case kOther:
		if s, ok := v.ref.(sized); ok {
			return s.size(st) > 0
		}
		return true
	}
	return false
}
