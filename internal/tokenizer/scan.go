// SPDX-License-Identifier: MIT OR Apache-2.0

package tokenizer

import (
	"bytes"
	"strconv"
	"unicode/utf8"

	"github.com/metrale/metrale/internal/diag"
)

// scanner walks a JSON text once and hands out keys, strings and numbers without building a tree: a tokenizer.json is up
// to 35 MB, nearly all of it vocabulary and merges. It accepts what serde_json accepts.
type scanner struct {
	file string
	data []byte
	pos  int
	buf  []byte // the last string that had escapes
}

const maxDepth = 128

// errorAt is a Format error at a byte offset.
func (s *scanner) errorAt(pos int, format string, args ...any) *diag.Error {
	pos = min(pos, len(s.data))
	before := s.data[:pos]
	line := 1 + bytes.Count(before, []byte{'\n'})
	col := pos - bytes.LastIndexByte(before, '\n')
	return diag.Errorf(diag.Format, format, args...).At(diag.Pos{File: s.file, Line: line, Col: col})
}

// peek is the next byte that is not white space; 0 at the end.
func (s *scanner) peek() byte {
	for s.pos < len(s.data) {
		switch b := s.data[s.pos]; b {
		case ' ', '\n', '\r', '\t':
			s.pos++
		default:
			return b
		}
	}
	return 0
}

func (s *scanner) expect(b byte, what string) error {
	if s.peek() != b {
		return s.errorAt(s.pos, "expected %s", what)
	}
	s.pos++
	return nil
}

// object calls field with each key; field must consume the value. The key is valid until the next string is read.
func (s *scanner) object(what string, field func(key []byte) error) error {
	if err := s.expect('{', what); err != nil {
		return err
	}
	if s.peek() == '}' {
		s.pos++
		return nil
	}
	for {
		s.peek()
		key, err := s.str("a key")
		if err != nil {
			return err
		}
		if err := s.expect(':', `":"`); err != nil {
			return err
		}
		if err := field(key); err != nil {
			return err
		}
		if more, err := s.more('}'); err != nil || !more {
			return err
		}
	}
}

// array calls item at each item; item must consume it.
func (s *scanner) array(what string, item func() error) error {
	if err := s.expect('[', what); err != nil {
		return err
	}
	if s.peek() == ']' {
		s.pos++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		if more, err := s.more(']'); err != nil || !more {
			return err
		}
	}
}

// more consumes the comma before another item, or the closing bracket.
func (s *scanner) more(end byte) (bool, error) {
	switch s.peek() {
	case ',':
		s.pos++
		return true, nil
	case end:
		s.pos++
		return false, nil
	}
	return false, s.errorAt(s.pos, `expected "," or "%c"`, end)
}

// str reads a string. The bytes are valid until the next call.
func (s *scanner) str(what string) ([]byte, error) {
	if err := s.expect('"', what); err != nil {
		return nil, err
	}
	start := s.pos
	for i := start; i < len(s.data); i++ {
		switch b := s.data[i]; {
		case b == '"':
			s.pos = i + 1
			return s.data[start:i], nil
		case b == '\\':
			return s.escaped(start, i)
		case b < 0x20:
			return nil, s.errorAt(i, "control character in a string")
		}
	}
	return nil, s.errorAt(start, "string without end")
}

// escaped reads the rest of a string whose first escape is at i.
func (s *scanner) escaped(start, i int) ([]byte, error) {
	s.buf = append(s.buf[:0], s.data[start:i]...)
	for i < len(s.data) {
		b := s.data[i]
		switch {
		case b == '"':
			s.pos = i + 1
			return s.buf, nil
		case b < 0x20:
			return nil, s.errorAt(i, "control character in a string")
		case b != '\\':
			s.buf = append(s.buf, b)
			i++
			continue
		}
		if i+1 >= len(s.data) {
			break
		}
		switch e := s.data[i+1]; e {
		case '"', '\\', '/':
			s.buf = append(s.buf, e)
		case 'b':
			s.buf = append(s.buf, '\b')
		case 'f':
			s.buf = append(s.buf, '\f')
		case 'n':
			s.buf = append(s.buf, '\n')
		case 'r':
			s.buf = append(s.buf, '\r')
		case 't':
			s.buf = append(s.buf, '\t')
		case 'u':
			r, n := s.unicodeEscape(i)
			if n == 0 {
				return nil, s.errorAt(i, `bad \u escape`)
			}
			s.buf = utf8.AppendRune(s.buf, r)
			i += n
			continue
		default:
			return nil, s.errorAt(i, `unknown escape "\%c"`, e)
		}
		i += 2
	}
	return nil, s.errorAt(start, "string without end")
}

// unicodeEscape reads \uXXXX at i, or two of them that make a surrogate pair: the code point and the length, 0 if bad.
func (s *scanner) unicodeEscape(i int) (rune, int) {
	hex := func(i int) rune {
		if i+6 > len(s.data) || s.data[i] != '\\' || s.data[i+1] != 'u' {
			return -1
		}
		v, err := strconv.ParseUint(string(s.data[i+2:i+6]), 16, 32)
		if err != nil {
			return -1
		}
		return rune(v)
	}
	switch r := hex(i); {
	case r < 0 || 0xdc00 <= r && r < 0xe000:
		return 0, 0
	case 0xd800 <= r && r < 0xdc00:
		low := hex(i + 6)
		if low < 0xdc00 || low >= 0xe000 {
			return 0, 0
		}
		return (r-0xd800)<<10 + (low - 0xdc00) + 0x10000, 12
	default:
		return r, 6
	}
}

// integer reads a whole number from 0 to max.
func (s *scanner) integer(what string, max int) (int, error) {
	s.peek()
	n, i := 0, s.pos
	for ; i < len(s.data) && '0' <= s.data[i] && s.data[i] <= '9' && n <= max; i++ {
		n = n*10 + int(s.data[i]-'0')
	}
	if i == s.pos || n > max || i < len(s.data) && bytes.IndexByte([]byte(".eE"), s.data[i]) >= 0 {
		return 0, s.errorAt(s.pos, "expected %s, a whole number from 0 to %d", what, max)
	}
	s.pos = i
	return n, nil
}

// raw skips a value and gives its text, whose inside is not checked beyond brackets and strings.
func (s *scanner) raw() ([]byte, error) {
	s.peek()
	start, depth := s.pos, 0
	for {
		switch b := s.peek(); b {
		case '{', '[':
			if depth++; depth > maxDepth {
				return nil, s.errorAt(s.pos, "nested deeper than %d", maxDepth)
			}
			s.pos++
		case '}', ']':
			depth--
			s.pos++
		case '"':
			if _, err := s.str("a string"); err != nil {
				return nil, err
			}
		case ',', ':':
			if depth == 0 {
				return nil, s.errorAt(s.pos, "expected a value")
			}
			s.pos++
			continue
		case 0:
			return nil, s.errorAt(s.pos, "expected a value")
		default:
			for s.pos < len(s.data) && bytes.IndexByte([]byte(" \n\r\t,:]}[{\""), s.data[s.pos]) < 0 {
				s.pos++
			}
		}
		if depth < 0 {
			return nil, s.errorAt(s.pos-1, "expected a value")
		}
		if depth == 0 {
			return s.data[start:s.pos], nil
		}
	}
}

// end checks that nothing follows.
func (s *scanner) end() error {
	if s.peek(); s.pos < len(s.data) {
		return s.errorAt(s.pos, "text after the end")
	}
	return nil
}
