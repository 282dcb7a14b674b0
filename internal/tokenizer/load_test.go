// SPDX-License-Identifier: MIT OR Apache-2.0

package tokenizer

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/diag"
)

// small is a tokenizer.json whose parts a test can change.
type small map[string]string

func (s small) file(changes ...string) []byte {
	parts := map[string]string{
		"added_tokens": `[]`, "normalizer": `null`, "pre_tokenizer": `null`, "post_processor": `null`, "decoder": `null`,
		"model": `{"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "<u>": 3}, "merges": ["a b"]}`,
	}
	for k, v := range s {
		parts[k] = v
	}
	for i := 0; i+1 < len(changes); i += 2 {
		parts[changes[i]] = changes[i+1]
	}
	var b bytes.Buffer
	b.WriteString("{\n  \"version\": \"1.0\"")
	for _, key := range []string{"added_tokens", "normalizer", "pre_tokenizer", "post_processor", "decoder", "model", "more"} {
		if v, ok := parts[key]; ok && v != "" {
			b.WriteString(",\n  \"" + key + "\": " + v)
		}
	}
	b.WriteString("\n}\n")
	return b.Bytes()
}

// What cannot be honoured is refused, by name.
func TestRefusals(t *testing.T) {
	model := func(rest string) string {
		return `{"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"], ` + rest + `}`
	}
	split := func(pattern string) string {
		p, _ := json.Marshal(pattern)
		return `{"type": "Split", "pattern": {"Regex": ` + string(p) + `}, "behavior": "Isolated", "invert": false}`
	}
	for _, c := range []struct {
		part, value string
		code        diag.Code
		want        string
	}{
		{"model", `{"type": "Unigram", "unk_id": 0, "vocab": [["a", 0.5]]}`, diag.Unsupported, `model: "Unigram" is not supported; BPE is`},
		{"model", `{"unk_id": 0, "vocab": [["a", 0.5]]}`, diag.Unsupported, `model: "unk_id" is not a key of BPE`},
		{"model", `{"vocab": [["a", 0.5]]}`, diag.Unsupported, `model: Unigram is not supported; BPE is`},
		{"model", `{"type": "WordPiece", "vocab": {}}`, diag.Unsupported, `model: "WordPiece" is not supported`},
		{"model", `{"type": "WordLevel", "vocab": {}}`, diag.Unsupported, `model: "WordLevel" is not supported`},
		{"model", `{"type": "BPE", "vocab": {"a": 0}}`, diag.Format, `vocab or merges are missing`},
		{"model", model(`"dropout": 0.1`), diag.Unsupported, `dropout 0.1 would make ids random`},
		{"model", model(`"end_of_word_suffix": "</w>"`), diag.Unsupported, `end_of_word_suffix "</w>" is not supported`},
		{"model", model(`"continuing_subword_prefix": "##"`), diag.Unsupported, `continuing_subword_prefix "##" is not supported`},
		{"model", model(`"unk_token": "?"`), diag.Format, `unk_token "?" is not in the vocabulary`},
		{"model", model(`"fuse_unk": 3`), diag.Format, `model.fuse_unk does not follow its format`},
		{"model", model(`"cache": 3`), diag.Unsupported, `"cache" is not a key of BPE`},
		{"model", `{"type": "BPE", "vocab": {"a": 0, "b": 0}, "merges": []}`, diag.Format, `two tokens have id 0`},
		{"model", `{"type": "BPE", "vocab": {"a": 0, "a": 1}, "merges": []}`, diag.Format, `token "a" has the ids 0 and 1`},
		{"model", `{"type": "BPE", "vocab": {"a": -1}, "merges": []}`, diag.Format, `expected an id, a whole number from 0 to 2097151`},
		{"model", `{"type": "BPE", "vocab": {"a": 1.5}, "merges": []}`, diag.Format, `expected an id`},
		{"model", `{"type": "BPE", "vocab": {"a": 99999999}, "merges": []}`, diag.Format, `expected an id`},
		{"model", `{"type": "BPE", "vocab": {"a": 0}, "merges": ["a a"]}`, diag.Format, `merge 0, "a" and "a", is not of tokens in the vocabulary`},
		{"model", `{"type": "BPE", "vocab": {"a": 0}, "merges": ["aa"]}`, diag.Format, `a merge must be two tokens with a space between: "aa"`},
		{"model", `{"type": "BPE", "vocab": {"a": 0}, "merges": [["a"]]}`, diag.Format, `a merge must be a pair of tokens`},
		{"model", `3`, diag.Format, `expected the model`},
		{"model", ``, diag.Format, `no model`},
		{"more", `1`, diag.Unsupported, `unknown key "more"`},
		{"added_tokens", `[{"id": 9, "content": "<x>"}]`, diag.Format, `added token "<x>" says id 9, but its place in the vocabulary is 4`},
		{"added_tokens", `[{"id": 4, "content": "<x>", "odd": 1}]`, diag.Format, `added_tokens does not follow its format`},
		{"added_tokens", `[{"content": "<x>"}]`, diag.Format, `an added token needs content and an id`},
		{"normalizer", `{"type": "Precompiled", "precompiled_charsmap": ""}`, diag.Unsupported, `normalizer: "Precompiled" is not supported`},
		{"normalizer", `{"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Nmt"}]}`, diag.Unsupported, `normalizer[1]: "Nmt" is not supported`},
		{"normalizer", `{"type": "BertNormalizer", "clean_text": true}`, diag.Unsupported, `normalizer: "BertNormalizer" is not supported`},
		{"normalizer", `{"type": "Replace", "pattern": {"String": ""}, "content": ""}`, diag.Format, `the pattern must be a String that is not empty or a Regex`},
		{"normalizer", `{"type": "NFC", "version": 15}`, diag.Format, `normalizer does not follow its format`},
		{"normalizer", `[]`, diag.Format, `normalizer must be an object with a type`},
		{"pre_tokenizer", `{"type": "BertPreTokenizer"}`, diag.Unsupported, `pre_tokenizer: "BertPreTokenizer" is not supported`},
		{"pre_tokenizer", `{"type": "UnicodeScripts"}`, diag.Unsupported, `"UnicodeScripts" is not supported`},
		{"pre_tokenizer", `{"type": "Metaspace", "replacement": "__"}`, diag.Format, `the replacement must be one character`},
		{"pre_tokenizer", `{"type": "Metaspace", "replacement": "_", "add_prefix_space": false, "prepend_scheme": "always"}`, diag.Format, `add_prefix_space false needs prepend_scheme never`},
		{"pre_tokenizer", split(`(a)\1`), diag.Unsupported, `pre_tokenizer: in the pattern "(a)\\1", at byte 5: \1 is not supported`},
		{"pre_tokenizer", split(`\h+`), diag.Unsupported, `\h is not supported`},
		{"pre_tokenizer", split(`^a`), diag.Unsupported, `"^" is not supported`},
		{"pre_tokenizer", split(`\p{Lycian}`), diag.Unsupported, `\p{Lycian} is not supported`},
		{"pre_tokenizer", split(`(?i:straße)`), diag.Unsupported, `"st" without regard to case is not supported`},
		{"pre_tokenizer", split(`(?<n>a)`), diag.Unsupported, `this kind of group is not supported`},
		{"pre_tokenizer", split(`(a`), diag.Unsupported, `"(" without ")"`},
		{"pre_tokenizer", split(`[a`), diag.Unsupported, `"[" without "]"`},
		{"pre_tokenizer", split(`a{2}{3}`), diag.Unsupported, `quantifier after a quantifier`},
		{"pre_tokenizer", `{"type": "Split", "pattern": {"String": "a"}, "behavior": "isolated"}`, diag.Unsupported, `pre_tokenizer.behavior: "isolated" is not supported`},
		{"pre_tokenizer", `{"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "ByteLevel"}]}`, diag.Unsupported, `pre_tokenizer[1]: a second ByteLevel is not supported`},
		{"pre_tokenizer", `{"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "ByteLevel", "use_regex": false}]}`, diag.Unsupported, `pre_tokenizer[1]: a second ByteLevel is not supported`},
		{"pre_tokenizer", `{"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}, {"type": "Metaspace", "replacement": "▁"}]}`, diag.Unsupported, `pre_tokenizer[1]: Metaspace after ByteLevel is not supported`},
		{"pre_tokenizer", `{"type": "Sequence", "pretokenizers": [{"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}]}, {"type": "Digits"}, {"type": "Sequence", "pretokenizers": [{"type": "Digits"}, {"type": "Metaspace", "replacement": "a"}]}]}`,
			diag.Unsupported, `pre_tokenizer[2]: Metaspace after ByteLevel is not supported`},
		{"post_processor", `{"type": "TemplateProcessing", "single": [], "pair": [], "special_tokens": {}}`, diag.Unsupported, `single has the text 0 times`},
		{"post_processor", `{"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x", "type_id": 0}}], "pair": [], "special_tokens": {}}`, diag.Format, `"x" is not among special_tokens`},
		{"post_processor", `{"type": "Else"}`, diag.Unsupported, `post_processor: "Else" is not supported`},
		{"decoder", `{"type": "CTC", "pad_token": "", "word_delimiter_token": "", "cleanup": true}`, diag.Unsupported, `decoder: "CTC" is not supported`},
		{"decoder", `{"type": "Sequence", "decoders": [{"type": "WordPiece"}]}`, diag.Unsupported, `decoder[0]: "WordPiece" is not supported`},
	} {
		_, err := FromJSON(small{}.file(c.part, c.value), nil)
		e, ok := diag.As(err)
		if !ok || e.Code != c.code || !strings.Contains(e.Error(), c.want) || !strings.HasPrefix(e.Error(), "tokenizer.json:") {
			t.Errorf("%s %s\n got %v\nwant %s: … %s", c.part, c.value, err, c.code, c.want)
		}
	}
}

// Whatever stands after ByteLevel cuts its alphabet: each byte comes back, or is dropped.
func TestAfterByteLevel(t *testing.T) {
	vocab := map[string]int{}
	for b, c := range byteChars {
		vocab[string(c)] = b
	}
	model, err := json.Marshal(map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}})
	if err != nil {
		t.Fatal(err)
	}
	text := "ab  a'S 12\n\nxé▁日本\u00a0\u00ad\U0001F600"
	for b := range rune(0x180) {
		text += string(b)
	}
	for after, whole := range map[string]bool{
		`{"type": "Split", "pattern": {"Regex": "Ġ|a+"}, "behavior": "Isolated", "invert": false}`:                 true,
		`{"type": "Split", "pattern": {"String": "Ġ"}, "behavior": "MergedWithNext", "invert": false}`:             true,
		`{"type": "Split", "pattern": {"Regex": "\\s+|\\p{L}"}, "behavior": "Removed", "invert": true}`:            false,
		`{"type": "Digits", "individual_digits": true}`:                                                            true,
		`{"type": "Punctuation", "behavior": "Contiguous"}`:                                                        true,
		`{"type": "WhitespaceSplit"}`:                                                                              true,
		`{"type": "Whitespace"}`:                                                                                   true,
		`{"type": "CharDelimiterSplit", "delimiter": "a"}`:                                                         false,
		`{"type": "Sequence", "pretokenizers": [{"type": "Digits"}, {"type": "Punctuation"}, {"type": "Digits"}]}`: true,
	} {
		tok, err := FromJSON(small{}.file("model", string(model), "decoder", `{"type": "ByteLevel"}`,
			"pre_tokenizer", `{"type": "Sequence", "pretokenizers": [{"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"}, {"type": "ByteLevel"}, `+after+`]}`), nil)
		if err != nil {
			t.Errorf("%s: %v", after, err)
			continue
		}
		var got []byte
		for _, id := range tok.Encode(text, EncodeOptions{}) {
			got = append(got, byte(id))
		}
		if want := strings.ReplaceAll(text, " ", "▁"); string(got) != want && (whole || len(got) == 0 || len(got) >= len(want)) {
			t.Errorf("%s:\n got %q\nwant %q", after, got, want)
		}
	}
}

// A broken file is refused with line and column.
func TestBrokenJSON(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{"", "tokenizer.json:1:1: expected an object"},
		{"[]", "tokenizer.json:1:1: expected an object"},
		{"{", "tokenizer.json:1:2: expected a key"},
		{"{\n \"version\": \"2.0\"}", "tokenizer.json:2:13: version \"2.0\"; 1.0 is supported"},
		{"{\n\"model\": {\"vocab\": {\"a\": 0,}}}", "tokenizer.json:2:28: expected a key"},
		{"{\n\"model\": {\"vocab\": {\"\\ud800\": 0}}}", `tokenizer.json:2:22: bad \u escape`},
		{"{\n\"model\": {\"vocab\": {\"a\tb\": 0}}}", "tokenizer.json:2:23: control character in a string"},
		{"{\n\"model\": {\"vocab\": {\"\\q\": 0}}}", `tokenizer.json:2:22: unknown escape "\q"`},
		{"{\"decoder\": " + strings.Repeat("[", 200), "nested deeper than 128"},
		{"{\"decoder\": ]", "expected a value"},
		{"{\"truncation\": null \"padding\": null}", `expected "," or "}"`},
		{string(small{}.file()) + "x", "text after the end"},
		{"\xff", "not UTF-8"},
	} {
		_, err := FromJSON([]byte(c.file), nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || !diag.Is(err, diag.Format) && !diag.Is(err, diag.Unsupported) {
			t.Errorf("%q: got %v, want %s", c.file, err, c.want)
		}
	}
}

// Files of older versions load too: a model without type, merges as texts with a version line, pairs, escapes.
func TestOlderFiles(t *testing.T) {
	for _, model := range []string{
		`{"vocab": {"a": 0, "b": 1, "ab": 2, "<u>": 3}, "merges": ["#version: 0.2", "a b"]}`,
		`{"merges": [["a", "b"]], "vocab": {"\u0061": 0, "b": 1, "ab": 2, "<u>": 3}, "type": "BPE"}`,
		`{"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "", "end_of_word_suffix": null,
		  "fuse_unk": false, "byte_fallback": false, "ignore_merges": false, "vocab": {"a": 0, "b": 1, "ab": 2, "<u>": 3}, "merges": ["a b"]}`,
	} {
		tok, err := FromJSON(small{}.file("model", model), nil)
		if err != nil {
			t.Errorf("%s: %v", model, err)
			continue
		}
		if got := tok.Encode("abba", EncodeOptions{}); !slices.Equal(got, []int32{2, 1, 0}) {
			t.Errorf("%s: got %v", model, got)
		}
	}
}

func TestConfig(t *testing.T) {
	file := small{}.file("added_tokens", `[{"id": 4, "content": "<s>", "special": true}, {"id": 5, "content": "<tool>", "special": false}]`)
	tok, err := FromJSON(file, []byte(`{
		"tokenizer_class": "PreTrainedTokenizerFast",
		"bos_token": "<s>", "eos_token": {"__type": "AddedToken", "content": "<u>", "lstrip": false}, "pad_token": "<pad>", "unk_token": null,
		"add_bos_token": true, "model_max_length": 4096,
		"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}],
		"extra_special_tokens": {"image_token": "<tool>"},
		"added_tokens_decoder": {"6": {"content": "<late>", "special": true, "lstrip": true}},
		"clean_up_tokenization_spaces": true
	}`))
	if err != nil {
		t.Fatal(err)
	}
	c := tok.Config()
	if c.Class != "PreTrainedTokenizerFast" || c.ModelMaxLength != 4096 || c.AddBOS == nil || !*c.AddBOS || c.AddEOS != nil || c.ExtraSpecial["image_token"] != "<tool>" {
		t.Errorf("config is %+v", c)
	}
	if text, ok := c.ChatTemplate("tool_use"); !ok || text != "t" {
		t.Errorf("template tool_use is %q", text)
	}
	if text, ok := c.ChatTemplate(""); !ok || text != "d" {
		t.Errorf("template is %q", text)
	}
	if id, ok := tok.BOS(); !ok || id != 4 {
		t.Errorf("BOS is %d, %v", id, ok)
	}
	if id, ok := tok.EOS(); !ok || id != 3 || !tok.IsSpecial(3) {
		t.Errorf("EOS is %d, %v; special %v", id, ok, tok.IsSpecial(3))
	}
	if _, ok := tok.Pad(); ok || c.PadToken != "<pad>" {
		t.Error("<pad> is a name without token")
	}
	if !tok.IsSpecial(5) || !tok.IsSpecial(6) || tok.IsSpecial(0) || tok.VocabSize() != 7 {
		t.Errorf("special: <tool> %v, <late> %v, a %v; size %d", tok.IsSpecial(5), tok.IsSpecial(6), tok.IsSpecial(0), tok.VocabSize())
	}
	if got := tok.Encode("a <late>b<u>", EncodeOptions{}); !slices.Equal(got, []int32{0, 6, 1, 3}) {
		t.Errorf("got %v", got) // <late> takes the space along
	}
	if got := tok.Decode([]int32{2, 2, 4}, true); got != "ab ab" { // no clean-up for BPE, whatever the file says
		t.Errorf("decoded %q", got)
	}
}

func TestConfigForms(t *testing.T) {
	for _, c := range []struct{ config, template, err string }{
		{`{}`, "", ""},
		{`{"chat_template": "x", "model_max_length": 1000000000000000019884624838656}`, "x", ""},
		{`{"chat_template": null, "extra_special_tokens": ["<u>"], "additional_special_tokens": ["<u>", {"content": "b"}]}`, "", ""},
		{`{"chat_template": 3}`, "", "tokenizer_config.json: chat_template does not follow its format"},
		{`{"bos_token": 3}`, "", "tokenizer_config.json: the file does not follow its format"},
		{`{"added_tokens_decoder": {"x": {"content": "y"}}}`, "", "added_tokens_decoder does not follow its format"},
		{`{"added_tokens_decoder": {"1": {"content": "y"}}}`, "", `tokenizer_config.json: id 1 is both "b" and added token "y"`},
		{`{"added_tokens_decoder": {"1": {"content": "a"}}}`, "", `tokenizer_config.json: token "a" says id 1, but its id is 0`},
		{`[`, "", "the file does not follow its format"},
	} {
		tok, err := FromJSON(small{}.file(), []byte(c.config))
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: got %v, want %s", c.config, err, c.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.config, err)
			continue
		}
		if text, _ := tok.Config().ChatTemplate(""); text != c.template || tok.Config().ModelMaxLength != 0 {
			t.Errorf("%s: template %q, length %d", c.config, text, tok.Config().ModelMaxLength)
		}
	}
}

// The configuration can insist on cleaning up.
func TestCleanupWhenMeant(t *testing.T) {
	tok, err := FromJSON(small{}.file("model", `{"vocab": {"a": 0, ".": 1}, "merges": []}`),
		[]byte(`{"clean_up_tokenization_spaces": true, "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": true}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := tok.Decode([]int32{0, 1}, false); got != "a." {
		t.Errorf("decoded %q", got)
	}
}
