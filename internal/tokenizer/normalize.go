// SPDX-License-Identifier: MIT OR Apache-2.0

package tokenizer

import (
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// A normalizer rewrites a text before it is cut into pieces. Text in and out is valid UTF-8.
type normalizer interface {
	normalize(s string) string
}

type normalizers []normalizer

func (ns normalizers) normalize(s string) string {
	for _, n := range ns {
		s = n.normalize(s)
	}
	return s
}

type replaceString struct{ old, new string }

func (n replaceString) normalize(s string) string { return strings.ReplaceAll(s, n.old, n.new) }

type replacePattern struct {
	re  *pattern
	new string
}

func (n replacePattern) normalize(s string) string {
	var b strings.Builder
	from := uint32(0)
	for _, m := range n.re.findAll(s) {
		b.WriteString(s[from:m.from])
		b.WriteString(n.new)
		from = m.to
	}
	b.WriteString(s[from:])
	return b.String()
}

type prepend string

func (n prepend) normalize(s string) string {
	if s == "" {
		return s
	}
	return string(n) + s
}

type strip struct{ left, right bool }

func (n strip) normalize(s string) string {
	if n.left {
		s = strings.TrimLeftFunc(s, isSpace)
	}
	if n.right {
		s = strings.TrimRightFunc(s, isSpace)
	}
	return s
}

type stripAccents struct{}

func (stripAccents) normalize(s string) string {
	return strings.Map(func(r rune) rune {
		if isAccent(r) {
			return -1
		}
		return r
	}, s)
}

type lowercase struct{}

func (lowercase) normalize(s string) string {
	if strings.Contains(s, "İ") {
		s = strings.ReplaceAll(s, "İ", "i̇")
	}
	return strings.Map(lowerRune, s)
}

// unicodeForm is NFC, NFD, NFKC or NFKD as the reference has it: code points of inertRanges stay where they are and combine
// with nothing, and a run of combining marks may be of any length (x/text breaks it after thirty).
type unicodeForm struct{ form norm.Form }

// formFlags is formRuns as a table, for those who have a unicodeForm.
var formFlags = sync.OnceValue(func() *pageTable {
	return newPageTable(formRuns, 4, func(v uint32) uint8 { return uint8(v) })
})

// formBits are the flags of each form in formRuns.
var formBits = [...]uint8{norm.NFC: 1, norm.NFD: 2, norm.NFKC: 4, norm.NFKD: 8}

// normalize leaves alone what the table says nothing about. A run of other code points is worked on together with the one
// before it, which it may join.
func (n unicodeForm) normalize(s string) string {
	flags, bit := formFlags(), formBits[n.form]
	var b, out []byte
	var seg segment
	done, before := 0, 0 // s[:done] is in b; before is where the last code point begins
	for i := 0; i < len(s); {
		if s[i] < utf8.RuneSelf {
			before = i
			i++
			continue
		}
		r, size := runeAt(s, i)
		if flags.of(r)&bit == 0 {
			before = i
			i += size
			continue
		}
		from := max(before, done)
		for i += size; i < len(s); i += size {
			if r, size = runeAt(s, i); flags.of(r)&bit == 0 {
				break
			}
		}
		before = i
		if out = seg.appendTo(out[:0], s[from:i], n.form); string(out) == s[from:i] {
			continue
		}
		b = append(append(b, s[done:from]...), out...)
		done = i
	}
	if done == 0 {
		return s
	}
	return string(append(b, s[done:]...))
}

// segment normalizes a stretch of text by the book: decompose, sort, compose.
type segment []classed

type classed struct {
	r     rune
	class uint8 // canonical combining class
}

func (g *segment) appendTo(b []byte, s string, form norm.Form) []byte {
	*g = (*g)[:0]
	for _, r := range s {
		g.decompose(r, form == norm.NFKC || form == norm.NFKD)
	}
	g.sort()
	if form == norm.NFC || form == norm.NFKC {
		g.compose()
	}
	for _, c := range *g {
		b = utf8.AppendRune(b, c.r)
	}
	return b
}

// Hangul syllables are composed by arithmetic: base + (leading*21 + vowel)*28 + trailing.
const (
	hangul, hangulEnd = 0xac00, 0xac00 + 19*21*28
	leading           = 0x1100
	vowel             = 0x1161
	trailing          = 0x11a7 // the first is none
)

func (g *segment) decompose(r rune, compat bool) {
	if inRanges(inertRanges, r) {
		*g = append(*g, classed{r, 0})
		return
	}
	if hangul <= r && r < hangulEnd {
		k := r - hangul
		*g = append(*g, classed{leading + k/(21*28), 0}, classed{vowel + k%(21*28)/28, 0})
		if k%28 > 0 {
			*g = append(*g, classed{trailing + k%28, 0})
		}
		return
	}
	p := properties(r, compat)
	d := p.Decomposition()
	if d == nil {
		*g = append(*g, classed{r, p.CCC()})
		return
	}
	for _, r := range string(d) {
		*g = append(*g, classed{r, properties(r, compat).CCC()})
	}
}

func properties(r rune, compat bool) norm.Properties {
	if compat {
		return norm.NFKD.PropertiesString(string(r))
	}
	return norm.NFD.PropertiesString(string(r))
}

// sort puts each run of combining marks into the order of their classes.
func (g segment) sort() {
	for i := 0; i < len(g); i++ {
		end := i
		for end < len(g) && g[end].class != 0 {
			end++
		}
		if end > i+1 {
			slices.SortStableFunc(g[i:end], func(a, b classed) int { return int(a.class) - int(b.class) })
		}
		i = end
	}
}

// compose joins each starter with what follows it, unless something of the same or a higher class stands between.
func (g *segment) compose() {
	c := *g
	starter, n := -1, 0 // c[:n] is the result so far
	for _, x := range c {
		if starter >= 0 && (n-1 == starter || c[n-1].class < x.class) {
			if r := composite(c[starter].r, x.r); r != 0 {
				c[starter].r = r
				continue
			}
		}
		c[n] = x
		if x.class == 0 {
			starter = n
		}
		n++
	}
	*g = c[:n]
}

// composite is the code point that a and b compose to, or 0.
func composite(a, b rune) rune {
	switch {
	case leading <= a && a < leading+19 && vowel <= b && b < vowel+21:
		return hangul + ((a-leading)*21+b-vowel)*28
	case hangul <= a && a < hangulEnd && (a-hangul)%28 == 0 && trailing < b && b < trailing+28:
		return a + b - trailing
	}
	return composites()[[2]rune{a, b}]
}

// composites are the pairs that compose, without Hangul's: those that a code point that NFC leaves alone decomposes to.
var composites = sync.OnceValue(func() map[[2]rune]rune {
	m := map[[2]rune]rune{}
	flags := formFlags()
	for i, run := range formRuns {
		end := rune(utf8.MaxRune + 1)
		if i+1 < len(formRuns) {
			end = rune(formRuns[i+1] >> 4)
		}
		for r := rune(run >> 4); r < end && uint8(run)&formBits[norm.NFD] != 0; r++ {
			if flags.of(r)&formBits[norm.NFC] != 0 || hangul <= r && r < hangulEnd {
				continue
			}
			d := string(properties(r, false).Decomposition())
			if last, n := utf8.DecodeLastRuneInString(d); n < len(d) {
				first, _ := utf8.DecodeRuneInString(norm.NFC.String(d[:len(d)-n]))
				m[[2]rune{first, last}] = r
			}
		}
	}
	return m
})
