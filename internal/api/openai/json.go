// SPDX-License-Identifier: MIT OR Apache-2.0

package openai

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/metrale/metrale/internal/diag"
)

// maxDepth is how deep arrays and objects may nest.
const maxDepth = 200

// A scanner walks over JSON text. check validates the text once; all other methods trust it.
type scanner struct {
	data []byte
	pos  int
}

// checkBody refuses what is not one JSON object in UTF-8.
func checkBody(body []byte) error {
	if i := invalidUTF8(body); i >= 0 {
		return diag.Errorf(diag.Invalid, "the request body is not JSON: it is not valid UTF-8 at byte %d", i)
	}
	s := scanner{data: body}
	s.space()
	if s.pos == len(body) {
		return diag.Errorf(diag.Invalid, "the request body is empty; it must be a JSON object")
	}
	object := body[s.pos] == '{'
	if what := s.check(0); what != "" {
		return diag.Errorf(diag.Invalid, "the request body is not JSON: %s at byte %d", what, s.pos)
	}
	s.space()
	switch {
	case s.pos < len(body):
		return diag.Errorf(diag.Invalid, "the request body is not JSON: text after its end at byte %d", s.pos)
	case !object:
		return diag.Errorf(diag.Invalid, "the request body must be a JSON object")
	}
	return nil
}

// invalidUTF8 is where the first broken character is, or -1.
func invalidUTF8(b []byte) int {
	if utf8.Valid(b) {
		return -1
	}
	for i := 0; ; {
		r, n := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
}

func (s *scanner) space() {
	for s.pos < len(s.data) && (s.data[s.pos] == ' ' || s.data[s.pos] == '\n' || s.data[s.pos] == '\r' || s.data[s.pos] == '\t') {
		s.pos++
	}
}

// peek is the next byte after space, 0 at the end.
func (s *scanner) peek() byte {
	s.space()
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

// check validates one value and says what is wrong at pos, or "".
func (s *scanner) check(depth int) string {
	if depth > maxDepth {
		return "more than " + strconv.Itoa(maxDepth) + " levels nested too deep"
	}
	switch c := s.peek(); {
	case c == '{':
		return s.checkList('}', func() string {
			if s.peek() != '"' {
				return "a field name is missing"
			}
			if what := s.checkString(); what != "" {
				return what
			}
			if s.peek() != ':' {
				return "a colon is missing"
			}
			s.pos++
			return s.check(depth + 1)
		})
	case c == '[':
		return s.checkList(']', func() string { return s.check(depth + 1) })
	case c == '"':
		return s.checkString()
	case c == '-' || c >= '0' && c <= '9':
		return s.checkNumber()
	case c == 0 && s.pos == len(s.data):
		return "unexpected end"
	}
	for _, word := range []string{"null", "true", "false"} {
		if bytes.HasPrefix(s.data[s.pos:], []byte(word)) {
			s.pos += len(word)
			return ""
		}
	}
	return "unexpected character " + strconv.QuoteRune(s.rune())
}

func (s *scanner) rune() rune { r, _ := utf8.DecodeRune(s.data[s.pos:]); return r }

// checkList validates items between the bracket at pos and its closing one.
func (s *scanner) checkList(end byte, item func() string) string {
	s.pos++
	if s.peek() == end {
		s.pos++
		return ""
	}
	for {
		if what := item(); what != "" {
			return what
		}
		switch s.peek() {
		case ',':
			s.pos++
		case end:
			s.pos++
			return ""
		default:
			if s.pos == len(s.data) {
				return "unexpected end"
			}
			return "a comma or " + string(rune(end)) + " is missing"
		}
	}
}

func (s *scanner) checkString() string {
	s.pos++
	for {
		rest := s.data[s.pos:]
		n := 0
		for n < len(rest) && rest[n] >= 0x20 && rest[n] != '"' && rest[n] != '\\' {
			n++
		}
		s.pos += n
		switch {
		case n == len(rest):
			return "unexpected end"
		case rest[n] == '"':
			s.pos++
			return ""
		case rest[n] < 0x20:
			return "a control character in a string"
		}
		if what := s.checkEscape(); what != "" {
			return what
		}
	}
}

// checkEscape validates what follows the backslash at pos.
func (s *scanner) checkEscape() string {
	s.pos++
	if s.pos == len(s.data) {
		return "unexpected end"
	}
	switch s.data[s.pos] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.pos++
		return ""
	case 'u':
		if _, ok := hex4(s.data[s.pos+1:]); ok {
			s.pos += 5
			return ""
		}
		return "a bad \\u escape"
	}
	return "a bad escape in a string"
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

func (s *scanner) checkNumber() string {
	at := func() byte {
		if s.pos < len(s.data) {
			return s.data[s.pos]
		}
		return 0
	}
	digits := func() bool {
		begin := s.pos
		for c := at(); c >= '0' && c <= '9'; c = at() {
			s.pos++
		}
		return s.pos > begin
	}
	if at() == '-' {
		s.pos++
	}
	zero := at() == '0'
	begin := s.pos
	if !digits() || zero && s.pos > begin+1 {
		return "a bad number"
	}
	if at() == '.' {
		s.pos++
		if !digits() {
			return "a bad number"
		}
	}
	if c := at(); c == 'e' || c == 'E' {
		s.pos++
		if c := at(); c == '+' || c == '-' {
			s.pos++
		}
		if !digits() {
			return "a bad number"
		}
	}
	return ""
}

// skip passes over a value and gives its text.
func (s *scanner) skip() []byte {
	s.space()
	begin := s.pos
	switch s.data[s.pos] {
	case '{', '[':
		for depth := 0; ; {
			switch s.data[s.pos] {
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					s.pos++
					return s.data[begin:s.pos]
				}
			case '"':
				s.skipString()
				continue
			}
			s.pos++
		}
	case '"':
		s.skipString()
	default:
		for s.pos < len(s.data) && bytes.IndexByte([]byte(",]} \n\r\t"), s.data[s.pos]) < 0 {
			s.pos++
		}
	}
	return s.data[begin:s.pos]
}

func (s *scanner) skipString() {
	at := s.pos + 1
	for s.data[at] != '"' {
		if s.data[at] == '\\' {
			at++
		}
		at++
	}
	s.pos = at + 1
}

// more goes to the next item of a list whose bracket or last item was just passed, and says whether there is one.
func (s *scanner) more() bool {
	switch s.peek() {
	case ',':
		s.pos++
		return true
	case ']', '}':
		s.pos++
		return false
	}
	return true // the first item
}

// unquote decodes a string's text.
func unquote(raw []byte) string {
	raw = raw[1 : len(raw)-1]
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw)
	}
	out := make([]byte, 0, len(raw))
	for len(raw) > 0 {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return string(append(out, raw...))
		}
		out = append(out, raw[:i]...)
		c := raw[i+1]
		raw = raw[i+2:]
		if j := bytes.IndexByte([]byte("bfnrt"), c); j >= 0 {
			c = "\b\f\n\r\t"[j]
		}
		if c != 'u' {
			out = append(out, c)
			continue
		}
		r, _ := hex4(raw)
		raw = raw[4:]
		if utf16.IsSurrogate(r) {
			low, ok := rune(0), false
			if len(raw) >= 6 && raw[0] == '\\' && raw[1] == 'u' {
				low, ok = hex4(raw[2:])
			}
			if r = utf16.DecodeRune(r, low); ok && r != utf8.RuneError {
				raw = raw[6:]
			}
		}
		out = utf8.AppendRune(out, r)
	}
	return string(out)
}

// integer reads a number without fraction, as 5, 5.0 or 5e0.
func integer(raw []byte) (int64, bool) {
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return n, true
	}
	f, ok := number(raw)
	if !ok || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}

// number reads a finite number.
func number(raw []byte) (float64, bool) {
	if c := raw[0]; c != '-' && (c < '0' || c > '9') {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	return f, err == nil
}
