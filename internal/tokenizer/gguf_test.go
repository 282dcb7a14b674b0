// SPDX-License-Identifier: MIT OR Apache-2.0

package tokenizer

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/diag"
)

// metadata is GGUF metadata for tests.
type metadata map[string]any

func get[T any](m metadata, key string) (T, bool) { v, ok := m[key].(T); return v, ok }

func (m metadata) String(key string) (string, bool)    { return get[string](m, key) }
func (m metadata) Strings(key string) ([]string, bool) { return get[[]string](m, key) }
func (m metadata) Ints(key string) ([]int64, bool)     { return get[[]int64](m, key) }
func (m metadata) Floats(key string) ([]float32, bool) { return get[[]float32](m, key) }
func (m metadata) Bool(key string) (bool, bool)        { return get[bool](m, key) }
func (m metadata) Int(key string) (int64, bool) {
	v, ok := get[int](m, key)
	return int64(v), ok
}

// goldenMetadata is a golden model as the converters write it: added tokens at the end, types for all.
func goldenMetadata(t *testing.T, model string, added ...string) metadata {
	t.Helper()
	var g golden
	readGolden(t, "golden.json.gz", &g)
	var m struct {
		Vocab  map[string]int
		Merges json.RawMessage
	}
	if err := json.Unmarshal(g.Models[model], &m); err != nil {
		t.Fatal(err)
	}
	tokens := slices.SortedFunc(maps.Keys(m.Vocab), func(a, b string) int { return cmp.Compare(m.Vocab[a], m.Vocab[b]) })
	types := make([]int64, len(tokens))
	for i, s := range tokens {
		types[i] = typeNormal
		if _, ok := byteToken(s); ok {
			types[i] = typeByte
		}
	}
	for i, s := range []string{"<unk>", "<s>", "</s>"} {
		if tokens[i] == s {
			types[i] = []int64{typeUnknown, typeControl, typeControl}[i]
		}
	}
	for _, s := range added {
		kind := int64(typeControl)
		if strings.HasPrefix(s, "user:") {
			s, kind = s[5:], typeUserDefined
		}
		tokens, types = append(tokens, s), append(types, kind)
	}
	var merges []string
	if json.Unmarshal(m.Merges, &merges) != nil {
		var pairs [][2]string
		if err := json.Unmarshal(m.Merges, &pairs); err != nil {
			t.Fatal(err)
		}
		merges = nil
		for _, p := range pairs {
			merges = append(merges, p[0]+" "+p[1])
		}
	}
	return metadata{gguf + "tokens": tokens, gguf + "token_type": types, gguf + "merges": merges}
}

func (m metadata) with(changes ...any) metadata {
	m = maps.Clone(m)
	for i := 0; i < len(changes); i += 2 {
		key := changes[i].(string)
		if !strings.HasPrefix(key, "tokenizer.") {
			key = gguf + key
		}
		if changes[i+1] == nil {
			delete(m, key)
		} else {
			m[key] = changes[i+1]
		}
	}
	return m
}

// A gpt2 vocabulary with a named pre-tokenizer gives the ids of the tokenizer.json that it stands for.
func TestGGUFByteLevel(t *testing.T) {
	m := goldenMetadata(t, "bytes").with("model", "gpt2")
	sample := readSample(t)
	for pre, same := range map[string]string{
		"smollm": "digits True", "gpt-2": "pattern gpt2", "llama-bpe": "pattern llama3", "qwen35": "pattern qwen3.5", "gpt-4o": "pattern o200k",
		"deepseek-v3": "deepseek", "falcon": "falcon", "seed-coder": "pattern seed", "bailingmoe": "pattern bailing",
	} {
		a, err := FromGGUF(m.with("pre", pre, "bos_token_id", 1))
		if err != nil {
			t.Errorf("%s: %v", pre, err)
			continue
		}
		b := goldenTokenizer(t, same)
		b.added, b.byText, b.specialForms, b.raw, b.normalized = nil, nil, nil, nil, nil
		got, want := a.Encode(sample, EncodeOptions{}), b.Encode(sample, EncodeOptions{})
		if pre == "llama-bpe" { // looks pieces up whole, which the golden one does not
			b.bpe.whole = b.bpe.wholeTokens(&b.vocab)
			want = b.Encode(sample, EncodeOptions{})
		}
		if pre == "qwen35" { // normalizes
			want = b.Encode(unicodeForm{}.normalize(sample), EncodeOptions{})
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s differs from %s", pre, same)
		}
		if text := a.Decode(got, false); pre != "qwen35" && text != sample {
			t.Errorf("%s: the sample does not survive", pre)
		}
	}
}

// Every preset loads.
func TestGGUFPresets(t *testing.T) {
	m := goldenMetadata(t, "bytes").with("model", "gpt2", "bos_token_id", 1)
	for pre := range presets {
		tok, err := FromGGUF(m.with("pre", pre))
		if err != nil {
			e, _ := diag.As(err)
			t.Errorf("%s: %s", pre, e.Detail())
			continue
		}
		const text = "It's 12345 o'clock, 日本語 naïve\n\n  x\u3000Ж"
		if got := tok.Decode(tok.Encode(text, EncodeOptions{}), false); got != text {
			t.Errorf("%s: %q", pre, got)
		}
	}
}

// mergeByScore is SentencePiece's way: the neighbours that make the token of the highest score merge first.
func mergeByScore(text string, id map[string]int, score []float32) (out []string) {
	for _, r := range text {
		out = append(out, string(r))
	}
	for {
		best := -1
		for i := 0; i+1 < len(out); i++ {
			k, ok := id[out[i]+out[i+1]]
			if ok && (best < 0 || score[k] > score[id[out[best]+out[best+1]]]) {
				best = i
			}
		}
		if best < 0 {
			return out
		}
		out = slices.Concat(out[:best], []string{out[best] + out[best+1]}, out[best+2:])
	}
}

func TestGGUFScores(t *testing.T) {
	m := goldenMetadata(t, "pieces").with("model", "llama", "merges", nil)
	tokens, types := m[gguf+"tokens"].([]string), m[gguf+"token_type"].([]int64)
	scores, ids := make([]float32, len(tokens)), map[string]int{}
	for i, s := range tokens {
		scores[i] = -float32(i)
		if types[i] == typeNormal {
			ids[s] = i
		}
	}
	tok, err := FromGGUF(m.with("scores", scores))
	if err != nil {
		t.Fatal(err)
	}
	sample := []rune(readSample(t))
	for i := 0; i+60 < len(sample); i += 200 {
		text := string(sample[i : i+60])
		var want []string
		for _, s := range mergeByScore("▁"+strings.ReplaceAll(text, " ", "▁"), ids, scores) {
			if _, ok := ids[s]; ok {
				want = append(want, s)
				continue
			}
			for _, b := range []byte(s) {
				want = append(want, tokens[3+int(b)])
			}
		}
		got := tok.Encode(text, EncodeOptions{})
		if !slices.Equal(spell(tok, got), want) {
			t.Errorf("%q\n got %q\nwant %q", text, spell(tok, got), want)
		}
		if back := tok.Decode(got, false); back != text {
			t.Errorf("%q decodes to %q", text, back)
		}
	}
}

func TestGGUFOptions(t *testing.T) {
	pieces := goldenMetadata(t, "pieces", "user:<x>", "<|im_end|>").with("model", "llama")
	n := len(pieces[gguf+"tokens"].([]string))
	pieces = pieces.with("scores", make([]float32, n))
	bytes := goldenMetadata(t, "bytes", "<|s|>").with("model", "gpt2", "pre", "qwen2", "eos_token_id", 1200)
	for _, c := range []struct {
		name string
		m    metadata
		text string
		want []string // with special tokens
	}{
		{"begin by default, prefix", pieces, "a", []string{"<s>", "▁a"}},
		{"no prefix", pieces.with("add_space_prefix", false), "a", []string{"<s>", "a"}},
		{"no begin, but end", pieces.with("add_bos_token", false, "add_eos_token", true), "a", []string{"▁a", "</s>"}},
		{"other begin", pieces.with("bos_token_id", n-1), "a", []string{"<|im_end|>", "▁a"}},
		{"added tokens", pieces, "a<x>b<|im_end|>", []string{"<s>", "▁a", "<x>", "▁b", "<|im_end|>"}},
		{"byte-level, none", bytes, "a<|s|>", []string{"a", "<|s|>"}},
		{"byte-level, end", bytes.with("add_eos_token", true), "a", []string{"a", "<|s|>"}},
		{"gemma4", pieces.with("model", "gemma4", "bos_token_id", 1), "a a", []string{"<s>", "a", "▁a"}},
	} {
		tok, err := FromGGUF(c.m)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		ids := tok.Encode(c.text, EncodeOptions{AddSpecial: true})
		if got := spell(tok, ids); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	tok, err := FromGGUF(pieces.with("tokenizer.chat_template", "d", "tokenizer.chat_templates", []string{"rag"}, "tokenizer.chat_template.rag", "r",
		"padding_token_id", n-1))
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := tok.Config().ChatTemplate("rag"); text != "r" {
		t.Errorf("template rag is %q", text)
	}
	if text, _ := tok.Config().ChatTemplate(""); text != "d" {
		t.Errorf("template is %q", text)
	}
	if id, ok := tok.Pad(); !ok || int(id) != n-1 || !tok.IsSpecial(id) || tok.IsSpecial(int32(n-2)) {
		t.Errorf("padding is %d, %v", id, ok)
	}
}

func TestGGUFRefusals(t *testing.T) {
	bytes := goldenMetadata(t, "bytes").with("model", "gpt2", "pre", "gpt-2")
	for _, c := range []struct {
		m    metadata
		code diag.Code
		want string
	}{
		{bytes.with("model", nil), diag.Format, "tokenizer.ggml.model: missing"},
		{bytes.with("model", "bert"), diag.Unsupported, `tokenizer.ggml.model: "bert" is not supported; gpt2, llama and gemma4 are`},
		{bytes.with("pre", "klingon"), diag.Unsupported, `tokenizer.ggml.pre: "klingon" is not a supported pre-tokenizer`},
		{bytes.with("tokens", nil), diag.Format, "tokenizer.ggml.tokens: missing"},
		{bytes.with("tokens", []string{"a", "a"}, "token_type", nil), diag.Format, `token "a" has the ids 0 and 1`},
		{bytes.with("tokens", []string{"\xff"}, "token_type", nil), diag.Format, "token 0 is not UTF-8"},
		{bytes.with("token_type", []int64{1}), diag.Format, "tokenizer.ggml.token_type: 1 types for"},
		{bytes.with("merges", nil), diag.Format, "tokenizer.ggml.merges: missing"},
		{bytes.with("merges", []string{"ab"}), diag.Format, `merge 0 is not two tokens: "ab"`},
		{bytes.with("merges", []string{"a ", " a", ""}), diag.Format, `merge 0 is not of tokens in the vocabulary: "a "`},
		{bytes.with("model", "llama"), diag.Format, "tokenizer.ggml.scores: missing, or not as many as tokens"},
		{bytes.with("bos_token_id", -1), diag.Format, "tokenizer.ggml.bos_token_id: -1 is not the id of a token"},
		{bytes.with("add_eos_token", true), diag.Format, "tokenizer.ggml.eos_token_id: missing, and texts shall have that token"},
	} {
		_, err := FromGGUF(c.m)
		if err == nil || !diag.Is(err, c.code) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %s: %s", err, c.code, c.want)
		}
	}
}
