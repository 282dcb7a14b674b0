// SPDX-License-Identifier: MIT OR Apache-2.0

package text

import (
	"unicode/utf8"

	"github.com/metrale/metrale/internal/seq"
)

// Decoder turns tokens into text as they come: whole characters only. tokenizer.Decoder is one.
type Decoder interface {
	Push(id int32) string
	Flush() string // what is left at the end
}

// Options say what a text is made of and where it ends.
type Options struct {
	Decoder     Decoder
	Stop        *Stops // nil: none
	IncludeStop bool   // the stop string is part of the text
	MinTokens   int    // stop strings that begin in the text of the first so many tokens do not count
}

// Token is a token of the text.
type Token struct {
	seq.Token
	Offset int // characters of the text before it
}

// Piece is a part of the text with the tokens that it completes.
type Piece struct {
	Text   string
	Tokens []Token // valid until the next call
}

// Stream makes one text. The zero value is not valid.
type Stream struct {
	o       Options
	matcher *matcher // nil: no stop strings
	pushed  int      // tokens

	// The text so far, by position in bytes:
	//
	//	0 ......... released ......... decoded
	//	  has left            is held
	held     []byte // [released, decoded)
	decoded  int
	chars    int     // characters decoded
	waiting  []entry // tokens that have not left
	out      []Token // of the last piece
	stopped  bool
	stopWord int // that ended the text
}

// entry is a token whose text is [begin, end); both are equal while its character is not whole.
type entry struct {
	Token
	begin, end int
}

// New starts a text.
func New(o Options) *Stream {
	s := &Stream{o: o}
	if o.Stop != nil {
		s.matcher = &matcher{o.Stop, make([]int32, len(o.Stop.words))}
	}
	return s
}

// Prompt adds a token of the prompt, in which no stop string is looked for.
func (s *Stream) Prompt(t seq.Token) Piece {
	text := s.o.Decoder.Push(t.ID)
	s.take(t, text)
	return s.release(text, s.decoded, false)
}

// Push adds a generated token. When stopped is true the text has ended, and nothing must be pushed any more.
func (s *Stream) Push(t seq.Token) (p Piece, stopped bool) {
	text := s.o.Decoder.Push(t.ID)
	s.pushed++
	s.take(t, text)
	if cut, ok := s.scan(text); ok {
		return s.cut(cut), true
	}
	held := 0
	if s.matcher != nil {
		held = s.matcher.held()
	}
	return s.release(text, s.decoded-held, false), false
}

// End gives what is held when the sequence has ended. A stop string can still be completed by it.
func (s *Stream) End() (p Piece, stopped bool) {
	if s.stopped {
		return Piece{}, true
	}
	rest := s.o.Decoder.Flush()
	if n := len(s.waiting); n > 0 {
		s.waiting[n-1].end += len(rest)
	}
	s.grow(rest)
	if cut, ok := s.scan(rest); ok {
		return s.cut(cut), true
	}
	return s.release(rest, s.decoded, true), false
}

// Stopped gives the stop string that ended the text.
func (s *Stream) Stopped() (word string, ok bool) {
	if !s.stopped {
		return "", false
	}
	return s.o.Stop.words[s.stopWord], true
}

// take adds a token that brought text.
func (s *Stream) take(t seq.Token, text string) {
	s.waiting = append(s.waiting, entry{Token{t, s.chars}, s.decoded, s.decoded + len(text)})
	s.grow(text)
}

func (s *Stream) grow(text string) {
	s.held = append(s.held, text...)
	s.decoded += len(text)
	s.chars += utf8.RuneCountInString(text)
}

// scan looks at the text that was added last, and gives where the whole text ends if a stop string is complete in it.
func (s *Stream) scan(text string) (cut int, ok bool) {
	if s.matcher == nil || s.pushed <= s.o.MinTokens {
		return 0, false
	}
	for i := range len(text) {
		if w := s.matcher.next(text[i]); w >= 0 {
			s.stopped, s.stopWord = true, w
			cut = s.decoded - len(text) + i + 1
			if !s.o.IncludeStop {
				cut -= len(s.o.Stop.words[w])
			}
			return cut, true
		}
	}
	return 0, false
}

// release lets the text up to a position go, and the tokens that end there; last is the text that was added last. Without
// text nothing goes, unless it is the end.
func (s *Stream) release(last string, to int, end bool) Piece {
	n := to - (s.decoded - len(s.held))
	if n <= 0 && !end {
		return Piece{}
	}
	if n == len(last) && n == len(s.held) {
		s.held = s.held[:0]
		return s.attach(last, func(e *entry) bool { return e.end <= to })
	}
	text := string(s.held[:n])
	s.held = s.held[:copy(s.held, s.held[n:])]
	return s.attach(text, func(e *entry) bool { return e.end <= to })
}

// cut ends the text at a position.
func (s *Stream) cut(at int) Piece {
	text := string(s.held[:max(at-(s.decoded-len(s.held)), 0)])
	s.held = s.held[:0]
	p := s.attach(text, func(e *entry) bool { return e.begin < at })
	s.waiting = s.waiting[:0]
	return p
}

// attach makes a piece of the text and the leading tokens for which goes is true.
func (s *Stream) attach(text string, goes func(*entry) bool) Piece {
	s.out = s.out[:0]
	k := 0
	for k < len(s.waiting) && goes(&s.waiting[k]) {
		s.out = append(s.out, s.waiting[k].Token)
		k++
	}
	s.waiting = s.waiting[:copy(s.waiting, s.waiting[k:])]
	return Piece{Text: text, Tokens: s.out}
}
