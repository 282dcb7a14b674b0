// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// spec is a format specification: [[fill]align][sign][z][#][0][width][grouping][.precision][kind].
type spec struct {
	fill      string // "" is a blank
	align     byte   // < > = ^, 0 for the default
	sign      byte   // - + or blank
	alternate bool
	zero      bool
	width     int
	group     byte // , or _, 0 for none
	precision int  // -1 for none
	kind      byte // 0 for none
}

// parseSpec reads a specification of str.format for a value of type typeName.
func parseSpec(text, typeName string) (s spec) {
	s = spec{sign: '-', precision: -1}
	full := text
	if r, size := utf8.DecodeRuneInString(text); size > 0 && size < len(text) && strings.IndexByte("<>=^", text[size]) >= 0 {
		s.fill, s.align, text = string(r), text[size], text[size+1:]
	} else if text != "" && strings.IndexByte("<>=^", text[0]) >= 0 {
		s.align, text = text[0], text[1:]
	}
	next := func(set string) byte {
		if text != "" && strings.IndexByte(set, text[0]) >= 0 {
			c := text[0]
			text = text[1:]
			return c
		}
		return 0
	}
	number := func() (n int, ok bool) {
		for text != "" && decimal(text[0]) {
			n, ok = min(n*10+int(text[0]-'0'), MaxHeap), true
			text = text[1:]
		}
		return n, ok
	}
	if c := next("+- "); c != 0 {
		s.sign = c
	}
	next("z")
	s.alternate = next("#") != 0
	if next("0") != 0 && s.align == 0 {
		s.zero = true
	}
	s.width, _ = number()
	s.group = next(",_")
	if next(".") != 0 {
		n, ok := number()
		if !ok {
			failValue("Format specifier missing precision")
		}
		s.precision = n
	}
	if text != "" {
		if len(text) > 1 {
			failValue("Invalid format specifier %s for object of type %s", quote(full), quote(typeName))
		}
		s.kind = text[0]
	}
	return s
}

// pad writes text, with its sign or prefix in front, in a field.
func (st *state) pad(s spec, prefix, text string) {
	room := s.width - st.runeLen(prefix) - st.runeLen(text)
	if room <= 0 {
		st.write(prefix)
		st.write(text)
		return
	}
	fill := s.fill
	if fill == "" {
		fill = " "
	}
	align := s.align
	if s.zero {
		fill, align = "0", '='
	}
	before, inside, after := 0, 0, 0
	switch align {
	case '<':
		after = room
	case '^':
		before = room / 2
		after = room - before
	case '=':
		inside = room
	default:
		before = room
	}
	st.reserve(room * len(fill))
	repeat := func(n int) {
		for range n {
			st.out = append(st.out, fill...)
		}
	}
	repeat(before)
	st.write(prefix)
	repeat(inside)
	st.write(text)
	repeat(after)
}

// signOf is what stands in front of a number.
func (s spec) signOf(negative bool) string {
	switch {
	case negative:
		return "-"
	case s.sign != '-':
		return string(s.sign)
	}
	return ""
}

// truncate is int(v) of a number.
func truncate(v Value) *big.Int {
	if v.kind != kFloat {
		return v.big()
	}
	f := v.float()
	if math.IsInf(f, 0) {
		fail("OverflowError", "cannot convert float infinity to integer")
	}
	if f != f {
		failValue("cannot convert float NaN to integer")
	}
	n, _ := big.NewFloat(f).Int(nil)
	return n
}

// formatInt writes n in the base of s.kind; printf says that a precision is the least number of digits.
func (st *state) formatInt(s spec, n *big.Int, printf bool) {
	base, prefix := 10, ""
	switch s.kind {
	case 'x', 'X':
		base, prefix = 16, "0"+string(s.kind)
	case 'o':
		base, prefix = 8, "0o"
	case 'b':
		base, prefix = 2, "0b"
	}
	text := ""
	if base == 10 {
		text = strings.TrimPrefix(bigText(n), "-")
	} else {
		text = new(big.Int).Abs(n).Text(base)
	}
	if s.kind == 'X' {
		text = strings.ToUpper(text)
	}
	if missing := s.precision - len(text); printf && missing > 0 {
		st.reserve(missing)
		st.alloc(missing)
		text = strings.Repeat("0", missing) + text
	}
	sign := s.signOf(n.Sign() < 0)
	if s.alternate {
		sign += prefix
	}
	st.pad(s, sign, s.grouped(st, text, sign, base))
}

// grouped puts separators between the digits before the point; zeros that fill the field are grouped, too.
func (s spec) grouped(st *state, text, sign string, base int) string {
	if s.group == 0 {
		return text
	}
	every := 3
	if base != 10 {
		every = 4
	}
	whole, rest := text, ""
	if i := strings.IndexAny(text, ".eE%"); i >= 0 && base == 10 {
		whole, rest = text[:i], text[i:]
	}
	if s.zero {
		room := s.width - len(sign) - len(rest)
		for len(whole)+(len(whole)-1)/every < room {
			st.alloc(16)
			whole = "0" + whole
		}
	}
	var b []byte
	for i := range len(whole) {
		if i > 0 && (len(whole)-i)%every == 0 {
			b = append(b, s.group)
		}
		b = append(b, whole[i])
	}
	return string(b) + rest
}

// formatFloat writes f in the style of s.kind: e f g and %, or 0 for the shortest form.
func (st *state) formatFloat(s spec, f float64) {
	kind := s.kind | 0x20
	percent := s.kind == '%'
	if percent {
		kind, f = 'f', f*100
	}
	precision := s.precision
	st.reserve(max(precision, 0) + 400)
	st.alloc(max(precision, 0) + 400)
	abs := math.Abs(f)
	var text string
	switch {
	case math.IsInf(f, 0):
		text = "inf"
	case f != f:
		text, abs, f = "nan", 0, 0
	case s.kind == 0 && precision < 0:
		text = string(appendFloat(nil, abs))
	case s.kind == 0:
		text = general(abs, precision, s.alternate, true)
	case kind == 'g' || kind == 'n':
		if precision < 0 {
			precision = 6
		}
		text = general(abs, precision, s.alternate, false)
	default:
		if precision < 0 {
			precision = 6
		}
		text = strconv.FormatFloat(abs, kind, precision, 64)
		if s.alternate && precision == 0 {
			i := strings.IndexByte(text+"e", 'e')
			text = text[:i] + "." + text[i:]
		}
	}
	if percent {
		text += "%"
	}
	if s.kind == 'E' || s.kind == 'F' || s.kind == 'G' {
		text = strings.ToUpper(text)
	}
	sign := s.signOf(math.Signbit(f))
	st.pad(s, sign, s.grouped(st, text, sign, 10))
}

// general is the g style: digits significant digits, without trailing zeros unless keepZeros. point asks for at least one
// digit after the point, and moves to an exponent one digit earlier, as the empty style does.
func general(f float64, digits int, keepZeros, point bool) string {
	digits = max(digits, 1)
	text := strconv.FormatFloat(f, 'e', digits-1, 64)
	at := strings.IndexByte(text, 'e')
	exponent, _ := strconv.Atoi(text[at+1:])
	limit := digits
	if point {
		limit--
	}
	if f != 0 && (exponent < -4 || exponent >= max(limit, 1) && exponent >= limit) {
		mantissa := text[:at]
		if !keepZeros {
			mantissa = trimZeros(mantissa)
		} else if !strings.Contains(mantissa, ".") {
			mantissa += "."
		}
		return mantissa + text[at:]
	}
	text = strconv.FormatFloat(f, 'f', max(digits-1-exponent, 0), 64)
	if keepZeros {
		if !strings.Contains(text, ".") {
			text += "."
		}
	} else {
		text = trimZeros(text)
	}
	if point && !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

func trimZeros(s string) string {
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}
