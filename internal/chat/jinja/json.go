// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"
)

// filterJSON is the tojson of transformers: json.dumps(v, ensure_ascii=False, indent=None, separators=None,
// sort_keys=False).
func filterJSON(st *state, a []Value) {
	w := &jsonWriter{st: st, ascii: st.argBool(a[1], false), sort: st.argBool(a[4], false), item: ", ", key: ": "}
	if a[2].given() {
		w.indented, w.item = true, ","
		if a[2].isStr() {
			w.indent = a[2].str
		} else {
			n := argWidth(a[2], 0)
			st.alloc(n)
			w.indent = strings.Repeat(" ", n)
		}
	}
	if a[3].given() {
		pair := st.unpack(a[3], 2)
		if !pair[0].isStr() || !pair[1].isStr() {
			failType("separators must be two str")
		}
		w.item, w.key = pair[0].str, pair[1].str
	}
	w.value(a[0], 0)
}

// jsonWriter writes JSON to the output as Python's json does.
type jsonWriter struct {
	st          *state
	ascii, sort bool
	indented    bool
	indent      string
	item, key   string // separators
}

func (w *jsonWriter) value(v Value, depth int) {
	st := w.st
	nested(depth)
	st.spend(1)
	switch v.kind {
	case kStr, kMarkup:
		w.str(v.str)
	case kNone:
		st.write("null")
	case kBool:
		st.write(boolText(v))
	case kInt, kBigInt, kFloat:
		st.reserve(32)
		st.out = appendNumber(st.out, v)
	case kList, kTuple:
		items := v.items()
		if len(items) == 0 {
			st.write("[]")
			return
		}
		st.write("[")
		for i, item := range items {
			w.next(i, depth)
			w.value(item, depth+1)
		}
		w.newline(depth)
		st.write("]")
	case kDict:
		w.dict(v.dict(), depth)
	default:
		failType("Object of type %s is not JSON serializable", v.typeName())
	}
}

// next writes what comes before the i-th item.
func (w *jsonWriter) next(i, depth int) {
	if i > 0 {
		w.st.write(w.item)
	}
	w.newline(depth + 1)
}

func (w *jsonWriter) newline(depth int) {
	if !w.indented {
		return
	}
	w.st.write("\n")
	for range depth {
		w.st.write(w.indent)
	}
}

func (w *jsonWriter) dict(d *dict, depth int) {
	st := w.st
	if d.len() == 0 {
		st.write("{}")
		return
	}
	st.write("{")
	if w.sort {
		for i, pair := range st.sort(st.pairs(d), func(pair Value) Value { return pair.items()[0] }, false) {
			w.next(i, depth)
			w.name(pair.items()[0])
			w.value(pair.items()[1], depth+1)
		}
	} else {
		for i := range d.keys {
			w.next(i, depth)
			w.name(d.keys[i])
			w.value(d.vals[i], depth+1)
		}
	}
	w.newline(depth)
	st.write("}")
}

// name writes a key and what follows it.
func (w *jsonWriter) name(k Value) {
	switch k.kind {
	case kStr, kMarkup:
		w.str(k.str)
	case kNone:
		w.st.write(`"null"`)
	case kBool:
		w.st.write(`"` + boolText(k) + `"`)
	case kInt, kBigInt, kFloat:
		w.st.write(`"` + string(appendNumber(nil, k)) + `"`)
	default:
		failType("keys must be str, int, float, bool or None, not %s", k.typeName())
	}
	w.st.write(w.key)
}

func boolText(v Value) string {
	if v.num != 0 {
		return "true"
	}
	return "false"
}

// appendNumber writes a number; JSON has no infinity, Python has.
func appendNumber(b []byte, v Value) []byte {
	if v.kind == kFloat {
		switch f := v.float(); {
		case math.IsInf(f, 1):
			return append(b, "Infinity"...)
		case math.IsInf(f, -1):
			return append(b, "-Infinity"...)
		case f != f:
			return append(b, "NaN"...)
		}
	}
	return appendScalar(b, v)
}

func (w *jsonWriter) str(s string) {
	st := w.st
	st.scan(len(s))
	st.reserve(len(s) + 2)
	b := append(st.out, '"')
	clean := 0 // s[clean:i] needs no escape
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && (c < 0x7f || !w.ascii) {
			i++
			continue
		}
		b = append(b, s[clean:i]...)
		size := 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, `\n`...)
		case '\r':
			b = append(b, `\r`...)
		case '\t':
			b = append(b, `\t`...)
		case '\f':
			b = append(b, `\f`...)
		case '\b':
			b = append(b, `\b`...)
		default:
			var r rune
			r, size = utf8.DecodeRuneInString(s[i:])
			if r > 0xffff {
				r -= 0x10000
				b = appendHex(append(b, `\u`...), 0xd800+r>>10, 4)
				r = 0xdc00 + r&0x3ff
			}
			b = appendHex(append(b, `\u`...), r, 4)
		}
		i += size
		clean = i
	}
	st.out = append(append(b, s[clean:]...), '"')
	st.reserve(0)
}

// ParseJSON reads one JSON value as Python's json.loads does: objects keep the order of their keys (of a key that comes
// twice, the first place and the last value), integers have any size, 1.0 stays a float. It is strict where Python is
// not: NaN and Infinity, and anything nested more than MaxDepth deep, are refused. Errors are plain: they name the place.
func ParseJSON(data []byte) (v Value, err error) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(*Error)
			if !ok {
				panic(r)
			}
			v, err = Value{}, fmt.Errorf("JSON: %s", e.Msg)
		}
	}()
	p := &jsonReader{src: string(data)}
	if !utf8.ValidString(p.src) {
		p.fail("not UTF-8")
	}
	v = p.value(0)
	if p.space(); p.pos < len(p.src) {
		p.fail("more follows the value")
	}
	return v, nil
}

type jsonReader struct {
	src string
	pos int
}

func (p *jsonReader) fail(format string, args ...any) {
	failValue("%s at byte %d", fmt.Sprintf(format, args...), p.pos)
}

func (p *jsonReader) space() {
	for p.pos < len(p.src) {
		switch p.src[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

// peek gives the next byte that is no space, 0 at the end.
func (p *jsonReader) peek() byte {
	if p.space(); p.pos < len(p.src) {
		return p.src[p.pos]
	}
	return 0
}

func (p *jsonReader) value(depth int) Value {
	if depth > MaxDepth {
		p.fail("nested more than %d deep", MaxDepth)
	}
	switch c := p.peek(); {
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.array(depth)
	case c == '"':
		return String(p.str())
	case c == '-' || decimal(c):
		return p.number()
	case p.word("true"):
		return True
	case p.word("false"):
		return False
	case p.word("null"):
		return Null
	case c == 0 && p.pos >= len(p.src):
		p.fail("unexpected end")
	}
	p.fail("unexpected %s", strconv.QuoteToASCII(p.src[p.pos:p.pos+1]))
	return Value{}
}

func (p *jsonReader) word(w string) bool {
	if strings.HasPrefix(p.src[p.pos:], w) {
		p.pos += len(w)
		return true
	}
	return false
}

// after says whether another item follows; it skips the comma, or the end.
func (p *jsonReader) after(end byte) bool {
	switch p.peek() {
	case ',':
		p.pos++
		return true
	case end:
		p.pos++
		return false
	}
	p.fail("expected ',' or '%c'", end)
	return false
}

func (p *jsonReader) array(depth int) Value {
	p.pos++
	var items []Value
	if p.peek() == ']' {
		p.pos++
		return List()
	}
	for {
		items = append(items, p.value(depth+1))
		if !p.after(']') {
			return List(items...)
		}
	}
}

func (p *jsonReader) object(depth int) Value {
	p.pos++
	d := newDict(0)
	if p.peek() == '}' {
		p.pos++
		return d.value()
	}
	for {
		if p.peek() != '"' {
			p.fail("expected a key")
		}
		name := p.str()
		if p.peek() != ':' {
			p.fail("expected ':'")
		}
		p.pos++
		d.setName(name, p.value(depth+1))
		if !p.after('}') {
			return d.value()
		}
	}
}

func (p *jsonReader) number() Value {
	start := p.pos
	p.word("-")
	digits := func() {
		from := p.pos
		for p.pos < len(p.src) && decimal(p.src[p.pos]) {
			p.pos++
		}
		if p.pos == from {
			p.fail("expected a digit")
		}
	}
	if !p.word("0") {
		digits()
	}
	integer := true
	if p.word(".") {
		integer = false
		digits()
	}
	if p.word("e") || p.word("E") {
		integer = false
		if !p.word("-") {
			p.word("+")
		}
		digits()
	}
	text := p.src[start:p.pos]
	if !integer {
		f, _ := strconv.ParseFloat(text, 64) // out of range gives infinity, as in Python
		return Float(f)
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return Int(n)
	}
	if len(text) > MaxIntWidth {
		p.fail("integer of more than %d digits", MaxIntWidth)
	}
	n, _ := new(big.Int).SetString(text, 10)
	return bigInt(n)
}

// str reads a string. Halves of surrogate pairs become U+FFFD, since a str here is UTF-8.
func (p *jsonReader) str() string {
	p.pos++
	start := p.pos
	for ; ; p.pos++ {
		if p.pos >= len(p.src) {
			p.fail("unterminated string")
		}
		switch c := p.src[p.pos]; {
		case c == '"':
			p.pos++
			return p.src[start : p.pos-1]
		case c == '\\':
			return p.escaped(start)
		case c < ' ':
			p.fail("control character in a string")
		}
	}
}

// escaped reads the rest of a string that has a backslash at pos.
func (p *jsonReader) escaped(start int) string {
	b := append(make([]byte, 0, 2*(p.pos-start)+32), p.src[start:p.pos]...)
	for {
		if p.pos >= len(p.src) {
			p.fail("unterminated string")
		}
		c := p.src[p.pos]
		p.pos++
		switch {
		case c == '"':
			return string(b)
		case c < ' ':
			p.fail("control character in a string")
		case c != '\\':
			b = append(b, c)
			continue
		}
		if p.pos >= len(p.src) {
			p.fail("unterminated string")
		}
		c = p.src[p.pos]
		p.pos++
		if i := strings.IndexByte(`"\/bfnrt`, c); i >= 0 {
			b = append(b, "\"\\/\b\f\n\r\t"[i])
			continue
		}
		if c != 'u' {
			p.fail("invalid escape")
		}
		r := p.hex4()
		if r >= 0xd800 && r < 0xdc00 && strings.HasPrefix(p.src[p.pos:], `\u`) {
			back := p.pos
			p.pos += 2
			if low := p.hex4(); low >= 0xdc00 && low < 0xe000 {
				r = 0x10000 + (r-0xd800)<<10 + (low - 0xdc00)
			} else {
				p.pos = back
			}
		}
		b = utf8.AppendRune(b, r)
	}
}

func (p *jsonReader) hex4() rune {
	if p.pos+4 > len(p.src) {
		p.fail("truncated escape")
	}
	n, err := strconv.ParseUint(p.src[p.pos:p.pos+4], 16, 16)
	if err != nil {
		p.fail("invalid escape")
	}
	p.pos += 4
	return rune(n)
}
