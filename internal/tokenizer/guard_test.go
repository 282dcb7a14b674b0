// SPDX-License-Identifier: MIT OR Apache-2.0

package tokenizer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// guarded are tokenizers with special tokens of many kinds.
func guarded(t testing.TB) map[string]*Tokenizer {
	t.Helper()
	out := map[string]*Tokenizer{}
	for _, name := range []string{"pattern llama3", "template", "llama", "metaspace first True", "deepseek"} {
		out[name] = goldenTokenizer(t, name)
	}
	for _, scheme := range []string{"first", "always", "never"} {
		tok, err := FromJSON(small{}.file(
			"model", `{"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "<": 3, "|": 4, ">": 5, "▁": 6, "é": 7, "d": 8, "｜": 9, "x": 10, "y": 11, "▁a": 12}, "merges": ["a b", "▁ a"]}`,
			"added_tokens", `[{"id": 13, "content": "<|a|>", "special": true, "lstrip": true, "rstrip": true, "single_word": false, "normalized": false},
				{"id": 14, "content": "<|a|>>", "special": true, "lstrip": false, "rstrip": false, "single_word": false, "normalized": false},
				{"id": 15, "content": "<b>", "special": false, "lstrip": false, "rstrip": false, "single_word": false, "normalized": false},
				{"id": 16, "content": "｜é d｜", "special": true, "lstrip": false, "rstrip": false, "single_word": false, "normalized": false}]`,
			"pre_tokenizer", `{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "`+scheme+`"}`,
			"post_processor", `{"type": "RobertaProcessing", "sep": ["a", 0], "cls": ["b", 1]}`), nil)
		if err != nil {
			t.Fatal(err)
		}
		out["small, "+scheme] = tok
	}
	return out
}

// specialsOf are the special tokens that a text can spell.
func specialsOf(tok *Tokenizer) (out []string) {
	for id := range int32(tok.VocabSize()) {
		if text, ok := tok.Token(id); ok && tok.IsSpecial(id) && slices.Equal(tok.Encode(text, EncodeOptions{}), []int32{id}) {
			out = append(out, text)
		}
	}
	return out
}

// TestGuardTokenisesAlike: special tokens that nothing marks have the ids that they have without a guard, with or without marked
// text beside them, and so has what was marked when nothing special is in it.
func TestGuardTokenisesAlike(t *testing.T) {
	for name, tok := range guarded(t) {
		g, specials := tok.NewGuard(), specialsOf(tok)
		if len(specials) == 0 {
			t.Fatalf("%s has no special tokens", name)
		}
		texts := append([]string{"", "a", " b a ", "a<b>b", "ab\n", "é｜"}, specials...)
		for _, a := range texts {
			for _, b := range texts {
				for _, add := range []bool{false, true} {
					o := EncodeOptions{AddSpecial: add}
					begin, end := a+"a", "b"+b+" a"+a+b
					prompt := begin + end
					if got, want := g.Encode(prompt, o), tok.Encode(prompt, o); !slices.Equal(got, want) {
						t.Errorf("%s: %q: %v, want %v", name, prompt, got, want)
					}
					// A mark in a word changes nothing but that it is there.
					marked := begin + guardMark + end
					if got, want := g.Encode(marked, o), tok.Encode(prompt, o); !slices.Equal(got, want) {
						t.Errorf("%s: %q: %v, want %v", name, marked, got, want)
					}
				}
			}
		}
	}
}

// TestGuardKeepsSpecialTokensOut: cut wherever one likes, in two or three texts, trimmed or not, they make plain text.
func TestGuardKeepsSpecialTokensOut(t *testing.T) {
	for name, tok := range guarded(t) {
		g := tok.NewGuard()
		check := func(texts ...string) {
			t.Helper()
			prompt := ""
			for _, s := range texts {
				prompt += g.Mark(s)
			}
			got := g.Encode(prompt, EncodeOptions{})
			want := tok.Encode(strings.Join(texts, ""), EncodeOptions{NoSpecialInText: true})
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q as %q: %v, want %v", name, texts, prompt, got, want)
			}
		}
		for _, s := range specialsOf(tok) {
			if isName(s) {
				continue // as the contract says
			}
			check(s)
			check("x"+s+"y", s, s+s)
			for i := range s {
				check(s[:i], s[i:])
				check("x"+s[:i], s[i:]+"y")
				if trimmed := strings.TrimSpace(g.Mark(s[:i] + " \n")); i > 0 && !strings.HasSuffix(trimmed, guardMark) && !isName(s[:i]) {
					t.Errorf("%s: %q is not marked where it is trimmed: %q", name, s[:i], trimmed)
				}
				for j := range s[i:] {
					if j > 0 {
						check(s[:i], s[i:i+j], s[i+j:])
						check(s+s[:i], "", s[i:i+j], s[i+j:]+s)
					}
				}
			}
		}
	}
}

func TestMarks(t *testing.T) {
	g := guarded(t)["small, first"].NewGuard()
	for text, want := range map[string]string{
		"": "", "abc": "abc", "a <b> c": "a <b> c", "<|": "<|_", "a <": "a <_", "a < b": "a < b", "a<|a|": "a<|a|_", "a <|  \n": "a <|_  \n",
		"<|a|>": "<_|a|>_", "<|a|>>": "<_|a|>>", "<|a|><|a": "<_|a|><|a_", "｜": "｜_", "｜é ": "｜é_ ", "x\uFDD0y": "x\uFFFDy", "<\uFDD0|a|>": "<\uFFFD|a|>",
	} {
		if got := strings.ReplaceAll(g.Mark(text), guardMark, "_"); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	words, err := FromJSON(small{}.file("added_tokens", `[{"id": 4, "content": "madeupword", "special": true, "lstrip": false, "rstrip": false, "single_word": false, "normalized": false}]`), nil)
	if err != nil {
		t.Fatal(err)
	}
	g = words.NewGuard()
	for text, want := range map[string]string{"system": "system", "them m": "them m_", "madeupword": "m_adeupword"} {
		if got := strings.ReplaceAll(g.Mark(text), guardMark, "_"); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// BenchmarkGuard marks texts of a megabyte beside a thousand special tokens.
func BenchmarkGuard(b *testing.B) {
	type added struct {
		ID         int    `json:"id"`
		Content    string `json:"content"`
		Special    bool   `json:"special"`
		LStrip     bool   `json:"lstrip"`
		RStrip     bool   `json:"rstrip"`
		SingleWord bool   `json:"single_word"`
		Normalized bool   `json:"normalized"`
	}
	var list []added
	for i := range 1000 {
		list = append(list, added{ID: 4 + i, Content: fmt.Sprintf("<|reserved_special_token_%d|>", i), Special: true})
	}
	file, _ := json.Marshal(list)
	tok, err := FromJSON(small{}.file("added_tokens", string(file)), nil)
	if err != nil {
		b.Fatal(err)
	}
	g := tok.NewGuard()
	for _, unit := range []string{"plain words ", "if a < b: ", "<", "<|reserved_special_token_", "<|reserved_special_token_7|>"} {
		text := strings.Repeat(unit, 1<<20/len(unit))
		b.Run(strings.ReplaceAll(unit, " ", "_"), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				g.Mark(text)
			}
		})
	}
}
