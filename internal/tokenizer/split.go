// SPDX-License-Identifier: MIT OR Apache-2.0

package tokenizer

import "unicode/utf8"

// A splitter cuts a text into pieces that cover it.
type splitter interface {
	// next is where the piece that begins at s[i:] ends; i < len(s). s is valid UTF-8.
	next(s string, i int) int
}

// The regular expressions that tokenizers use, as hand-written splitters. A pattern stands here exactly as it stands in
// tokenizer.json; every one of them, used with behaviour Isolated, gives the pieces that its splitter gives.
var knownPatterns = map[string]splitter{
	patternGPT2:  gpt2Splitter{},
	patternQwen2: wordSplitter{letters: letter, digits: 1, contractions: true},
	patternQwen3_5: wordSplitter{letters: letter | mark, digits: 1,
		contractions: true},
	patternLlama3:   wordSplitter{letters: letter, digits: 3, contractions: true},
	patternCL100K:   wordSplitter{letters: letter, digits: 3, contractions: true},
	patternO200K:    caseSplitter{digits: 3, contractions: true},
	patternTekken:   caseSplitter{digits: 1},
	patternDeepSeek: deepseekSplitter{},
	patternCJK:      rangeSplitter{},
	`\p{N}{1,3}`:    numberSplitter{3},
	`\p{N}{1}`:      numberSplitter{1},
	`\p{N}`:         numberSplitter{1},
	`\p{N}+`:        numberSplitter{0},
}

const (
	patternGPT2     = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	patternQwen2    = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternQwen3_5  = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternLlama3   = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternCL100K   = `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`
	patternO200K    = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternTekken   = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternDeepSeek = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
	patternCJK      = `[一-龥぀-ゟ゠-ヿ]+`
)

// contraction is where 's, 't, 're, 've, 'm, 'll or 'd at s[i:] ends, or i. With fold, letters match in both cases, and so
// does ſ (U+017F), which is a case of s.
func contraction(s string, i int, fold bool) int {
	if i+1 >= len(s) || s[i] != '\'' {
		return i
	}
	at := func(k int) byte { // s[k] in lower case; 0 past the end
		if k >= len(s) {
			return 0
		}
		b := s[k]
		if fold && 'A' <= b && b <= 'Z' {
			b += 'a' - 'A'
		}
		return b
	}
	switch b := at(i + 1); {
	case b == 's' || b == 't' || b == 'm' || b == 'd':
		return i + 2
	case (b == 'r' || b == 'v') && at(i+2) == 'e', b == 'l' && at(i+2) == 'l':
		return i + 3
	case fold && b == 0xc5 && at(i+2) == 0xbf:
		return i + 3
	}
	return i
}

// whitespaceEnd is where \s*[\r\n]+|\s+(?!\S)|\s+ ends when s[i] is white space; without lines, where \s+(?!\S)|\s+ does.
func whitespaceEnd(s string, i int, lines bool) int {
	end, last, afterNewline := i, i, 0
	for end < len(s) {
		c, n := classAt(s, end)
		if c&space == 0 {
			break
		}
		last = end
		end += n
		if c&newline != 0 {
			afterNewline = end
		}
	}
	switch {
	case lines && afterNewline > 0:
		return afterNewline
	case end == len(s) || last == i:
		return end
	}
	return last // the last one belongs to what follows
}

// gpt2Splitter is patternGPT2.
type gpt2Splitter struct{}

func (gpt2Splitter) next(s string, i int) int {
	c, n := classAt(s, i)
	if s[i] == '\'' {
		if end := contraction(s, i, false); end > i {
			return end
		}
	}
	if s[i] == ' ' && i+1 < len(s) { // ` ?` of the three runs
		if d, m := classAt(s, i+1); d&space == 0 {
			c, n, i = d, m, i+1
		}
	}
	switch {
	case c&letter != 0:
		return runEnd(s, i+n, letter)
	case c&number != 0:
		return runEnd(s, i+n, number)
	case c&space != 0:
		return whitespaceEnd(s, i, false)
	}
	return otherEnd(s, i+n, letter|number|space)
}

// numberEnd is where a run of at most max numbers ends, from i on; any length if max is 0.
func numberEnd(s string, i, max int) int {
	for k := 0; i < len(s) && (k < max || max == 0); k++ {
		c, n := classAt(s, i)
		if c&number == 0 {
			break
		}
		i += n
	}
	return i
}

// wordSplitter is the pattern of Llama 3 and of Qwen: words with the character before them, numbers, the rest with the
// line ends after it.
type wordSplitter struct {
	letters      class // what words are made of
	digits       int   // most numbers in a piece
	contractions bool
}

func (w wordSplitter) next(s string, i int) int {
	c, n := classAt(s, i)
	if w.contractions && s[i] == '\'' {
		if end := contraction(s, i, true); end > i {
			return end
		}
	}
	if c&w.letters != 0 {
		return runEnd(s, i+n, w.letters)
	}
	if c&number != 0 {
		return numberEnd(s, i, w.digits)
	}
	if i+n < len(s) && c&newline == 0 { // [^\r\n\p{L}\p{N}]?\p{L}+
		if d, m := classAt(s, i+n); d&w.letters != 0 {
			return runEnd(s, i+n+m, w.letters)
		}
	}
	other := w.letters | number | space
	start := i
	if s[i] == ' ' && i+1 < len(s) {
		start++
		c, n = classAt(s, start)
	}
	if c&other == 0 {
		end := otherEnd(s, start+n, other)
		for end < len(s) && (s[end] == '\r' || s[end] == '\n') {
			end++
		}
		return end
	}
	return whitespaceEnd(s, i, true)
}

// caseSplitter is the pattern of o200k and Tekken: as wordSplitter, but a word also ends where lower case goes over into
// upper case, and takes its contraction along.
type caseSplitter struct {
	digits       int
	contractions bool
}

func (w caseSplitter) next(s string, i int) int {
	c, n := classAt(s, i)
	if c&number != 0 {
		return numberEnd(s, i, w.digits)
	}
	if c&(letter|newline) == 0 && i+n < len(s) { // the character before the word; it may be a mark, which also begins one
		if d, _ := classAt(s, i+n); d&(upper|lower) != 0 {
			if end := lowerWordEnd(s, i+n); end > 0 {
				return w.suffix(s, end)
			}
			if c&mark == 0 {
				return w.suffix(s, runEnd(s, i+n, upper))
			}
		}
	}
	if c&(upper|lower) != 0 {
		if end := lowerWordEnd(s, i); end > 0 {
			return w.suffix(s, end)
		}
		return w.suffix(s, runEnd(s, i, upper))
	}
	const other = letter | number | space
	start := i
	if s[i] == ' ' && i+1 < len(s) {
		start++
		c, n = classAt(s, start)
	}
	if c&other == 0 {
		end := otherEnd(s, start+n, other)
		for end < len(s) && (s[end] == '\r' || s[end] == '\n' || s[end] == '/') {
			end++
		}
		return end
	}
	return whitespaceEnd(s, i, true)
}

func (w caseSplitter) suffix(s string, i int) int {
	if w.contractions && i < len(s) && s[i] == '\'' {
		return contraction(s, i, true)
	}
	return i
}

// lowerWordEnd is where [upper]*[lower]+ at s[i:] ends, or 0 if it does not match.
func lowerWordEnd(s string, i int) int {
	both := 0 // end of the last code point that is upper and lower, which [upper]* can give back
	for i < len(s) {
		c, n := asciiClass[s[i]&(utf8.RuneSelf-1)], 1
		if s[i] >= utf8.RuneSelf {
			c, n = wideClassAt(s, i)
		}
		if c&upper == 0 {
			if c&lower != 0 {
				return runEnd(s, i+n, lower)
			}
			break
		}
		i += n
		if c&lower != 0 {
			both = i
		}
	}
	return both
}

// numberSplitter is \p{N}{1,max}, or \p{N}+ if max is 0.
type numberSplitter struct{ max int }

func (d numberSplitter) next(s string, i int) int {
	if c, _ := classAt(s, i); c&number != 0 {
		return numberEnd(s, i, d.max)
	}
	return otherEnd(s, i, number)
}

// rangeSplitter is patternCJK.
type rangeSplitter struct{}

func (rangeSplitter) next(s string, i int) int {
	in := isCJK(s, i)
	for i < len(s) && isCJK(s, i) == in {
		if s[i] < 0x80 {
			i++
		} else {
			_, n := runeAt(s, i)
			i += n
		}
	}
	return i
}

func isCJK(s string, i int) bool {
	if s[i] < 0xe3 || s[i] > 0xe9 {
		return false
	}
	r, _ := runeAt(s, i)
	return 0x4e00 <= r && r <= 0x9fa5 || 0x3040 <= r && r <= 0x30ff
}

// deepseekSplitter is patternDeepSeek, which leaves out some characters: they make pieces of their own.
type deepseekSplitter struct{}

func (d deepseekSplitter) next(s string, i int) int {
	if end := d.match(s, i); end > i {
		return end
	}
	for i < len(s) {
		_, n := classAt(s, i)
		i += n
		if i < len(s) && d.match(s, i) > i {
			break
		}
	}
	return i
}

func (deepseekSplitter) match(s string, i int) int {
	const word = letter | mark
	c, n := classAt(s, i)
	if b := s[i]; b < 0x80 && c&punct != 0 {
		end := i + 1
		for end < len(s) && (s[end]|0x20) >= 'a' && (s[end]|0x20) <= 'z' {
			end++
		}
		if end > i+1 {
			return end
		}
	}
	if c&word != 0 {
		return runEnd(s, i+n, word)
	}
	if c&(newline|punct) == 0 && i+n < len(s) {
		if d, m := classAt(s, i+n); d&word != 0 {
			return runEnd(s, i+n+m, word)
		}
	}
	start := i
	if s[i] == ' ' && i+1 < len(s) {
		start++
		c, n = classAt(s, start)
	}
	if c&punct != 0 {
		end := runEnd(s, start+n, punct)
		for end < len(s) && (s[end] == '\r' || s[end] == '\n') {
			end++
		}
		return end
	}
	if c, _ = classAt(s, i); c&space != 0 {
		return whitespaceEnd(s, i, true)
	}
	return i
}
