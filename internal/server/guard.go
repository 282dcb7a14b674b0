// SPDX-License-Identifier: MIT OR Apache-2.0

package server

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/metrale/metrale/internal/api/openai"
	"github.com/metrale/metrale/internal/tokenizer"
)

// guard keeps clients from writing control tokens: a special token that stands in the text of a message is plain text, and
// only those that the template writes are real. It works by a mark inside of such texts that no text may hold, which
// survives rendering, and is taken away when the prompt is tokenised.
type guard struct {
	byFirst [256][]special // by first byte, longest first
}

// special is a control token as text spells it. Some take the space before or after them away.
type special struct {
	text           string
	id             int32
	lstrip, rstrip bool
}

// mark is a code point that stands for nothing: Unicode keeps it for uses inside of programs.
const mark = "\uFDD0"

func newGuard(t *tokenizer.Tokenizer) *guard {
	g := &guard{}
	is := func(text string, id int32) bool {
		ids := t.Encode(text, tokenizer.EncodeOptions{})
		return len(ids) == 1 && ids[0] == id
	}
	for id := range int32(t.VocabSize()) {
		if !t.IsSpecial(id) {
			continue
		}
		if text, ok := t.Token(id); ok && len(text) > 1 && is(text, id) {
			g.byFirst[text[0]] = append(g.byFirst[text[0]], special{text, id, is(" "+text, id), is(text+" ", id)})
		}
	}
	for _, list := range g.byFirst {
		slices.SortFunc(list, func(a, b special) int { return cmp.Compare(len(b.text), len(a.text)) })
	}
	return g
}

// find gives the first special token in s, nil if there is none.
func (g *guard) find(s string) (at int, found *special) {
	for i := range len(s) {
		list := g.byFirst[s[i]]
		for k := range list {
			if strings.HasPrefix(s[i:], list[k].text) {
				return i, &list[k]
			}
		}
	}
	return len(s), nil
}

// marked gives the conversation with marks in the special tokens of its texts, and whether there are any.
func (g *guard) marked(c *openai.Conversation) (*openai.Conversation, bool) {
	any := false
	c.MapStrings(func(s string) string {
		if !any {
			_, sp := g.find(s)
			any = sp != nil
		}
		return s
	})
	if !any {
		return c, false
	}
	return c.MapStrings(g.mark), true
}

// mark puts marks into the special tokens of a text.
func (g *guard) mark(s string) string {
	s = strings.ReplaceAll(s, mark, "\uFFFD")
	var b strings.Builder
	for {
		at, sp := g.find(s)
		if sp == nil {
			b.WriteString(s)
			return b.String()
		}
		_, first := utf8.DecodeRuneInString(sp.text)
		b.WriteString(s[:at+first] + mark)
		s = s[at+first:]
	}
}

// encode tokenises a rendered prompt: special tokens without a mark are real, and what has marks is plain.
func (g *guard) encode(t *tokenizer.Tokenizer, prompt string) []int32 {
	var ids []int32
	for {
		at, sp := g.find(prompt)
		text := prompt[:at]
		if sp != nil && sp.lstrip {
			text = strings.TrimRight(text, " \t\n\r")
		}
		plain := strings.ReplaceAll(text, mark, "")
		ids = t.AppendEncode(ids, plain, tokenizer.EncodeOptions{NoSpecialInText: plain != text})
		if sp == nil {
			return ids
		}
		ids = append(ids, sp.id)
		prompt = prompt[at+len(sp.text):]
		if sp.rstrip {
			prompt = strings.TrimLeft(prompt, " \t\n\r")
		}
	}
}
