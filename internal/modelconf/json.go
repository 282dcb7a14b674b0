// SPDX-License-Identifier: MIT OR Apache-2.0

package modelconf

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/metrale/metrale/internal/diag"
)

// maxDepth bounds nesting; the deepest config seen has seven levels.
const maxDepth = 100

// ParseJSON reads one JSON document. Errors are of code Format and stand at file:line:col (columns count bytes).
func ParseJSON(file string, data []byte) (*Node, error) {
	p := &parser{file: file, data: data, line: 1}
	n, err := p.value(0)
	if err != nil {
		return nil, err
	}
	p.space()
	if p.at < len(p.data) {
		return nil, p.errorf("text after the end of the document")
	}
	return n, nil
}

// parser is a recursive descent over data; line and bol (the offset where the line begins) give positions.
type parser struct {
	file string
	data []byte
	at   int
	line int
	bol  int
}

func (p *parser) pos() diag.Pos { return diag.Pos{File: p.file, Line: p.line, Col: p.at - p.bol + 1} }

func (p *parser) errorf(format string, args ...any) error {
	return diag.Errorf(diag.Format, format, args...).At(p.pos())
}

// peek is the next byte, 0 at the end. A NUL in the text is refused wherever it stands, so the two need not differ.
func (p *parser) peek() byte {
	if p.at < len(p.data) {
		return p.data[p.at]
	}
	return 0
}

func (p *parser) space() {
	for p.at < len(p.data) {
		switch p.data[p.at] {
		case '\n':
			p.line, p.bol = p.line+1, p.at+1
		case ' ', '\t', '\r':
		default:
			return
		}
		p.at++
	}
}

func (p *parser) value(depth int) (*Node, error) {
	p.space()
	if depth > maxDepth {
		return nil, p.errorf("nested deeper than %d levels", maxDepth)
	}
	pos := p.pos()
	switch c := p.peek(); {
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.array(depth)
	case c == '"':
		s, err := p.str()
		return &Node{kind: String, pos: pos, text: s}, err
	case c == '-' || c >= '0' && c <= '9':
		return p.number(pos)
	case p.at >= len(p.data):
		return nil, p.errorf("the document ends where a value is expected")
	}
	for _, w := range [...]struct {
		text string
		kind Kind
	}{{"null", Null}, {"true", Bool}, {"false", Bool}, {"NaN", Float}, {"Infinity", Float}} {
		if bytes.HasPrefix(p.data[p.at:], []byte(w.text)) {
			p.at += len(w.text)
			return &Node{kind: w.kind, pos: pos, text: w.text}, nil
		}
	}
	return nil, p.errorf("unexpected character %q", rune(p.peek()))
}

func (p *parser) object(depth int) (*Node, error) {
	n := newObject(p.pos())
	p.at++
	p.space()
	if p.peek() == '}' {
		p.at++
		return n, nil
	}
	for {
		p.space()
		pos := p.pos()
		if p.peek() != '"' {
			return nil, p.errorf("expected a key in quotes")
		}
		key, err := p.str()
		if err != nil {
			return nil, err
		}
		if first, dup := n.Child(key); dup {
			return nil, diag.Errorf(diag.Format, "duplicate key %q", key).At(pos).For(key).Note(first.pos, "first given here")
		}
		p.space()
		if p.peek() != ':' {
			return nil, p.errorf("expected ':' after the key %q", key)
		}
		p.at++
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		n.add(key, v)
		p.space()
		switch p.peek() {
		case ',':
			p.at++
		case '}':
			p.at++
			return n, nil
		default:
			return nil, p.errorf("expected ',' or '}' after the value of %q", key)
		}
	}
}

func (p *parser) array(depth int) (*Node, error) {
	n := &Node{kind: Array, pos: p.pos()}
	p.at++
	p.space()
	if p.peek() == ']' {
		p.at++
		return n, nil
	}
	for {
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		n.push(v)
		p.space()
		switch p.peek() {
		case ',':
			p.at++
		case ']':
			p.at++
			return n, nil
		default:
			return nil, p.errorf("expected ',' or ']' in a list")
		}
	}
}

// number reads -? int frac? exp?, or -Infinity.
func (p *parser) number(pos diag.Pos) (*Node, error) {
	start, kind := p.at, Int
	if p.peek() == '-' {
		p.at++
		if bytes.HasPrefix(p.data[p.at:], []byte("Infinity")) {
			p.at += len("Infinity")
			return &Node{kind: Float, pos: pos, text: "-Infinity"}, nil
		}
	}
	digits := func() bool {
		from := p.at
		for c := p.peek(); c >= '0' && c <= '9'; c = p.peek() {
			p.at++
		}
		return p.at > from
	}
	if p.peek() == '0' {
		p.at++
	} else if !digits() {
		return nil, p.errorf("expected a digit")
	}
	if p.peek() == '.' {
		p.at++
		kind = Float
		if !digits() {
			return nil, p.errorf("expected a digit after the decimal point")
		}
	}
	if c := p.peek(); c == 'e' || c == 'E' {
		p.at++
		kind = Float
		if c := p.peek(); c == '+' || c == '-' {
			p.at++
		}
		if !digits() {
			return nil, p.errorf("expected a digit in the exponent")
		}
	}
	if c := p.peek(); c >= '0' && c <= '9' {
		return nil, p.errorf("a number must not start with 0")
	}
	return &Node{kind: kind, pos: pos, text: string(p.data[start:p.at])}, nil
}

// str reads a string literal; p.at is at its opening quote.
func (p *parser) str() (string, error) {
	open := p.at
	p.at++
	start := p.at
	for p.at < len(p.data) && p.data[p.at] != '"' && p.data[p.at] != '\\' && p.data[p.at] >= ' ' && p.data[p.at] < utf8.RuneSelf {
		p.at++
	}
	if p.peek() == '"' { // the common case: no escapes
		s := string(p.data[start:p.at])
		p.at++
		return s, nil
	}
	var b strings.Builder
	b.Write(p.data[start:p.at])
	for p.at < len(p.data) {
		switch c := p.data[p.at]; {
		case c == '"':
			p.at++
			return b.String(), nil
		case c < ' ':
			return "", p.errorf("a raw control character (0x%02x) in a string", c)
		case c == '\\':
			r, err := p.escape()
			if err != nil {
				return "", err
			}
			b.WriteRune(r)
		default:
			r, n := utf8.DecodeRune(p.data[p.at:])
			if r == utf8.RuneError && n <= 1 {
				return "", p.errorf("a string is no valid UTF-8")
			}
			p.at += n
			b.WriteRune(r)
		}
	}
	p.at = open
	return "", p.errorf("a string has no closing quote")
}

var escapes = map[byte]rune{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

func (p *parser) escape() (rune, error) {
	if p.at+1 >= len(p.data) {
		return 0, p.errorf("a string has no closing quote")
	}
	if r, ok := escapes[p.data[p.at+1]]; ok {
		p.at += 2
		return r, nil
	}
	r, ok := p.hex4()
	if !ok {
		return 0, p.errorf("bad escape in a string")
	}
	if !utf16.IsSurrogate(r) {
		p.at += 6
		return r, nil
	}
	at := p.at
	p.at += 6
	low, ok := p.hex4()
	if full := utf16.DecodeRune(r, low); ok && full != utf8.RuneError {
		p.at += 6
		return full, nil
	}
	p.at = at
	return 0, p.errorf("a lone surrogate in a string")
}

// hex4 reads \uXXXX at p.at without moving.
func (p *parser) hex4() (rune, bool) {
	if p.at+6 > len(p.data) || p.data[p.at] != '\\' || p.data[p.at+1] != 'u' {
		return 0, false
	}
	v, err := strconv.ParseUint(string(p.data[p.at+2:p.at+6]), 16, 32)
	return rune(v), err == nil
}
