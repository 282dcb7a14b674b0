// SPDX-License-Identifier: MIT OR Apache-2.0

package tokenizer

import (
	"cmp"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"github.com/metrale/metrale/internal/diag"
)

// Metadata is the key/value part of a GGUF file.
type Metadata interface {
	String(key string) (string, bool)
	Strings(key string) ([]string, bool)
	Ints(key string) ([]int64, bool)
	Floats(key string) ([]float32, bool)
	Int(key string) (int64, bool)
	Bool(key string) (bool, bool)
}

const gguf = "tokenizer.ggml."

// Types of tokens in tokenizer.ggml.token_type.
const (
	typeNormal      = 1
	typeUnknown     = 2
	typeControl     = 3
	typeUserDefined = 4
	typeUnused      = 5
	typeByte        = 6
)

// preset is what a name in tokenizer.ggml.pre stands for. The file has neither regular expressions nor normalizer; they are
// those of the tokenizer.json that such files are made from.
type preset struct {
	cuts         []preTokenizer // one after the other; a string is a Split's pattern, with behaviour Isolated
	nfc          bool
	ignoreMerges bool
	addBOS       bool // where tokenizer.ggml.add_bos_token is missing
}

var presets = func() map[string]preset {
	t := map[string]preset{}
	for _, p := range presetList {
		for _, name := range strings.Fields(p.names) {
			t[name] = p.preset
		}
	}
	return t
}()

type cuts = []preTokenizer

var presetList = []struct {
	names string
	preset
}{
	{"default", preset{cuts: cuts{`[\p{P}\$\+<=>\^~\|]+`, patternGPT2, `\p{N}+`, threeDigits}}},
	{"gpt-2 gpt2 phi-2 mpt olmo jais trillion granite-docling exaone4 modern-bert mellum", preset{cuts: cuts{patternGPT2}}},
	{"smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
		preset{cuts: cuts{digitSplitter{individual: true}, patternGPT2}}},
	{"falcon", preset{cuts: cuts{runeSplit{isPunct, contiguous}, patternGPT2, byteCharMap{}, digitSplitter{}, threeDigits, byteCharUnmap{}}}},
	{"llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral lfm2", preset{cuts: cuts{patternLlama3}, ignoreMerges: true, addBOS: true}},
	{"dbrx smaug-bpe glm4 chatglm-bpe", preset{cuts: cuts{patternLlama3}}},
	{"qwen2", preset{cuts: cuts{patternQwen2}, nfc: true}},
	{"qwen35", preset{cuts: cuts{patternQwen3_5}, nfc: true}},
	{"deepseek-r1-qwen megrez stablelm2 hunyuan solar-open grok-2", preset{cuts: cuts{patternQwen2}}},
	{"gpt-4o llama4 kanana2 minimax-m2", preset{cuts: cuts{patternO200K}}},
	{"tekken", preset{cuts: cuts{patternTekken}, ignoreMerges: true, addBOS: true}},
	{"deepseek-v3 hunyuan-dense joyai-llm", preset{cuts: cuts{`\p{N}{1,3}`, patternCJK, patternDeepSeek}}},
	{"deepseek-coder", preset{cuts: cuts{`[\r\n]`, `\s?\p{L}+`, `\s?\p{P}+`, eastAsian, `\p{N}`}}},
	{"deepseek-llm", preset{cuts: cuts{`[\r\n]`, casedLetters, `\s?[!-/:-~！-／：-～‘-‟\u3000-。]+`, `\s+$`, eastAsian, `\p{N}+`}}},
	{"seed-coder", preset{cuts: cuts{patternSeedCoder}}},
	{"bailingmoe bailingmoe2 llada-moe", preset{cuts: cuts{patternBailing}}},
}

const (
	threeDigits      = `[0-9][0-9][0-9]`
	eastAsian        = `[一-龥ࠀ-一가-\ud7ff]+`
	patternSeedCoder = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternBailing   = `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+`
)

// casedLetters has letters with case, spelled as escapes: some of them are not in NFC.
const casedLetters = `\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373` +
	`\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f` +
	`\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77` +
	`\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d` +
	`\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4` +
	`\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139` +
	`\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d` +
	`\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a` +
	`\uff41-\uff5a\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb}\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2}` +
	`\x{118a0}-\x{118df}\x{1e900}-\x{1e943}]+`

// FromGGUF loads the vocabulary of a GGUF file: byte-level BPE (gpt2) or SentencePiece's BPE (llama).
func FromGGUF(m Metadata) (*Tokenizer, error) {
	g := ggufLoader{m: m, t: &Tokenizer{}}
	if err := g.load(); err != nil {
		return nil, err
	}
	return g.t, nil
}

type ggufLoader struct {
	m      Metadata
	t      *Tokenizer
	tokens []string
	types  []int64

	addBOS   bool // unless the file says otherwise
	bos, eos int64
}

func (g *ggufLoader) bad(key, format string, args ...any) error {
	return diag.Errorf(diag.Format, gguf+key+": "+format, args...).For(gguf + key)
}

func (g *ggufLoader) load() error {
	model, ok := g.m.String(gguf + "model")
	if !ok {
		return g.bad("model", "missing")
	}
	build := map[string]func() error{"gpt2": g.loadByteLevel, "llama": g.loadScores, "gemma4": g.loadGemma4}[model]
	if build == nil {
		err := diag.Errorf(diag.Unsupported, "%smodel: %s is not supported; gpt2, llama and gemma4 are", gguf, quoteToken(model))
		return err.For(gguf + "model")
	}
	if err := g.loadVocab(); err != nil {
		return err
	}
	g.addBOS, g.bos, g.eos = true, -1, -1
	if err := build(); err != nil {
		return err
	}
	if err := g.loadAdded(); err != nil {
		return err
	}
	return g.loadConfig()
}

func (g *ggufLoader) loadVocab() error {
	var ok bool
	if g.tokens, ok = g.m.Strings(gguf + "tokens"); !ok || len(g.tokens) == 0 {
		return g.bad("tokens", "missing")
	}
	if len(g.tokens) > maxID {
		return g.bad("tokens", "%d tokens; at most %d are supported", len(g.tokens), maxID)
	}
	if g.types, ok = g.m.Ints(gguf + "token_type"); !ok {
		g.types = slices.Repeat([]int64{typeNormal}, len(g.tokens))
	}
	if len(g.types) != len(g.tokens) {
		return g.bad("token_type", "%d types for %d tokens", len(g.types), len(g.tokens))
	}
	v := &g.t.vocab
	for id, token := range g.tokens {
		if !utf8.ValidString(token) {
			return g.bad("tokens", "token %d is not UTF-8", id)
		}
		v.add([]byte(token), id)
	}
	if a, b := v.seal(); a >= 0 {
		return g.bad("tokens", "token %s has the ids %d and %d", quoteToken(g.tokens[a]), a, b)
	}
	g.t.size = len(g.tokens)
	return nil
}

// loadByteLevel makes the model of a gpt2 vocabulary.
func (g *ggufLoader) loadByteLevel() error {
	name, ok := g.m.String(gguf + "pre")
	if !ok {
		name = "default"
	}
	pre, ok := presets[name]
	if !ok {
		err := diag.Errorf(diag.Unsupported, "%spre: %s is not a supported pre-tokenizer", gguf, quoteToken(name))
		return err.For(gguf + "pre")
	}
	t := g.t
	if pre.nfc {
		t.normalizer = unicodeForm{norm.NFC}
	}
	for _, cut := range pre.cuts {
		if p, ok := cut.(string); ok {
			var err error
			if cut, err = isolatedSplit(p); err != nil {
				return diag.Errorf(diag.Internal, "pattern of pre-tokenizer %s", name).Because(err)
			}
		}
		t.preTokenizers = append(t.preTokenizers, cut)
	}
	t.decoding = decoding{byteLevelStep{}}
	g.addBOS = pre.addBOS
	t.bpe = &bpe{byteLevel: true, unknown: -1}
	if pre.ignoreMerges {
		t.bpe.whole = t.bpe.wholeTokens(&t.vocab)
	}
	return g.loadMerges()
}

// isolatedSplit is a Split with behaviour Isolated.
func isolatedSplit(expr string) (preTokenizer, error) {
	if s, ok := knownPatterns[expr]; ok {
		return s, nil
	}
	re, err := compilePattern(expr)
	return patternSplit{re, isolated, false}, err
}

func (g *ggufLoader) loadMerges() error {
	merges, ok := g.m.Strings(gguf + "merges")
	if !ok {
		return g.bad("merges", "missing")
	}
	if len(merges) > maxMerges {
		return g.bad("merges", "%d merges; at most %d are supported", len(merges), maxMerges)
	}
	v, pairs := &g.t.vocab, make([]pairMerge, len(merges))
	for i, text := range merges {
		cut := -1 // the space between: not the first character, which may be one
		if len(text) > 1 {
			cut = 1 + strings.IndexByte(text[1:], ' ')
		}
		if cut < 1 {
			return g.bad("merges", "merge %d is not two tokens: %s", i, quoteToken(text))
		}
		left, right := text[:cut], text[cut+1:]
		a, okA := v.id(left)
		b, okB := v.id(right)
		c, okC := v.id(left + right)
		if !okA || !okB || !okC {
			return g.bad("merges", "merge %d is not of tokens in the vocabulary: %s", i, quoteToken(text))
		}
		pairs[i] = pairMerge{a, b, merge{uint32(i), c}}
	}
	g.setMerges(pairs)
	return nil
}

// sentencePiece sets up what the two kinds of SentencePiece vocabularies share: visible spaces, bytes for what is unknown.
func (g *ggufLoader) sentencePiece(prefix bool) {
	t := g.t
	t.normalizer = replaceString{" ", "▁"}
	t.decoding = decoding{replaceStep{normalizer: replaceString{"▁", " "}}, byteFallbackStep{}}
	if set, ok := g.m.Bool(gguf + "add_space_prefix"); ok {
		prefix = set
	}
	if prefix {
		t.normalizer = normalizers{prepend("▁"), t.normalizer}
		t.decoding = append(t.decoding, stripStep{char: " ", head: 1, fused: true})
	}
	t.bpe = &bpe{fallback: true, fuse: true, unknown: 0}
	if id, ok := g.m.Int(gguf + "unknown_token_id"); ok && id >= 0 && int(id) < len(g.tokens) {
		t.bpe.unknown = int32(id)
	}
}

// loadGemma4 makes the model of a gemma4 vocabulary, which has merges.
func (g *ggufLoader) loadGemma4() error {
	g.sentencePiece(false)
	return g.loadMerges()
}

func (g *ggufLoader) setMerges(pairs []pairMerge) {
	g.t.bpe.merges = newMergeTable(pairs)
	g.t.bpe.fillSymbols(&g.t.vocab)
	if j := g.t.bpe.joinSplitter(&g.t.vocab, pairs); j != nil {
		g.t.preTokenizers = append(g.t.preTokenizers, j)
	}
}

// loadScores makes the model of a llama vocabulary. It has scores instead of merges: any neighbours that make a token
// merge, those of the highest score first, and of equal ones the leftmost.
func (g *ggufLoader) loadScores() error {
	scores, ok := g.m.Floats(gguf + "scores")
	if !ok || len(scores) != len(g.tokens) {
		return g.bad("scores", "missing, or not as many as tokens")
	}
	g.sentencePiece(true)
	g.bos, g.eos = 1, 2
	falling := slices.Clone(scores)
	slices.SortFunc(falling, func(a, b float32) int { return cmp.Compare(b, a) })
	falling = slices.Compact(falling)
	var pairs []pairMerge
	for id, token := range g.tokens {
		if !g.mergeable(int32(id)) {
			continue
		}
		rank, _ := slices.BinarySearchFunc(falling, scores[id], func(a, b float32) int { return cmp.Compare(b, a) })
		for i := range token {
			left, okA := g.t.vocab.id(token[:i])
			right, okB := g.t.vocab.id(token[i:])
			if i > 0 && okA && okB && g.mergeable(left) && g.mergeable(right) {
				pairs = append(pairs, pairMerge{left, right, merge{uint32(rank), int32(id)}})
			}
		}
	}
	g.setMerges(pairs)
	return nil
}

func (g *ggufLoader) mergeable(id int32) bool {
	switch g.types[id] {
	case typeNormal, typeUserDefined, typeUnused:
		return true
	}
	return false
}

// loadAdded makes control and user-defined tokens added tokens.
func (g *ggufLoader) loadAdded() error {
	t := g.t
	t.added, t.byText, t.specialForms = map[int32]*addedToken{}, map[string]int32{}, map[string]bool{}
	for id, kind := range g.types {
		special := kind == typeControl || kind == typeUnknown
		if !special && kind != typeUserDefined || g.tokens[id] == "" {
			continue
		}
		if err := t.add(addedToken{ID: int32(id), Content: g.tokens[id], Special: special}); err != nil {
			return g.bad("tokens", "%v", err)
		}
	}
	t.finishAdded()
	return nil
}

func (g *ggufLoader) loadConfig() error {
	c := &g.t.config
	c.AddBOS, c.AddEOS = &g.addBOS, new(bool)
	if v, ok := g.m.Bool(gguf + "add_bos_token"); ok {
		c.AddBOS = &v
	}
	if v, ok := g.m.Bool(gguf + "add_eos_token"); ok {
		c.AddEOS = &v
	}
	for _, n := range []struct {
		key      string
		standard int64
		name     *string
		add      bool
		to       *[]int32
	}{
		{"bos_token_id", g.bos, &c.BOSToken, *c.AddBOS, &g.t.prefix},
		{"eos_token_id", g.eos, &c.EOSToken, *c.AddEOS, &g.t.suffix},
		{"unknown_token_id", -1, &c.UnkToken, false, nil},
		{"padding_token_id", -1, &c.PadToken, false, nil},
	} {
		id, ok := g.m.Int(gguf + n.key)
		if !ok && n.standard >= 0 {
			id, ok = n.standard, true
		}
		if ok && (id < 0 || int(id) >= len(g.tokens)) {
			return g.bad(n.key, "%d is not the id of a token", id)
		}
		if !ok && n.add {
			return g.bad(n.key, "missing, and texts shall have that token")
		}
		if ok {
			*n.name = g.tokens[id]
		}
		if n.add {
			*n.to = []int32{int32(id)}
		}
	}
	if text, ok := g.m.String("tokenizer.chat_template"); ok {
		c.ChatTemplates = append(c.ChatTemplates, ChatTemplate{"default", text})
	}
	names, _ := g.m.Strings("tokenizer.chat_templates")
	for _, name := range names {
		if text, ok := g.m.String("tokenizer.chat_template." + name); ok {
			c.ChatTemplates = append(c.ChatTemplates, ChatTemplate{name, text})
		}
	}
	return nil
}
