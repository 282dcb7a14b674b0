// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// text is Python's str(v).
func (st *state) text(v Value) string {
	switch v.kind {
	case kStr, kMarkup:
		return v.str
	case kUndefined:
		return ""
	}
	start := len(st.out)
	st.appendText(v)
	return st.take(start)
}

// appendText writes Python's str(v) to the output.
func (st *state) appendText(v Value) {
	switch v.kind {
	case kStr, kMarkup:
		st.write(v.str)
	case kUndefined:
	case kInt:
		st.reserve(20)
		st.out = strconv.AppendInt(st.out, v.int(), 10)
	case kList, kTuple, kDict, kOther:
		st.appendRepr(v, 0)
	default:
		st.reserve(32)
		st.out = appendScalar(st.out, v)
	}
}

// appendScalar writes a value without parts as both str() and repr() do.
func appendScalar(b []byte, v Value) []byte {
	switch v.kind {
	case kUndefined:
		return append(b, "Undefined"...)
	case kNone:
		return append(b, "None"...)
	case kBool:
		if v.num != 0 {
			return append(b, "True"...)
		}
		return append(b, "False"...)
	case kInt:
		return strconv.AppendInt(b, v.int(), 10)
	case kBigInt:
		return append(b, bigText(v.big())...)
	case kFloat:
		return appendFloat(b, v.float())
	case kRange:
		s := v.ref.(*span)
		b = strconv.AppendInt(append(b, "range("...), s.start, 10)
		b = strconv.AppendInt(append(b, ", "...), s.stop, 10)
		if s.step != 1 {
			b = strconv.AppendInt(append(b, ", "...), s.step, 10)
		}
		return append(b, ')')
	}
	return b
}

// bigText is the decimal form of a large integer, within Python's limit on digits.
func bigText(n *big.Int) string {
	if float64(n.BitLen())*math.Log10(2) > MaxIntWidth {
		failValue("Exceeds the limit (%d digits) for integer string conversion; use sys.set_int_max_str_digits() to increase the limit", MaxIntWidth)
	}
	return n.String()
}

// appendFloat is Python's repr(f): the shortest digits that read back as f.
func appendFloat(b []byte, f float64) []byte {
	switch {
	case math.IsInf(f, 1):
		return append(b, "inf"...)
	case math.IsInf(f, -1):
		return append(b, "-inf"...)
	case f != f:
		return append(b, "nan"...)
	}
	if m := math.Abs(f); m != 0 && (m < 1e-4 || m >= 1e16) {
		return strconv.AppendFloat(b, f, 'e', -1, 64)
	}
	start := len(b)
	b = strconv.AppendFloat(b, f, 'f', -1, 64)
	for _, c := range b[start:] {
		if c == '.' {
			return b
		}
	}
	return append(b, ".0"...)
}

// appendRepr writes Python's repr(v) to the output.
func (st *state) appendRepr(v Value, depth int) {
	nested(depth)
	st.spend(1)
	switch v.kind {
	case kStr:
		st.scan(4 * len(v.str))
		st.reserve(len(v.str) + 2)
		st.out = appendQuoted(st.out, v.str)
		st.reserve(0)
	case kMarkup:
		st.write("Markup(")
		st.appendRepr(String(v.str), depth)
		st.write(")")
	case kList:
		st.write("[")
		st.appendReprs(v.items(), depth)
		st.write("]")
	case kTuple:
		items := v.items()
		st.write("(")
		st.appendReprs(items, depth)
		if len(items) == 1 {
			st.write(",")
		}
		st.write(")")
	case kDict:
		d := v.dict()
		st.write("{")
		for i := range d.keys {
			if i > 0 {
				st.write(", ")
			}
			st.appendRepr(d.keys[i], depth+1)
			st.write(": ")
			st.appendRepr(d.vals[i], depth+1)
		}
		st.write("}")
	case kOther:
		if p, ok := v.ref.(printed); ok {
			p.print(st, depth)
			return
		}
		st.write("<" + v.typeName() + " object>")
	default:
		st.reserve(32)
		st.out = appendScalar(st.out, v)
	}
}

func (st *state) appendReprs(items []Value, depth int) {
	for i, item := range items {
		if i > 0 {
			st.write(", ")
		}
		st.appendRepr(item, depth+1)
	}
}

// repr is Python's repr(v).
func (st *state) repr(v Value) string {
	start := len(st.out)
	st.appendRepr(v, 0)
	return st.take(start)
}

// reprText is repr(v) for a message; a value too large for one is cut.
func reprText(v Value) (text string) {
	st := &state{steps: 10_000, heap: 1 << 16}
	defer func() {
		if _, cut := recover().(*Error); cut {
			text = string(st.out[:min(len(st.out), 200)]) + "…"
		}
	}()
	st.appendRepr(v, 0)
	return string(st.out)
}

// quote is Python's repr of a str.
func quote(s string) string { return string(appendQuoted(nil, s)) }

func appendQuoted(b []byte, s string) []byte {
	q := byte('\'')
	if strings.IndexByte(s, '\'') >= 0 && strings.IndexByte(s, '"') < 0 {
		q = '"'
	}
	b = append(b, q)
	for _, r := range s {
		switch {
		case r == '\\' || r == rune(q):
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r < ' ' || r == 0x7f:
			b = appendHex(append(b, `\x`...), r, 2)
		case r < 0x7f || unicode.IsPrint(r):
			b = utf8.AppendRune(b, r)
		case r <= 0xff:
			b = appendHex(append(b, `\x`...), r, 2)
		case r <= 0xffff:
			b = appendHex(append(b, `\u`...), r, 4)
		default:
			b = appendHex(append(b, `\U`...), r, 8)
		}
	}
	return append(b, q)
}

// appendHex writes r in so many lower-case hexadecimal digits.
func appendHex(b []byte, r rune, digits int) []byte {
	for shift := 4 * (digits - 1); shift >= 0; shift -= 4 {
		b = append(b, "0123456789abcdef"[r>>shift&15])
	}
	return b
}
