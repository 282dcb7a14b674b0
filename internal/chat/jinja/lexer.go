// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import (
	"math/big"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// lexer cuts a source into lexemes, with trim_blocks and lstrip_blocks on:
//
//	{%-  {{-  {#-   strip all white space before the tag      -%}  -}}  -#}   and after it
//	{%   {#         strip blanks between the start of the line and the tag, unless + follows
//	%}   #}         drop one newline after the tag, unless + precedes
type lexer struct {
	src       string
	pos       int
	line      int // of counted
	counted   int // position up to which newlines are counted
	lineStart bool
	braces    []byte // closing brackets that are awaited
	out       []lexeme
}

// tokenize gives the lexemes of a source. The last one is tokEOF, or carries an error.
func tokenize(src string) (out []lexeme) {
	src = strings.ReplaceAll(strings.ReplaceAll(src, "\r\n", "\n"), "\r", "\n")
	l := &lexer{src: strings.TrimSuffix(src, "\n"), line: 1, lineStart: true}
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(*Error)
			if !ok {
				panic(r)
			}
			out = append(l.out, lexeme{token: tokEOF, line: e.Line, err: e})
		}
	}()
	for l.pos < len(l.src) {
		l.root()
	}
	end := lexeme{token: tokEOF, line: 1}
	if n := len(l.out); n > 0 {
		end.line = l.out[n-1].line
	}
	return append(l.out, end)
}

// lineAt is the line of a position; positions must not go back.
func (l *lexer) lineAt(pos int) int {
	l.line += strings.Count(l.src[l.counted:pos], "\n")
	l.counted = pos
	return l.line
}

func (l *lexer) emit(t token, pos int, text string) {
	l.out = append(l.out, lexeme{token: t, line: l.lineAt(pos), text: text})
}

func (l *lexer) emitData(pos int, text string) {
	if text != "" {
		l.emit(tokData, pos, text)
	}
}

// root reads text up to the next tag, and the tag.
func (l *lexer) root() {
	start, open := l.pos, l.nextTag(l.pos)
	if open < 0 {
		l.emitData(start, l.src[start:])
		l.pos = len(l.src)
		return
	}
	text, tag := l.src[start:open], l.src[open+1]
	sign := byte(0)
	l.pos = open + 2
	if c := l.peek(); c == '-' || c == '+' {
		sign = c
		l.pos++
	}
	switch {
	case sign == '-':
		text = trimRight(text)
	case sign != '+' && tag != '{':
		if i := strings.LastIndexByte(text, '\n') + 1; i > 0 || l.lineStart {
			if trimLeft(text[i:]) == "" {
				text = text[:i]
			}
		}
	}
	l.emitData(start, text)
	l.lineStart = false
	switch {
	case tag == '#':
		l.comment()
	case tag == '{':
		l.emit(tokVariableBegin, open, "")
		l.tag(tokVariableEnd)
	case l.rawTag():
		l.raw()
	default:
		l.emit(tokBlockBegin, open, "")
		l.tag(tokBlockEnd)
	}
	l.lineStart = l.pos > 0 && l.src[l.pos-1] == '\n'
}

// nextTag finds {%, {{ or {# at or after pos.
func (l *lexer) nextTag(pos int) int {
	for {
		i := strings.IndexByte(l.src[pos:], '{')
		if i < 0 || pos+i+1 >= len(l.src) {
			return -1
		}
		pos += i
		if c := l.src[pos+1]; c == '%' || c == '{' || c == '#' {
			return pos
		}
		pos++
	}
}

func (l *lexer) peek() byte {
	if l.pos < len(l.src) {
		return l.src[l.pos]
	}
	return 0
}

func (l *lexer) skipSpace() {
	l.pos = len(l.src) - len(trimLeft(l.src[l.pos:]))
}

func (l *lexer) accept(s string) bool {
	if strings.HasPrefix(l.src[l.pos:], s) {
		l.pos += len(s)
		return true
	}
	return false
}

// end accepts the end of a tag ("%}", "}}" or "#}") with its sign and the white space that it strips.
func (l *lexer) end(tag string) bool {
	switch {
	case l.accept("-" + tag):
		l.skipSpace()
		return true
	case tag != "}}" && l.accept("+"+tag):
		return true
	case l.accept(tag):
		if tag != "}}" && l.peek() == '\n' {
			l.pos++
		}
		return true
	}
	return false
}

// comment skips to the end of a comment whose start is read.
func (l *lexer) comment() {
	i := strings.Index(l.src[l.pos:], "#}")
	if l.pos == len(l.src) {
		return // jinja2 does not mind
	}
	if i < 0 {
		failSyntax(l.lineAt(l.pos), "Missing end of comment tag")
	}
	if i > 0 && (l.src[l.pos+i-1] == '-' || l.src[l.pos+i-1] == '+') {
		i--
	}
	l.pos += i
	l.end("#}")
}

// rawTag accepts the rest of {% raw %} after {%.
func (l *lexer) rawTag() bool {
	start := l.pos
	l.skipSpace()
	if l.accept("raw") {
		l.skipSpace()
		if l.accept("-%}") {
			l.skipSpace()
			return true
		}
		if l.accept("%}") {
			return true
		}
	}
	l.pos = start
	return false
}

// raw reads text up to {% endraw %}.
func (l *lexer) raw() {
	start := l.pos
	l.lineStart = l.src[start-1] == '\n'
	if start == len(l.src) {
		return // jinja2 does not mind
	}
	for at := start; ; at++ {
		i := strings.Index(l.src[at:], "{%")
		if i < 0 {
			failSyntax(l.lineAt(start), "Missing end of raw directive")
		}
		at += i
		l.pos = at + 2
		sign := l.peek()
		if sign == '-' || sign == '+' {
			l.pos++
		}
		l.skipSpace()
		if !l.accept("endraw") {
			continue
		}
		l.skipSpace()
		if !l.end("%}") {
			continue
		}
		text := l.src[start:at]
		switch sign {
		case '-':
			text = trimRight(text)
		case '+':
		default:
			if i := strings.LastIndexByte(text, '\n') + 1; (i > 0 || l.lineStart) && trimLeft(text[i:]) == "" {
				text = text[:i]
			}
		}
		l.emitData(start, text)
		return
	}
}

// tag reads the tokens of a tag up to and including its end.
func (l *lexer) tag(end token) {
	mark := "%}"
	if end == tokVariableEnd {
		mark = "}}"
	}
	l.braces = l.braces[:0]
	for l.pos < len(l.src) {
		pos := l.pos
		if len(l.braces) == 0 && l.end(mark) {
			l.emit(end, pos, "")
			return
		}
		l.token()
	}
}

// token reads one token within a tag.
func (l *lexer) token() {
	pos := l.pos
	r, size := utf8.DecodeRuneInString(l.src[pos:])
	switch {
	case isSpace(r):
		l.skipSpace()
	case r >= '0' && r <= '9':
		l.number()
	case isWord(r) || wordMark(r):
		l.pos += size
		for {
			r, size := utf8.DecodeRuneInString(l.src[l.pos:])
			if !isWord(r) && !wordMark(r) {
				break
			}
			l.pos += size
		}
		name := l.src[pos:l.pos]
		if !isIdentifier(name) {
			failSyntax(l.lineAt(pos), "Invalid character in identifier")
		}
		l.emit(tokName, pos, name)
	case (r == '"' || r == '\'') && l.quoted(byte(r)):
	default:
		l.operator(r)
	}
}

// wordMark are code points that a name may have beside \w.
func wordMark(r rune) bool {
	return r >= 0x80 && unicode.In(r, unicode.Mn, unicode.Mc, unicode.Pc, unicode.Other_ID_Continue, unicode.Other_ID_Start)
}

func (l *lexer) operator(r rune) {
	pos := l.pos
	for n := 2; n > 0; n-- {
		if pos+n > len(l.src) {
			continue
		}
		t, ok := operators[l.src[pos:pos+n]]
		if !ok {
			continue
		}
		l.pos += n
		l.balance(t, pos)
		l.emit(t, pos, "")
		return
	}
	failSyntax(l.lineAt(pos), "unexpected char %s at %d", quote(string(r)), utf8.RuneCountInString(l.src[:pos]))
}

// balance follows brackets: the end of a tag counts only outside of them.
func (l *lexer) balance(t token, pos int) {
	switch t {
	case tokLBrace:
		l.braces = append(l.braces, '}')
	case tokLParen:
		l.braces = append(l.braces, ')')
	case tokLBracket:
		l.braces = append(l.braces, ']')
	case tokRBrace, tokRParen, tokRBracket:
		if len(l.braces) == 0 {
			failSyntax(l.lineAt(pos), "unexpected '%s'", t)
		}
		want := l.braces[len(l.braces)-1]
		l.braces = l.braces[:len(l.braces)-1]
		if t.String()[0] != want {
			failSyntax(l.lineAt(pos), "unexpected '%s', expected '%c'", t, want)
		}
	}
}

// digits skips digits of a base, with single underscores between them; at least one must follow pos.
func (l *lexer) digits(pos int, underscoreFirst bool, is func(c byte) bool) int {
	for first := true; pos < len(l.src); first = false {
		next := pos
		if l.src[next] == '_' && (!first || underscoreFirst) {
			next++
		}
		if next >= len(l.src) || !is(l.src[next]) {
			break
		}
		pos = next + 1
	}
	return pos
}

func decimal(c byte) bool { return c >= '0' && c <= '9' }

// number reads an integer or a float.
func (l *lexer) number() {
	start := l.pos
	if l.float() {
		return
	}
	end := start + 1
	switch {
	case l.src[start] != '0':
		end = l.digits(start, false, decimal)
	case end < len(l.src) && strings.IndexByte("bBoOxX", l.src[end]) >= 0:
		is := map[byte]func(byte) bool{
			'b': func(c byte) bool { return c == '0' || c == '1' },
			'o': func(c byte) bool { return c >= '0' && c <= '7' },
			'x': func(c byte) bool { return decimal(c) || c|0x20 >= 'a' && c|0x20 <= 'f' },
		}[l.src[end]|0x20]
		if after := l.digits(end+1, true, is); after > end+1 {
			end = after
		}
	default:
		end = l.digits(start, false, func(c byte) bool { return c == '0' })
	}
	l.pos = end
	text := strings.ReplaceAll(l.src[start:end], "_", "")
	if len(text) > MaxIntWidth {
		failSyntax(l.lineAt(start), "integer literal of more than %d digits", MaxIntWidth)
	}
	n, _ := new(big.Int).SetString(text, 0)
	if text[0] == '0' && n == nil { // 000
		n = new(big.Int)
	}
	l.emit(tokInteger, start, "")
	l.out[len(l.out)-1].value = bigInt(n)
}

// float reads a float, if there is one.
func (l *lexer) float() bool {
	start := l.pos
	if start > 0 && l.src[start-1] == '.' {
		return false
	}
	end := l.digits(start, false, decimal)
	fraction, exponent := false, false
	if end < len(l.src) && l.src[end] == '.' {
		if after := l.digits(end+1, false, decimal); after > end+1 {
			end, fraction = after, true
		}
	}
	if end < len(l.src) && l.src[end]|0x20 == 'e' {
		at := end + 1
		if at < len(l.src) && (l.src[at] == '+' || l.src[at] == '-') {
			at++
		}
		if after := l.digits(at, false, decimal); after > at {
			end, exponent = after, true
		}
	}
	if !fraction && !exponent {
		return false
	}
	l.pos = end
	f, _ := strconv.ParseFloat(strings.ReplaceAll(l.src[start:end], "_", ""), 64) // out of range gives infinity, as in Python
	l.emit(tokFloat, start, "")
	l.out[len(l.out)-1].value = Float(f)
	return true
}
