// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// formatText is str.format, with attributes and items looked up through the sandbox.
func (st *state) formatText(format Value, a arguments) Value {
	f := &textFormat{st: st, args: a, auto: -1, markup: format.kind == kMarkup}
	start := len(st.out)
	f.run(format.str, 2)
	return Value{kind: format.kind, str: st.take(start)}
}

type textFormat struct {
	st     *state
	args   arguments
	auto   int // the last field that was numbered by itself; -1 at first
	manual bool
	markup bool
}

// run writes text with its fields replaced; depth is how deep fields may be nested.
func (f *textFormat) run(text string, depth int) {
	if depth < 0 {
		failValue("Max string recursion exceeded")
	}
	for {
		i := strings.IndexAny(text, "{}")
		if i < 0 {
			f.st.write(text)
			return
		}
		f.st.write(text[:i])
		brace := text[i : i+1]
		text = text[i+1:]
		if strings.HasPrefix(text, brace) {
			f.st.write(brace)
			text = text[1:]
			continue
		}
		if brace == "}" {
			failValue("Single '}' encountered in format string")
		}
		level, end := 1, 0
		for ; end < len(text) && level > 0; end++ {
			switch text[end] {
			case '{':
				level++
			case '}':
				level--
			}
		}
		if level > 0 {
			if text == "" {
				failValue("Single '{' encountered in format string")
			}
			failValue("expected '}' before end of string")
		}
		f.field(text[:end-1], depth)
		text = text[end:]
	}
}

// field writes {name!conversion:spec}.
func (f *textFormat) field(field string, depth int) {
	name, conversion, specText := field, "", ""
	if i := strings.IndexAny(field, "!:["); i >= 0 {
		for i < len(field) && field[i] == '[' { // a subscript may hold ! and :
			end := strings.IndexByte(field[i:], ']')
			if end < 0 {
				failValue("expected '}' before end of string")
			}
			j := strings.IndexAny(field[i+end:], "!:[")
			if j < 0 {
				i = len(field)
			} else {
				i += end + j
			}
		}
		name = field[:i]
		if i < len(field) && field[i] == '!' {
			rest := field[i+1:]
			conversion, specText, _ = strings.Cut(rest, ":")
			if utf8.RuneCountInString(conversion) != 1 {
				failValue("expected ':' after conversion specifier")
			}
		} else if i < len(field) {
			specText = field[i+1:]
		}
	}
	v := f.lookUp(name)
	switch conversion {
	case "":
	case "s":
		v = String(f.st.text(v))
	case "r":
		v = String(f.st.repr(v))
	case "a":
		v = String(asciiOnly(f.st.repr(v)))
	default:
		failValue("Unknown conversion specifier %s", conversion)
	}
	if strings.ContainsAny(specText, "{}") {
		start := len(f.st.out)
		f.run(specText, depth-1)
		specText = f.st.take(start)
	}
	if f.markup {
		start := len(f.st.out)
		f.st.formatValue(v, specText)
		piece := Value{kind: kStr, str: f.st.take(start)}
		if v.kind == kMarkup {
			piece.kind = kMarkup
		}
		f.st.write(f.st.escape(piece))
		return
	}
	f.st.formatValue(v, specText)
}

// lookUp gives the value of a field's name, as 0.attr[item].
func (f *textFormat) lookUp(name string) Value {
	first, rest := name, ""
	if i := strings.IndexAny(name, ".["); i >= 0 {
		first, rest = name[:i], name[i:]
	}
	v := f.argument(first)
	for rest != "" {
		if rest[0] == '.' {
			rest = rest[1:]
			i := strings.IndexAny(rest+".", ".[")
			if i == 0 {
				failValue("Empty attribute in format string")
			}
			v, rest = f.st.attr(v, rest[:i]), rest[i:]
			continue
		}
		if rest[0] != '[' {
			failValue("Only '.' or '[' may follow ']' in format field specifier")
		}
		i := strings.IndexByte(rest, ']')
		if i < 0 {
			failValue("Missing ']' in format string")
		}
		if i == 1 {
			failValue("Empty attribute in format string")
		}
		key := String(rest[1:i])
		if n, err := strconv.ParseInt(key.str, 10, 64); err == nil && decimal(key.str[0]) {
			key = Int(n)
		}
		v, rest = f.st.item(v, key), rest[i+1:]
	}
	return v
}

// argument gives the argument of that name or number; without a name, the next one.
func (f *textFormat) argument(name string) Value {
	n, err := strconv.Atoi(name)
	switch {
	case name == "":
		if f.manual {
			failValue("cannot switch from manual field specification to automatic field numbering")
		}
		f.auto++
		n = f.auto
	case err == nil && decimal(name[0]):
		if f.auto >= 0 {
			failValue("cannot switch from manual field specification to automatic field numbering")
		}
		f.manual = true
	default:
		for _, k := range f.args.kw {
			if k.name == name {
				return k.val
			}
		}
		fail("KeyError", "%s", quote(name))
	}
	if n >= len(f.args.pos) {
		fail("IndexError", "Replacement index %d out of range for positional args tuple", n)
	}
	return f.args.pos[n]
}

// formatValue writes Python's format(v, text).
func (st *state) formatValue(v Value, text string) {
	if text == "" {
		st.appendText(v)
		return
	}
	unknown := func(s spec) {
		failValue("Unknown format code '%c' for object of type %s", s.kind, quote(v.typeName()))
	}
	switch {
	case v.isStr():
		s := parseSpec(text, v.typeName())
		switch {
		case s.kind != 0 && s.kind != 's':
			unknown(s)
		case s.sign != '-':
			failValue("Sign not allowed in string format specifier")
		case s.alternate:
			failValue("Alternate form (#) not allowed in string format specifier")
		case s.align == '=':
			failValue("'=' alignment not allowed in string format specifier")
		case s.group != 0:
			failValue("Cannot specify '%c' with 's'.", s.group)
		}
		if s.zero {
			s.fill, s.zero = "0", false
		}
		if s.align == 0 {
			s.align = '<'
		}
		st.pad(s, "", st.cut(v.str, s.precision))
	case v.isInt():
		s := parseSpec(text, v.typeName())
		switch s.kind {
		case 'b', 'c', 'd', 'o', 'x', 'X', 'n', 0:
			if s.precision >= 0 {
				failValue("Precision not allowed in integer format specifier")
			}
			if s.kind == 'c' {
				n, _ := v.index()
				if n < 0 || n > utf8.MaxRune {
					fail("OverflowError", "%%c arg not in range(0x110000)")
				}
				if s.align == 0 {
					s.align = '<'
				}
				st.pad(s, "", string(rune(n)))
				return
			}
			st.formatInt(s, v.big(), false)
		case 'e', 'E', 'f', 'F', 'g', 'G', '%':
			st.formatFloat(s, v.toFloat())
		default:
			unknown(s)
		}
	case v.kind == kFloat:
		s := parseSpec(text, v.typeName())
		switch s.kind {
		case 'e', 'E', 'f', 'F', 'g', 'G', '%', 'n', 0:
			st.formatFloat(s, v.float())
		default:
			unknown(s)
		}
	default:
		failType("unsupported format string passed to %s.__format__", v.typeName())
	}
}
