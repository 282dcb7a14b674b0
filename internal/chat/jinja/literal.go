// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import (
	"strings"
	"unicode/utf8"
)

// quoted reads a string literal, if it is closed.
func (l *lexer) quoted(q byte) bool {
	start := l.pos
	for end := start + 1; end < len(l.src); end++ {
		switch l.src[end] {
		case '\\':
			end++
		case q:
			l.pos = end + 1
			line := l.lineAt(start)
			l.emit(tokString, start, unescape(l.src[start+1:end], line))
			return true
		}
	}
	return false
}

// unescape resolves backslashes as Python's unicode-escape codec does.
func unescape(s string, line int) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); {
		if s[i] != '\\' {
			b = append(b, s[i])
			i++
			continue
		}
		c := s[i+1] // a literal never ends in a lone backslash
		i += 2
		switch c {
		case '\n':
		case '\\', '\'', '"':
			b = append(b, c)
		case 'a':
			b = append(b, '\a')
		case 'b':
			b = append(b, '\b')
		case 'f':
			b = append(b, '\f')
		case 'n':
			b = append(b, '\n')
		case 'r':
			b = append(b, '\r')
		case 't':
			b = append(b, '\t')
		case 'v':
			b = append(b, '\v')
		case '0', '1', '2', '3', '4', '5', '6', '7':
			r := rune(c - '0')
			for n := 1; n < 3 && i < len(s) && s[i] >= '0' && s[i] <= '7'; n++ {
				r = r*8 + rune(s[i]-'0')
				i++
			}
			b = utf8.AppendRune(b, r)
		case 'x':
			b, i = appendEscape(b, s, i, 2, `truncated \xXX escape`, line)
		case 'u':
			b, i = appendEscape(b, s, i, 4, `truncated \uXXXX escape`, line)
		case 'U':
			b, i = appendEscape(b, s, i, 8, `truncated \UXXXXXXXX escape`, line)
		case 'N':
			failSyntax(line, `\N{…} escapes are not supported`)
		default:
			b, i = appendUnknownEscape(b, s, i-1)
		}
	}
	return string(b)
}

// appendEscape reads a code point in so many hexadecimal digits.
func appendEscape(b []byte, s string, i, digits int, truncated string, line int) ([]byte, int) {
	var r uint32
	for n := range digits {
		if i+n >= len(s) {
			failSyntax(line, "%s", truncated)
		}
		c := s[i+n]
		switch {
		case decimal(c):
			r = r<<4 | uint32(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | uint32(c|0x20-'a'+10)
		default:
			failSyntax(line, "%s", truncated)
		}
	}
	switch {
	case r > utf8.MaxRune:
		failSyntax(line, "illegal Unicode character")
	case r >= 0xd800 && r <= 0xdfff:
		failSyntax(line, "surrogates not allowed")
	}
	return utf8.AppendRune(b, rune(r)), i + digits
}

// appendUnknownEscape keeps the backslash. jinja2 turns other than ASCII into escapes before it resolves them, so that a
// backslash before é leaves \xe9.
func appendUnknownEscape(b []byte, s string, i int) ([]byte, int) {
	r, size := utf8.DecodeRuneInString(s[i:])
	b = append(b, '\\')
	switch {
	case r < 0x80:
		b = append(b, byte(r))
	case r <= 0xff:
		b = appendHex(append(b, 'x'), r, 2)
	case r <= 0xffff:
		b = appendHex(append(b, 'u'), r, 4)
	default:
		b = appendHex(append(b, 'U'), r, 8)
	}
	return b, i + size
}
