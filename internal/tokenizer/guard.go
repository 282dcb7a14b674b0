// SPDX-License-Identifier: MIT OR Apache-2.0

package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Guard keeps special tokens out of the texts that strangers add to a prompt: Mark changes each such text, Encode gives the ids of
// what was made of them. In between, texts may be joined, trimmed and put beside other text.
//
//  1. No special token begins in a marked text, also none that what comes behind completes. Those that begin elsewhere are real.
//  2. The marks change neither the ids nor where templates find something in a text, but for special tokens themselves.
//  3. A text that is one word (ASCII letters, digits, _) is left as it is, for templates compare words: so a special token that
//     begins like a word can be put together of words. One of a single character cannot be kept out.
//
// A mark is a code point that Unicode keeps for uses inside of programs; those in the texts themselves become U+FFFD.
type Guard struct {
	t        *Tokenizer
	specials *matcher        // special tokens of more than a character
	all      *matcher        // what ends a stretch of plain text in a prompt; nil: nothing does
	begins   map[string]bool // all proper prefixes of specials
	longest  int             // bytes of the longest of them
}

const guardMark = "\uFDD0"

// NewGuard makes a guard of the tokenizer's special tokens.
func (t *Tokenizer) NewGuard() *Guard {
	g := &Guard{t: t, begins: map[string]bool{}}
	var specials, all []addedToken
	for id := range int32(t.size) {
		a, ok := t.added[id]
		if !ok || a.Normalized && !a.Special {
			continue
		}
		token := *a
		token.form = a.Content
		all = append(all, token)
		if !a.Special || utf8.RuneCountInString(a.Content) < 2 {
			continue
		}
		specials = append(specials, token)
		for i := range a.Content {
			if i > 0 {
				g.begins[a.Content[:i]] = true
				g.longest = max(g.longest, i)
			}
		}
	}
	g.specials, g.all = newMatcher(specials), newMatcher(all)
	return g
}

// Mark gives a text with a mark in each special token, behind its first character, and one at the end if a special token may
// begin there. White space at the end does not count, for templates trim.
func (g *Guard) Mark(s string) string {
	s = strings.ReplaceAll(s, guardMark, "\uFFFD")
	if g.specials == nil {
		return s
	}
	var b strings.Builder
	done := 0
	put := func(at int) {
		b.WriteString(s[done:at])
		b.WriteString(guardMark)
		done = at
	}
	for {
		k, start, _ := g.specials.find(s, done)
		if k < 0 {
			break
		}
		_, first := utf8.DecodeRuneInString(s[start:])
		put(start + first)
	}
	trimmed := strings.TrimRightFunc(s, func(r rune) bool { return isSpace(r) || r >= 0x1C && r <= 0x1F }) // as Python's strip
	if (g.begun(trimmed) || g.begun(s)) && !isName(s) {
		if trimmed == "" {
			trimmed = s
		}
		put(max(len(trimmed), done))
	}
	if done == 0 {
		return s
	}
	b.WriteString(s[done:])
	return b.String()
}

// begun says whether a text ends with the beginning of a special token.
func (g *Guard) begun(s string) bool {
	for i := max(0, len(s)-g.longest); i < len(s); i++ {
		if g.begins[s[i:]] {
			return true
		}
	}
	return false
}

// isName says whether a text is one word.
func isName(s string) bool {
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' {
			return false
		}
	}
	return true
}

// Encode gives the ids of a prompt, without marks the same as the tokenizer.
func (g *Guard) Encode(prompt string, o EncodeOptions) []int32 {
	if g.all == nil || !strings.Contains(prompt, guardMark) {
		return g.t.Encode(prompt, o)
	}
	e := g.t.pool.get(g.t)
	e.out = make([]int32, 0, len(prompt)/3+8)
	if o.AddSpecial {
		e.out = append(e.out, g.t.prefix...)
	}
	prompt = validText(prompt)
	g.all.split(prompt, o.NoSpecialInText, func(from, to int) {
		e.encode(strings.ReplaceAll(prompt[from:to], guardMark, ""), from == 0, true)
	}, func(a *addedToken) { e.out = append(e.out, a.ID) })
	if o.AddSpecial {
		e.out = append(e.out, g.t.suffix...)
	}
	out := e.out
	g.t.pool.put(e)
	return out
}
