// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import (
	"strings"
	"unicode/utf8"
)

// percent is Python's format % v for a str.
func (st *state) percent(format, v Value) Value {
	p := &percentFormat{st: st, format: format, single: v}
	switch {
	case v.kind == kTuple:
		p.args = v.items()
	case v.kind == kDict:
		p.mapping = v.dict()
		p.args = []Value{v}
	default:
		p.args = []Value{v}
	}
	start := len(st.out)
	p.run()
	if p.next < len(p.args) && !v.subscriptable() {
		failType("not all arguments converted during string formatting")
	}
	return Value{kind: format.kind, str: st.take(start)}
}

// subscriptable values may be left over after formatting: they could have been a mapping.
func (v Value) subscriptable() bool {
	switch v.kind {
	case kDict, kList, kRange, kUndefined:
		return true
	case kOther:
		_, ok := v.ref.(subscripted)
		return ok
	}
	return false
}

type percentFormat struct {
	st      *state
	format  Value
	single  Value
	args    []Value
	mapping *dict
	next    int
}

func (p *percentFormat) arg() Value {
	if p.next >= len(p.args) {
		failType("not enough arguments for format string")
	}
	p.next++
	return p.args[p.next-1]
}

func (p *percentFormat) run() {
	f := p.format.str
	for {
		i := strings.IndexByte(f, '%')
		if i < 0 {
			p.st.write(f)
			return
		}
		p.st.write(f[:i])
		f = p.conversion(f[i+1:])
	}
}

// conversion writes one conversion and gives what follows it.
func (p *percentFormat) conversion(f string) string {
	incomplete := func() {
		if f == "" {
			failValue("incomplete format")
		}
	}
	incomplete()
	s := spec{align: '>', sign: '-', precision: -1}
	keyed := f[0] == '('
	var val Value
	if keyed {
		if p.mapping == nil && p.single.subscriptable() {
			failType("%s indices must be integers or slices, not str", p.single.typeName())
		}
		if p.mapping == nil {
			failType("format requires a mapping")
		}
		depth, i := 1, 1
		for ; i < len(f) && depth > 0; i++ {
			switch f[i] {
			case '(':
				depth++
			case ')':
				depth--
			}
		}
		if depth > 0 {
			failValue("incomplete format key")
		}
		name := f[1 : i-1]
		at := p.mapping.find(name)
		if at < 0 {
			fail("KeyError", "%s", quote(name))
		}
		val, f = p.mapping.vals[at], f[i:]
		incomplete()
	}
	for ; f != "" && strings.IndexByte("#0- +", f[0]) >= 0; f = f[1:] {
		switch f[0] {
		case '#':
			s.alternate = true
		case '0':
			s.zero = true
		case '-':
			s.align = '<'
		case ' ':
			if s.sign != '+' {
				s.sign = ' '
			}
		case '+':
			s.sign = '+'
		}
	}
	s.width, f = p.size(f, 0)
	if s.width < 0 {
		s.width, s.align = -s.width, '<'
	}
	if strings.HasPrefix(f, ".") {
		s.precision, f = p.size(f[1:], 0)
		s.precision = max(s.precision, 0)
	}
	if f != "" && strings.IndexByte("hlL", f[0]) >= 0 {
		f = f[1:]
	}
	incomplete()
	r, size := utf8.DecodeRuneInString(f)
	if r == '%' {
		p.st.write("%")
		return f[1:]
	}
	if !keyed {
		val = p.arg()
	}
	if s.align == '<' {
		s.zero = false
	}
	p.convert(s, r, val)
	return f[size:]
}

// size reads a width or a precision; * takes it from the arguments.
func (p *percentFormat) size(f string, n int) (int, string) {
	if strings.HasPrefix(f, "*") {
		v := p.arg()
		k, ok := v.index()
		if !ok {
			failType("* wants int")
		}
		return int(min(max(k, -MaxHeap), MaxHeap)), f[1:]
	}
	for f != "" && decimal(f[0]) {
		n = min(n*10+int(f[0]-'0'), MaxHeap)
		f = f[1:]
	}
	return n, f
}

func (p *percentFormat) convert(s spec, conversion rune, v Value) {
	st := p.st
	escape := func(text string) string {
		if p.format.kind == kMarkup {
			return st.escape(String(text))
		}
		return text
	}
	switch conversion {
	case 's', 'r', 'a':
		var text string
		switch {
		case conversion == 's' && p.format.kind == kMarkup:
			text = st.escape(v)
		case conversion == 's':
			text = st.text(v)
		case conversion == 'r':
			text = escape(st.repr(v))
		default:
			text = escape(asciiOnly(st.repr(v)))
		}
		s.zero = false
		st.pad(s, "", st.cut(text, s.precision))
	case 'c':
		text := ""
		if n, ok := v.index(); ok && n >= 0 && n <= utf8.MaxRune {
			text = string(rune(n))
		} else if v.isStr() && utf8.RuneCountInString(v.str) == 1 {
			text = v.str
		} else {
			failType("%%c requires int or char")
		}
		s.zero = false
		st.pad(s, "", text)
	case 'd', 'i', 'u', 'x', 'X', 'o':
		if v.kind == kUndefined {
			v.failUndefined()
		}
		if !v.isNumber() || v.kind == kFloat && conversion != 'd' && conversion != 'i' && conversion != 'u' {
			want := "a real number is"
			if conversion == 'x' || conversion == 'X' || conversion == 'o' {
				want = "an integer is"
			}
			failType("%%%c format: %s required, not %s", conversion, want, v.typeName())
		}
		if conversion == 'i' || conversion == 'u' {
			conversion = 'd'
		}
		s.kind = byte(conversion)
		st.formatInt(s, truncate(v), true)
	case 'e', 'E', 'f', 'F', 'g', 'G':
		if v.kind == kUndefined {
			v.failUndefined()
		}
		if !v.isNumber() {
			failType("must be real number, not %s", v.typeName())
		}
		if s.precision < 0 {
			s.precision = 6
		}
		s.kind = byte(conversion)
		st.formatFloat(s, v.toFloat())
	default:
		failValue("unsupported format character %s (0x%x)", quote(string(conversion)), conversion)
	}
}

// cut limits text to n code points; all when n is negative.
func (st *state) cut(text string, n int) string {
	if n < 0 || n >= len(text) {
		return text
	}
	return text[:byteAt(text, n)]
}

// asciiOnly escapes what is not ASCII, as Python's ascii() does to a repr.
func asciiOnly(s string) string {
	var b []byte
	for _, r := range s {
		switch {
		case r < 0x80:
			b = append(b, byte(r))
		case r <= 0xff:
			b = appendHex(append(b, `\x`...), r, 2)
		case r <= 0xffff:
			b = appendHex(append(b, `\u`...), r, 4)
		default:
			b = appendHex(append(b, `\U`...), r, 8)
		}
	}
	return string(b)
}
