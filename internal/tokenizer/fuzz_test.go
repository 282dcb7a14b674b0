// SPDX-License-Identifier: MIT OR Apache-2.0

package tokenizer

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// No file makes the loader panic, and what it loads encodes and decodes.
func FuzzFromJSON(f *testing.F) {
	f.Add(small{}.file(), []byte(`{}`))
	f.Add(small{}.file("normalizer", `{"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Prepend", "prepend": "▁"}]}`,
		"pre_tokenizer", `{"type": "Split", "pattern": {"Regex": "\\s+|(?i:'s)"}, "behavior": "Contiguous", "invert": true}`), []byte(`{"bos_token": "a"}`))
	f.Add(small{}.file("added_tokens", `[{"id": 4, "content": " x", "lstrip": true, "rstrip": true, "single_word": true, "normalized": true, "special": true}]`,
		"pre_tokenizer", `{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"}`, "decoder", `{"type": "Sequence", "decoders":
		[{"type": "Metaspace", "replacement": "▁"}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 1}]}`),
		[]byte(`{"added_tokens_decoder": {"9": {"content": "y"}}}`))
	f.Add(small{}.file("pre_tokenizer", `{"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "Digits"}, {"type": "Punctuation"}]}`,
		"post_processor", `{"type": "RobertaProcessing", "sep": ["a", 0], "cls": ["b", 1]}`), []byte(nil))
	for _, list := range []string{`{"type": "ByteLevel"}, {"type": "Metaspace", "replacement": "▁"}`, `{"type": "ByteLevel"}, {"type": "ByteLevel", "use_regex": false}`,
		`{"type": "Metaspace", "replacement": "▁"}, {"type": "ByteLevel", "add_prefix_space": true}, {"type": "Whitespace"}`} {
		f.Add(small{}.file("pre_tokenizer", `{"type": "Sequence", "pretokenizers": [`+list+`]}`), []byte(nil))
	}
	f.Fuzz(func(t *testing.T, file, config []byte) {
		tok, err := FromJSON(file, config)
		if err != nil {
			if err.Error() == "" {
				t.Error("an error without text")
			}
			return
		}
		ids := tok.Encode("ab a'S 12\n\nxé▁日本", EncodeOptions{AddSpecial: true})
		if text := tok.Decode(ids, true); !utf8.ValidString(text) {
			t.Errorf("decoded %q", text)
		}
	})
}

// A byte-level text comes back whole, as ids, as tokens' bytes, and streamed; malformed bytes as U+FFFD.
func FuzzRoundTrip(f *testing.F) {
	for _, s := range []string{"", "Hello, world!", "it's 123\r\n\r\n  x", "日本語 한국어 ไทย हिन्दी", "\xff\xe4\xb8", "\u0301\u200d👩‍👩‍👧", "ſ'ſ", strings.Repeat("ab", 99)} {
		f.Add(s)
	}
	var all []*Tokenizer
	for _, name := range []string{"falcon", "split Isolated False Regex (?i:'s", "punctuation Isolated"} {
		all = append(all, goldenTokenizer(f, name))
	}
	f.Fuzz(func(t *testing.T, text string) {
		want := validText(text)
		for _, tok := range all {
			ids := tok.Encode(text, EncodeOptions{})
			if got := tok.Decode(ids, false); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			d, parts, bytes := tok.NewDecoder(false), "", []byte(nil)
			for _, id := range ids {
				parts += d.Push(id)
				bytes = append(bytes, tok.TokenBytes(id)...)
			}
			if parts += d.Flush(); parts != want || string(bytes) != want {
				t.Errorf("streamed %q, bytes %q, want %q", parts, bytes, want)
			}
		}
	})
}

// No regular expression makes the translator panic, and its matches are in order and inside.
func FuzzPattern(f *testing.F) {
	for expr := range knownPatterns {
		f.Add(expr)
	}
	for _, expr := range []string{`[^(\s|.,!?…)]+`, `(?<=a)b|(?<!c)d`, `[a-z&&[^b]]{2,3}?`, `\x{1F600}\u00e9\p{^Lu}`, `(?>a+)b`, `$`, `[[]`, `(?i:k)`, `a{,2}`} {
		f.Add(expr)
	}
	f.Fuzz(func(t *testing.T, expr string) {
		if len(expr) > 200 || strings.Count(expr, "*")+strings.Count(expr, "+")+strings.Count(expr, "{") > 4 {
			return // it could backtrack for long
		}
		p, err := compilePattern(expr)
		if err != nil {
			return
		}
		const text = "aB c'S 12\n\ndé日本k"
		end := uint32(0)
		for _, m := range p.findAll(text) {
			if m.from < end || m.to < m.from || int(m.to) > len(text) {
				t.Errorf("%q: match %v after %d", expr, m, end)
			}
			end = m.to
		}
	})
}

// No vocabulary of a GGUF file makes the loader panic, and what it loads encodes and decodes.
func FuzzFromGGUF(f *testing.F) {
	f.Add("gpt2", "llama-bpe", "a\nb\nab\n<s>", "a b", []byte{1, 1, 1, 3})
	f.Add("llama", "", "<unk>\n<s>\n</s>\n▁\na\n▁a\n<0x41>", "", []byte{2, 3, 3, 1, 1, 1, 6})
	f.Add("gemma4", "", "▁\n\na", "▁ a", []byte{4})
	f.Fuzz(func(t *testing.T, model, pre, tokens, merges string, types []byte) {
		m := metadata{gguf + "model": model, gguf + "pre": pre, gguf + "tokens": strings.Split(tokens, "\n"), gguf + "merges": strings.Split(merges, "\n")}
		n := len(strings.Split(tokens, "\n"))
		kinds, scores := make([]int64, n), make([]float32, n)
		for i := range kinds {
			kinds[i], scores[i] = typeNormal, float32(i%7)
			if i < len(types) {
				kinds[i], scores[i] = int64(types[i]%8), float32(types[i])
			}
		}
		tok, err := FromGGUF(m.with("token_type", kinds, "scores", scores, "bos_token_id", 0))
		if err != nil {
			return
		}
		ids := tok.Encode("ab a'S 12\n\nxé▁日本", EncodeOptions{AddSpecial: true})
		if text := tok.Decode(ids, true); !utf8.ValidString(text) {
			t.Errorf("decoded %q", text)
		}
	})
}
