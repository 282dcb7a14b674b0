// SPDX-License-Identifier: MIT OR Apache-2.0

package tokenizer

import (
	"sort"
	"unicode/utf8"
)

// category is a Unicode general category (catLu …) as the regular expressions of tokenizer.json see it.
type category uint8

// runeRange is lo to hi, both included.
type runeRange struct{ lo, hi rune }

// class is what the splitters ask about a code point, as bits.
type class = uint8

const (
	letter  class = 1 << iota // \p{L}
	mark                      // \p{M}
	number                    // \p{N}
	space                     // \s
	newline                   // [\r\n]
	upper                     // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
	lower                     // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
	punct                     // [\p{P}\p{S}]
)

func (c category) class() class {
	switch {
	case c <= catLt && c != catLl:
		return letter | upper
	case c == catLl:
		return letter | lower
	case c <= catLo:
		return letter | upper | lower
	case c <= catMe:
		return mark | upper | lower
	case c <= catNo:
		return number
	case c <= catSo:
		return punct
	}
	return 0
}

// categoryOf is r's general category.
func categoryOf(r rune) category {
	i := sort.Search(len(categoryRuns), func(i int) bool { return rune(categoryRuns[i]>>5) > r })
	return category(categoryRuns[i-1] & 31)
}

// pageTable maps code points to bytes in two steps:
//
//	index[r>>8] -> page of 256 values; pages of one value are shared
type pageTable struct {
	index [0x110000 >> 8]uint16
	pages [][256]uint8
}

// newPageTable makes a table of runs: first code point << bits | what value takes.
func newPageTable(runs []uint32, bits int, value func(uint32) uint8) *pageTable {
	t := &pageTable{}
	shared := map[uint8]uint16{}
	first := func(k int) rune { // code point of run k
		if k == len(runs) {
			return utf8.MaxRune + 1
		}
		return rune(runs[k] >> bits)
	}
	valueOf := func(k int) uint8 { return value(runs[k] & (1<<bits - 1)) }
	k := 0
	for p := range t.index {
		start := rune(p) << 8
		for first(k+1) <= start {
			k++
		}
		uniform := first(k+1) > start+255
		if n, ok := shared[valueOf(k)]; ok && uniform {
			t.index[p] = n
			continue
		}
		t.index[p] = uint16(len(t.pages))
		if uniform {
			shared[valueOf(k)] = t.index[p]
		}
		var page [256]uint8
		for i := range page {
			for first(k+1) <= start+rune(i) {
				k++
			}
			page[i] = valueOf(k)
		}
		t.pages = append(t.pages, page)
	}
	return t
}

func (t *pageTable) of(r rune) uint8 { return t.pages[t.index[r>>8]][r&255] }

var classes = func() *pageTable {
	t := newPageTable(categoryRuns, 5, func(c uint32) class { return category(c).class() })
	for _, r := range spaceRanges { // never on a shared page: each has neighbours of other categories
		for c := r.lo; c <= r.hi; c++ {
			t.pages[t.index[c>>8]][c&255] |= space
		}
	}
	t.pages[t.index[0]]['\r'] |= newline
	t.pages[t.index[0]]['\n'] |= newline
	return t
}()

// asciiClass is classes for one-byte code points.
var asciiClass = func() (t [utf8.RuneSelf]class) {
	for r := range t {
		t[r] = classes.of(rune(r))
	}
	return
}()

// classAt is the class and the length in bytes of the code point at s[i:]; s is valid UTF-8.
func classAt(s string, i int) (class, int) {
	if b := s[i]; b < utf8.RuneSelf {
		return asciiClass[b], 1
	}
	return wideClassAt(s, i)
}

// wideClassAt is classAt for a code point of several bytes.
func wideClassAt(s string, i int) (class, int) {
	b := s[i]
	switch {
	case b < 0xe0:
		r := rune(b&31)<<6 | rune(s[i+1]&63)
		return classes.pages[classes.index[r>>8]][r&255], 2
	case b < 0xf0:
		r := rune(b&15)<<12 | rune(s[i+1]&63)<<6 | rune(s[i+2]&63)
		return classes.pages[classes.index[r>>8]][r&255], 3
	}
	r, _ := runeAt(s, i)
	return classes.of(r), 4
}

// runeAt decodes the code point at s[i:]; s is valid UTF-8.
func runeAt(s string, i int) (rune, int) {
	switch b := s[i]; {
	case b < utf8.RuneSelf:
		return rune(b), 1
	case b < 0xe0:
		return rune(b&31)<<6 | rune(s[i+1]&63), 2
	case b < 0xf0:
		return rune(b&15)<<12 | rune(s[i+1]&63)<<6 | rune(s[i+2]&63), 3
	default:
		return rune(b&7)<<18 | rune(s[i+1]&63)<<12 | rune(s[i+2]&63)<<6 | rune(s[i+3]&63), 4
	}
}

// runEnd is where the run of code points that have a bit of mask ends, from i on. (It and its like below look at one byte
// before they call anything: most text is ASCII.)
func runEnd(s string, i int, mask class) int {
	for i < len(s) {
		if b := s[i]; b < utf8.RuneSelf {
			if asciiClass[b]&mask == 0 {
				break
			}
			i++
			continue
		}
		c, n := wideClassAt(s, i)
		if c&mask == 0 {
			break
		}
		i += n
	}
	return i
}

// otherEnd is where the run of code points that have no bit of mask ends.
func otherEnd(s string, i int, mask class) int {
	for i < len(s) {
		if b := s[i]; b < utf8.RuneSelf {
			if asciiClass[b]&mask != 0 {
				break
			}
			i++
			continue
		}
		c, n := wideClassAt(s, i)
		if c&mask != 0 {
			break
		}
		i += n
	}
	return i
}

func inRanges(rs []runeRange, r rune) bool {
	i := sort.Search(len(rs), func(i int) bool { return rs[i].hi >= r })
	return i < len(rs) && rs[i].lo <= r
}

// The predicates of pre-tokenizers and normalizers that are not made of regular expressions.

func isSpace(r rune) bool  { return classes.of(r)&space != 0 }
func isAccent(r rune) bool { return (classes.of(r)&mark != 0) != inRanges(accentDiff, r) }

func isNumeric(r rune) bool {
	if r < utf8.RuneSelf {
		return '0' <= r && r <= '9'
	}
	return (classes.of(r)&number != 0) != inRanges(numericDiff, r)
}

func isPunct(r rune) bool {
	c := categoryOf(r)
	return (c >= catPc && c <= catPo) != inRanges(punctDiff, r)
}

// isWord is \w for added tokens and the Whitespace pre-tokenizer.
func isWord(r rune) bool { return isWordCategory(r) != inRanges(wordDiff, r) }

func isWordCategory(r rune) bool {
	c := categoryOf(r)
	return c <= catNl || c == catPc
}

// lowerRune is r in lower case. U+0130 has two code points in lower case and is not for this function.
func lowerRune(r rune) rune {
	i := sort.Search(len(lowerRuns), func(i int) bool { return lowerRuns[i][1] >= r })
	if i < len(lowerRuns) {
		if m := lowerRuns[i]; m[0] <= r && (r-m[0])%m[2] == 0 {
			return r + m[3]
		}
	}
	return r
}
