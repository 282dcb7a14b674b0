// SPDX-License-Identifier: MIT OR Apache-2.0

package tokenizer

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// A decoding is what turns tokens into text: steps, each of which takes a token at a time and passes on the text that is
// certain by then. Decode and Decoder run the same steps, so that they cannot differ.
type decoding []step

// step is one decoder of tokenizer.json, before any token. Its state lives in the stage that it starts.
type step interface {
	start() stage
	// bytes is what the step makes of one token's bytes when nothing is around it.
	bytes(b []byte) []byte
}

// stage is a step at work. Results go to d.pass(next, …).
type stage interface {
	push(d *Decoder, next int, text string)
	flush(d *Decoder, next int)
}

// Decoder turns tokens into text as they come. It is used by one goroutine.
type Decoder struct {
	t           *Tokenizer
	skipSpecial bool
	stages      []stage
	out         []byte
}

// NewDecoder starts to decode a stream of tokens; with skipSpecial, special tokens are left out.
func (t *Tokenizer) NewDecoder(skipSpecial bool) *Decoder {
	d := &Decoder{t: t, skipSpecial: skipSpecial, stages: make([]stage, len(t.decoding))}
	for i, s := range t.decoding {
		d.stages[i] = s.start()
	}
	return d
}

// Push gives the text that is certain now that id has come: whole code points only, often none. All texts together with
// Flush's are what Decode gives for all ids.
func (d *Decoder) Push(id int32) string {
	d.out = d.out[:0]
	d.push(id)
	return string(d.out)
}

// Flush gives what is left at the end; bytes that make no code point become U+FFFD. The Decoder is then at its end.
func (d *Decoder) Flush() string {
	d.out = d.out[:0]
	d.flush()
	return string(d.out)
}

// Decode gives the text of ids; with skipSpecial, without special tokens. Ids without token are left out.
func (t *Tokenizer) Decode(ids []int32, skipSpecial bool) string {
	d := t.NewDecoder(skipSpecial)
	d.out = make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		d.push(id)
	}
	d.flush()
	return string(d.out)
}

func (d *Decoder) push(id int32) {
	form, ok := d.t.form(id)
	if !ok || d.skipSpecial && d.t.specialForms[form] {
		return
	}
	d.pass(0, form)
}

func (d *Decoder) flush() {
	for i, s := range d.stages {
		s.flush(d, i+1)
	}
}

func (d *Decoder) pass(next int, text string) {
	if next == len(d.stages) {
		d.out = append(d.out, text...)
		return
	}
	d.stages[next].push(d, next+1, text)
}

// noFlush is for stages that hold nothing back.
type noFlush struct{}

func (noFlush) flush(*Decoder, int) {}

// spaced is what happens without any decoder: a space between tokens.
type spaced struct{}

type spacedStage struct {
	noFlush
	any bool
}

func (spaced) start() stage          { return &spacedStage{} }
func (spaced) bytes(b []byte) []byte { return b }

func (s *spacedStage) push(d *Decoder, next int, text string) {
	if s.any {
		text = " " + text
	}
	s.any = true
	d.pass(next, text)
}

// replaceStep is Replace.
type replaceStep struct {
	noFlush
	normalizer
}

func (s replaceStep) start() stage                           { return s }
func (s replaceStep) bytes(b []byte) []byte                  { return []byte(s.normalize(string(b))) }
func (s replaceStep) push(d *Decoder, next int, text string) { d.pass(next, s.normalize(text)) }

// metaspaceStep is Metaspace: marks become spaces, but in the first token they go if one was put before the text.
type metaspaceStep struct {
	mark  string
	strip bool
	fused bool // all tokens are one
}

type metaspaceStage struct {
	noFlush
	metaspaceStep
	any bool
}

func (s metaspaceStep) start() stage { return &metaspaceStage{metaspaceStep: s} }

func (s metaspaceStep) bytes(b []byte) []byte {
	return []byte(strings.ReplaceAll(string(b), s.mark, " "))
}

func (s *metaspaceStage) push(d *Decoder, next int, text string) {
	to := " "
	if s.strip && (!s.any || s.fused) {
		to = ""
	}
	s.any = true
	d.pass(next, strings.ReplaceAll(text, s.mark, to))
}

// stripStep is Strip: takes up to head and tail characters away at the ends, of each token or, fused, of the text.
type stripStep struct {
	char       string
	head, tail int
	fused      bool // then tail is 0
}

type stripStage struct {
	noFlush
	stripStep
	left int
	done bool
}

func (s stripStep) start() stage          { return &stripStage{stripStep: s, left: s.head} }
func (s stripStep) bytes(b []byte) []byte { return b }

func (s *stripStage) push(d *Decoder, next int, text string) {
	if !s.fused {
		s.left, s.done = s.head, false
	}
	for !s.done && s.left > 0 && text != "" {
		if !strings.HasPrefix(text, s.char) {
			s.done = true
			break
		}
		text = text[len(s.char):]
		s.left--
	}
	for k := 0; k < s.tail && strings.HasSuffix(text, s.char); k++ {
		text = text[:len(text)-len(s.char)]
	}
	d.pass(next, text)
}

// byteFallbackStep is ByteFallback: a run of <0xNN> tokens is a text if its bytes are one, else U+FFFD for each. So
// nothing of a run is certain before its end.
type byteFallbackStep struct{}

type byteFallbackStage struct{ run []byte }

func (byteFallbackStep) start() stage { return &byteFallbackStage{} }

func (byteFallbackStep) bytes(b []byte) []byte {
	if v, ok := byteToken(string(b)); ok {
		return []byte{v}
	}
	return b
}

func (s *byteFallbackStage) push(d *Decoder, next int, text string) {
	if v, ok := byteToken(text); ok {
		s.run = append(s.run, v)
		return
	}
	s.flush(d, next)
	d.pass(next, text)
}

func (s *byteFallbackStage) flush(d *Decoder, next int) {
	if utf8.Valid(s.run) {
		if len(s.run) > 0 {
			d.pass(next, string(s.run))
		}
	} else {
		for range s.run {
			d.pass(next, replacement)
		}
	}
	s.run = s.run[:0]
}

// byteToken is the byte of a token of the form <0xNN>.
func byteToken(s string) (byte, bool) {
	if len(s) != 6 || s[:3] != "<0x" || s[5] != '>' {
		return 0, false
	}
	v, err := strconv.ParseUint(strings.TrimPrefix(s[3:5], "+"), 16, 8)
	return byte(v), err == nil
}

// byteLevelStep is ByteLevel: tokens are bytes in the byte-level alphabet, or else themselves.
type byteLevelStep struct{}

type byteLevelStage struct{ buf, rest []byte }

func (byteLevelStep) start() stage { return &byteLevelStage{} }

func (byteLevelStep) bytes(b []byte) []byte {
	if out, ok := appendCharBytes(nil, string(b)); ok {
		return out
	}
	return b
}

func (s *byteLevelStage) push(d *Decoder, next int, text string) {
	var ok bool
	if s.rest, ok = appendCharBytes(s.rest, text); !ok {
		s.rest = append(s.rest, text...)
	}
	s.emit(d, next, false)
}

func (s *byteLevelStage) flush(d *Decoder, next int) { s.emit(d, next, true) }

func (s *byteLevelStage) emit(d *Decoder, next int, final bool) {
	if next == len(d.stages) { // the common case: straight to the output
		out, rest := appendValid(d.out, s.rest, final)
		d.out, s.rest = out, append(s.rest[:0], rest...)
		return
	}
	out, rest := appendValid(s.buf[:0], s.rest, final)
	s.buf, s.rest = out, append(s.rest[:0], rest...)
	if len(out) > 0 {
		d.pass(next, string(out))
	}
}

// wholeStep makes one token of all: for steps that need the text to its end.
type wholeStep struct{ step }

type wholeStage struct {
	stage
	text []byte
}

func (s wholeStep) start() stage { return &wholeStage{stage: s.step.start()} }

func (s *wholeStage) push(_ *Decoder, _ int, text string) { s.text = append(s.text, text...) }

func (s *wholeStage) flush(d *Decoder, next int) {
	s.stage.push(d, next, string(s.text))
	s.stage.flush(d, next)
	s.text = nil
}

// cleanupStep undoes spaces before English punctuation, for the tokenizers whose configuration asks for it.
type cleanupStep struct{}

type cleanupStage struct{ held []byte }

var cleanups = []struct{ old, new string }{
	{" .", "."}, {" ?", "?"}, {" !", "!"}, {" ,", ","}, {" ' ", "'"},
	{" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
}

func (cleanupStep) start() stage          { return &cleanupStage{} }
func (cleanupStep) bytes(b []byte) []byte { return b }

func (s *cleanupStage) push(d *Decoder, next int, text string) {
	s.held = append(s.held, text...)
	cut := len(s.held) // no replacement reaches over a place before which stands a character that none goes on after
	for cut > 0 && strings.IndexByte(" 'nvr", s.held[cut-1]) >= 0 {
		cut--
	}
	s.emit(d, next, cut)
}

func (s *cleanupStage) flush(d *Decoder, next int) { s.emit(d, next, len(s.held)) }

func (s *cleanupStage) emit(d *Decoder, next int, cut int) {
	text := string(s.held[:cut])
	for _, c := range cleanups {
		text = strings.ReplaceAll(text, c.old, c.new)
	}
	s.held = append(s.held[:0], s.held[cut:]...)
	d.pass(next, text)
}
