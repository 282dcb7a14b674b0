// SPDX-License-Identifier: MIT OR Apache-2.0

package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// A preTokenizer is a splitter, or, when it drops or rewrites text, a rewriter.
type preTokenizer interface{}

type rewriter interface {
	// split appends the pieces of s. first says that s begins the text; s and the pieces are valid UTF-8, not empty.
	split(dst []string, s string, first bool) []string
}

// preTokenize sends each piece of s to the model. Every pre-tokenizer cuts the pieces of the one before.
func (e *encoder) preTokenize(level int, s string, first bool) {
	all := e.t.preTokenizers
	if level == len(all) {
		e.word(s, 0, len(s))
		return
	}
	switch p := all[level].(type) {
	case splitter:
		if level+1 == len(all) {
			for i := 0; i < len(s); {
				end := p.next(s, i)
				e.word(s, i, end)
				i = end
			}
			return
		}
		for i := 0; i < len(s); {
			end := p.next(s, i)
			e.preTokenize(level+1, s[i:end], first && i == 0)
			i = end
		}
	case rewriter:
		for len(e.pieces) <= level {
			e.pieces = append(e.pieces, nil)
		}
		pieces := p.split(e.pieces[level][:0], s, first)
		e.pieces[level] = pieces
		for i, piece := range pieces {
			e.preTokenize(level+1, piece, first && i == 0)
		}
		clear(pieces) // do not keep the text alive
	}
}

// behavior says what becomes of the matches of a Split.
type behavior int

const (
	removed behavior = iota
	isolated
	mergedWithPrevious
	mergedWithNext
	contiguous
)

var behaviors = map[string]behavior{
	"Removed": removed, "Isolated": isolated, "MergedWithPrevious": mergedWithPrevious, "MergedWithNext": mergedWithNext,
	"Contiguous": contiguous,
}

// part is a stretch of text, a match or what lies between matches.
type part struct {
	span
	match bool
}

// split appends the pieces that the behaviour makes of the parts.
func (b behavior) split(dst []string, s string, parts []part) []string {
	var out []span
	before := false // the last part was a match
	switch b {
	case removed, isolated:
		for _, p := range parts {
			if b == isolated || !p.match {
				out = append(out, p.span)
			}
		}
	case contiguous, mergedWithPrevious:
		for _, p := range parts {
			join := p.match && !before
			if b == contiguous {
				join = p.match == before
			}
			if join && len(out) > 0 {
				out[len(out)-1].to = p.to
			} else {
				out = append(out, p.span)
			}
			before = p.match
		}
	case mergedWithNext:
		out = make([]span, 0, len(parts))
		for i := len(parts) - 1; i >= 0; i-- {
			p := parts[i]
			if p.match && !before && len(out) > 0 {
				out[len(out)-1].from = p.from
			} else {
				out = append(out, p.span)
			}
			before = p.match
		}
		for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
			out[i], out[j] = out[j], out[i]
		}
	}
	for _, p := range out {
		if p.from < p.to {
			dst = append(dst, s[p.from:p.to])
		}
	}
	return dst
}

// partsBetween completes matches with what lies between them.
func partsBetween(s string, matches []span, invert bool) []part {
	parts := make([]part, 0, 2*len(matches)+1)
	from := uint32(0)
	for _, m := range matches {
		if from != m.from {
			parts = append(parts, part{span{from, m.from}, invert})
		}
		parts = append(parts, part{m, !invert})
		from = m.to
	}
	if int(from) != len(s) {
		parts = append(parts, part{span{from, uint32(len(s))}, invert})
	}
	return parts
}

// patternSplit is a Split whose pattern has no splitter of its own.
type patternSplit struct {
	pattern  *pattern
	behavior behavior
	invert   bool
}

func (p patternSplit) split(dst []string, s string, _ bool) []string {
	return p.behavior.split(dst, s, partsBetween(s, p.pattern.findAll(s), p.invert))
}

// runeSplit splits at single code points: Punctuation, WhitespaceSplit, CharDelimiterSplit.
type runeSplit struct {
	is       func(rune) bool
	behavior behavior
}

func (p runeSplit) split(dst []string, s string, _ bool) []string {
	var matches []span
	for i, r := range s {
		if p.is(r) {
			matches = append(matches, span{uint32(i), uint32(i + utf8.RuneLen(r))})
		}
	}
	return p.behavior.split(dst, s, partsBetween(s, matches, false))
}

// digitSplitter is Digits: each digit alone, or each run of them.
type digitSplitter struct{ individual bool }

func (d digitSplitter) next(s string, i int) int {
	r, n := runeAt(s, i)
	digit := isNumeric(r)
	i += n
	if digit && d.individual {
		return i
	}
	for i < len(s) {
		if r, n = runeAt(s, i); isNumeric(r) != digit {
			break
		}
		i += n
	}
	return i
}

// wordsSplit is Whitespace: \w+|[^\w\s]+, and white space is dropped.
type wordsSplit struct{}

func (wordsSplit) split(dst []string, s string, _ bool) []string {
	kind := func(r rune) int {
		switch {
		case isSpace(r):
			return 0
		case isWord(r):
			return 1
		}
		return 2
	}
	from, last := 0, 0
	for i, r := range s {
		k := kind(r)
		if k != last {
			if last != 0 {
				dst = append(dst, s[from:i])
			}
			from, last = i, k
		}
	}
	if last != 0 {
		dst = append(dst, s[from:])
	}
	return dst
}

// prefixSpace is ByteLevel's add_prefix_space.
type prefixSpace struct{}

func (prefixSpace) split(dst []string, s string, _ bool) []string {
	if s[0] != ' ' {
		s = " " + s
	}
	return append(dst, s)
}

// metaspace makes spaces visible and cuts before them.
type metaspace struct {
	replacement    string // one code point
	prepend        bool
	onlyFirst      bool // prepend at the beginning of the text only
	splits         bool
	mergedWithNext patternSplit
}

func newMetaspace(replacement, scheme string, splits bool) metaspace {
	return metaspace{
		replacement: replacement, prepend: scheme != "never", onlyFirst: scheme == "first", splits: splits,
		mergedWithNext: patternSplit{pattern: &pattern{literal: replacement}, behavior: mergedWithNext},
	}
}

func (p metaspace) split(dst []string, s string, first bool) []string {
	s = strings.ReplaceAll(s, " ", p.replacement)
	if p.prepend && (first || !p.onlyFirst) && !strings.HasPrefix(s, p.replacement) {
		s = p.replacement + s
	}
	if !p.splits {
		return append(dst, s)
	}
	return p.mergedWithNext.split(dst, s, first)
}

// byteCharMap writes each byte as its character of the byte-level alphabet; byteCharUnmap undoes it. They stand around
// pre-tokenizers that come after ByteLevel and so see that alphabet.
type byteCharMap struct{}

func (byteCharMap) split(dst []string, s string, _ bool) []string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		b.WriteRune(byteChars[s[i]])
	}
	return append(dst, b.String())
}

type byteCharUnmap struct{}

func (byteCharUnmap) split(dst []string, s string, _ bool) []string {
	b := make([]byte, 0, len(s))
	for _, r := range s {
		b = append(b, byte(charBytes[r]))
	}
	return append(dst, string(b))
}

// byteChars is the byte-level alphabet: the printable bytes of Latin-1 are themselves, the others are U+0100 and up in
// order. charBytes is its inverse, -1 for what is not in it.
var byteChars = func() (t [256]rune) {
	next := rune(256)
	for b := range t {
		if '!' <= b && b <= '~' || 0xa1 <= b && b <= 0xac || 0xae <= b {
			t[b] = rune(b)
		} else {
			t[b] = next
			next++
		}
	}
	return
}()

var charBytes = func() (t [512]int16) {
	for i := range t {
		t[i] = -1
	}
	for b, r := range byteChars {
		t[r] = int16(b)
	}
	return
}()

// appendCharBytes appends the bytes that a byte-level token stands for. It says false, and appends nothing, if the token
// is not written in the alphabet.
func appendCharBytes(dst []byte, token string) ([]byte, bool) {
	n := len(dst)
	for _, r := range token {
		if int(r) >= len(charBytes) || charBytes[r] < 0 {
			return dst[:n], false
		}
		dst = append(dst, byte(charBytes[r]))
	}
	return dst, true
}

// joinSplitter cuts where no merge can join the code points on both sides, so that what it cuts is short and can be cached.
// It changes no result, and makes words of a text that its tokenizer does not cut itself (SentencePiece).
type joinSplitter struct {
	ascii [128][2]uint64 // ascii[a] has bit b: some merge joins a|b
	other []uint64       // bits by hash of the pair, for pairs beyond ASCII: a Bloom filter with one hash
}

func newJoinSplitter(pairs int) *joinSplitter {
	size := 1 << 10
	for size < pairs/4 {
		size *= 2
	}
	return &joinSplitter{other: make([]uint64, size)}
}

func (j *joinSplitter) bit(a, b rune) (int, uint64) {
	h := (uint64(a)<<21 | uint64(b)) * mix1
	return int(h >> 32 & uint64(len(j.other)-1)), 1 << (h >> 58)
}

func (j *joinSplitter) add(a, b rune) {
	if a < utf8.RuneSelf && b < utf8.RuneSelf {
		j.ascii[a][b>>6] |= 1 << (b & 63)
		return
	}
	i, bit := j.bit(a, b)
	j.other[i] |= bit
}

func (j *joinSplitter) joins(a, b rune) bool {
	if a < utf8.RuneSelf && b < utf8.RuneSelf {
		return j.ascii[a][b>>6]>>(b&63)&1 != 0
	}
	i, bit := j.bit(a, b)
	return j.other[i]&bit != 0
}

func (j *joinSplitter) next(s string, i int) int {
	a, n := runeAt(s, i)
	for i += n; i < len(s); i += n {
		var b rune
		if b, n = runeAt(s, i); !j.joins(a, b) {
			return i
		}
		a = b
	}
	return i
}
