// SPDX-License-Identifier: MIT OR Apache-2.0

package tokenizer

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// addedToken is a token that is found in the text before the model sees it.
type addedToken struct {
	ID         int32
	Content    string
	SingleWord bool // only where no word character stands on either side
	LStrip     bool // takes the white space on its left along
	RStrip     bool // and on its right
	Normalized bool // is looked for, normalized, in the normalized text
	Special    bool

	form string // what is looked for and what decodes: Content, normalized if Normalized
}

// matcher finds added tokens: at each place from the left, the longest.
type matcher struct {
	tokens []addedToken
	first  [256]bool // bytes that a token begins with
	only   int       // the only such byte; -1: there are several
	root   [256]int32
	nodes  []trieNode
}

type trieNode struct {
	token int32 // index into tokens that ends here; -1: none
	edges []trieEdge
}

type trieEdge struct {
	b    byte
	node int32
}

// newMatcher makes a matcher; nil if there is nothing to find.
func newMatcher(tokens []addedToken) *matcher {
	if len(tokens) == 0 {
		return nil
	}
	m := &matcher{tokens: tokens, only: -1, nodes: make([]trieNode, 1)} // node 0 is no node
	for i, t := range tokens {
		if t.form == "" {
			continue
		}
		m.first[t.form[0]] = true
		at := &m.root[t.form[0]]
		for k := 1; ; k++ {
			if *at == 0 {
				*at = int32(len(m.nodes))
				m.nodes = append(m.nodes, trieNode{token: -1})
			}
			n := *at
			if k == len(t.form) {
				m.nodes[n].token = int32(i)
				break
			}
			at = m.edge(n, t.form[k])
		}
	}
	count := 0
	for b, ok := range m.first {
		if ok {
			m.only = b
			count++
		}
	}
	if count != 1 {
		m.only = -1
	}
	return m
}

// edge is where node n's edge for b leads, made if need be.
func (m *matcher) edge(n int32, b byte) *int32 {
	edges := &m.nodes[n].edges
	i, ok := slices.BinarySearchFunc(*edges, b, func(e trieEdge, b byte) int { return int(e.b) - int(b) })
	if !ok {
		*edges = slices.Insert(*edges, i, trieEdge{b, 0})
	}
	return &(*edges)[i].node
}

// find is the first token at or after from: its index, where it begins and ends; -1 if there is none.
func (m *matcher) find(s string, from int) (token, start, end int) {
	for i := from; i < len(s); i++ {
		if m.only >= 0 {
			k := strings.IndexByte(s[i:], byte(m.only))
			if k < 0 {
				return -1, 0, 0
			}
			i += k
		} else {
			for i < len(s) && !m.first[s[i]] {
				i++
			}
			if i == len(s) {
				return -1, 0, 0
			}
		}
		if token, end := m.longest(s, i); token >= 0 {
			return token, i, end
		}
	}
	return -1, 0, 0
}

// longest is the longest token that begins at s[i:].
func (m *matcher) longest(s string, i int) (token, end int) {
	token = -1
	for n := m.root[s[i]]; n != 0; {
		node := &m.nodes[n]
		i++
		if node.token >= 0 {
			token, end = int(node.token), i
		}
		if i == len(s) {
			break
		}
		n = 0
		for _, e := range node.edges {
			if e.b >= s[i] {
				if e.b == s[i] {
					n = e.node
				}
				break
			}
		}
	}
	return token, end
}

// split calls plain with each stretch of s that is not a token, and found with each token, in order. plainSpecial leaves
// special tokens in the plain text.
func (m *matcher) split(s string, plainSpecial bool, plain func(from, to int), found func(*addedToken)) {
	done := 0
	for from := 0; from < len(s); {
		k, start, end := m.find(s, from)
		if k < 0 {
			break
		}
		from = end
		t := &m.tokens[k]
		if plainSpecial && t.Special || t.SingleWord && insideWord(s, start, end) {
			continue
		}
		if t.LStrip {
			start = max(done, len(strings.TrimRightFunc(s[:start], isSpace)))
		}
		if t.RStrip {
			end = len(s) - len(strings.TrimLeftFunc(s[end:], isSpace))
		}
		if done < start {
			plain(done, start)
		}
		found(t)
		done = end
	}
	if done < len(s) {
		plain(done, len(s))
	}
}

// insideWord says whether a word character stands right before or after s[start:end].
func insideWord(s string, start, end int) bool {
	before, n := utf8.DecodeLastRuneInString(s[:start])
	after, m := utf8.DecodeRuneInString(s[end:])
	return n > 0 && isWord(before) || m > 0 && isWord(after)
}
