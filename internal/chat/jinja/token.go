// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

// token is the kind of a lexeme; those of operators also name operations.
type token uint8

const (
	tokEOF token = iota
	tokData
	tokBlockBegin
	tokBlockEnd
	tokVariableBegin
	tokVariableEnd
	tokName
	tokString
	tokInteger
	tokFloat
	tokAdd
	tokSub
	tokMul
	tokDiv
	tokFloorDiv
	tokMod
	tokPow
	tokTilde
	tokLBracket
	tokRBracket
	tokLParen
	tokRParen
	tokLBrace
	tokRBrace
	tokEq
	tokNe
	tokGt
	tokGe
	tokLt
	tokLe
	tokAssign
	tokDot
	tokColon
	tokPipe
	tokComma
	tokSemicolon
	tokIn    // in, as an operation only
	tokNotIn // not in, as an operation only
)

// tokenNames are what messages call the tokens.
var tokenNames = [...]string{
	"end of template", "template data / text", "begin of statement block", "end of statement block",
	"begin of print statement", "end of print statement", "name", "string", "integer", "float",
	"+", "-", "*", "/", "//", "%", "**", "~", "[", "]", "(", ")", "{", "}",
	"==", "!=", ">", ">=", "<", "<=", "=", ".", ":", "|", ",", ";", "in", "not in",
}

func (t token) String() string { return tokenNames[t] }

// operators, two characters before one.
var operators = func() (m map[string]token) {
	m = map[string]token{}
	for t := tokAdd; t <= tokSemicolon; t++ {
		m[tokenNames[t]] = t
	}
	return m
}()

// lexeme is one token of the source.
type lexeme struct {
	token token
	line  int
	text  string // name, data, or the value of a string
	value Value  // of an integer or a float
	err   *Error // what stopped the lexer here: it counts only when the parser gets so far, as in jinja2
}

// describe is what messages call the lexeme: names speak for themselves.
func (l lexeme) describe() string {
	if l.token == tokName {
		return l.text
	}
	return l.token.String()
}

func (l lexeme) is(name string) bool { return l.token == tokName && l.text == name }
