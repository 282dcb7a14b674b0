// SPDX-License-Identifier: MIT OR Apache-2.0

package tokenizer

import (
	"strconv"
	"strings"
)

// Tokenizer turns text into token ids and back. It does not change after it was loaded, and goroutines may share it.
type Tokenizer struct {
	vocab  vocab
	bpe    *bpe
	added  map[int32]*addedToken
	byText map[string]int32 // added tokens
	size   int              // one past the largest id

	raw           *matcher   // added tokens looked for in the text as it is
	normalized    *matcher   // and in the normalized text
	normalizer    normalizer // nil: none
	preTokenizers []preTokenizer

	prefix, suffix []int32 // what the post-processor puts around
	decoding       decoding
	specialForms   map[string]bool

	config Config
	pool   encoderPool
}

// EncodeOptions says how Encode treats special tokens.
type EncodeOptions struct {
	AddSpecial      bool // put the tokens around that the post-processor puts there (begin and end of text)
	NoSpecialInText bool // special tokens in the text are plain text
}

// Encode gives the token ids of text. Malformed UTF-8 counts as U+FFFD, one for each stretch that Python's
// bytes.decode(errors="replace") would replace.
func (t *Tokenizer) Encode(text string, o EncodeOptions) []int32 {
	return t.AppendEncode(make([]int32, 0, len(text)/3+8), text, o)
}

// AppendEncode appends the token ids of text to dst.
func (t *Tokenizer) AppendEncode(dst []int32, text string, o EncodeOptions) []int32 {
	e := t.pool.get(t)
	e.out = dst
	if o.AddSpecial {
		e.out = append(e.out, t.prefix...)
	}
	e.encode(validText(text), true, o.NoSpecialInText)
	if o.AddSpecial {
		e.out = append(e.out, t.suffix...)
	}
	out := e.out
	t.pool.put(e)
	return out
}

// encode takes the added tokens out of the text, normalizes what lies between, takes out those that are looked for in
// normalized text, and cuts the rest into pieces for the model. first says that nothing comes before the text.
func (e *encoder) encode(text string, first, plainSpecial bool) {
	t := e.t
	found := func(a *addedToken) { e.out = append(e.out, a.ID) }
	rest := func(from, to int) {
		s := text[from:to]
		if t.normalizer != nil {
			s = t.normalizer.normalize(s)
		}
		if s == "" {
			return
		}
		if t.normalized == nil {
			e.preTokenize(0, s, first && from == 0)
			return
		}
		t.normalized.split(s, plainSpecial, func(a, b int) { e.preTokenize(0, s[a:b], first && from+a == 0) }, found)
	}
	switch {
	case text == "":
	case t.raw == nil:
		rest(0, len(text))
	default:
		t.raw.split(text, plainSpecial, rest, found)
	}
}

// form is what decodes for id: an added token as it is looked for, or the model's token.
func (t *Tokenizer) form(id int32) (string, bool) {
	if a, ok := t.added[id]; ok {
		return a.form, true
	}
	return t.vocab.token(id)
}

// Token is the text of a token as the vocabulary spells it ("Ġthe", "▁the").
func (t *Tokenizer) Token(id int32) (string, bool) {
	if a, ok := t.added[id]; ok {
		return a.Content, true
	}
	return t.vocab.token(id)
}

// ID is the id of a token spelled as in the vocabulary.
func (t *Tokenizer) ID(token string) (int32, bool) {
	if id, ok := t.byText[token]; ok {
		return id, true
	}
	return t.vocab.id(token)
}

// IsSpecial says whether Decode leaves the token out with skipSpecial.
func (t *Tokenizer) IsSpecial(id int32) bool {
	form, ok := t.form(id)
	return ok && t.specialForms[form]
}

// TokenBytes is the bytes that the token adds to a text that other tokens come before. It is nil for an id without token.
func (t *Tokenizer) TokenBytes(id int32) []byte {
	form, ok := t.form(id)
	if !ok {
		return nil
	}
	b := []byte(form)
	for _, s := range t.decoding {
		b = s.bytes(b)
	}
	return b
}

// VocabSize is one past the largest id.
func (t *Tokenizer) VocabSize() int { return t.size }

// BOS is the token that begins a text, as the configuration names it.
func (t *Tokenizer) BOS() (int32, bool) { return t.named(t.config.BOSToken) }

// EOS is the token that ends a text.
func (t *Tokenizer) EOS() (int32, bool) { return t.named(t.config.EOSToken) }

// Pad is the token that fills up batches.
func (t *Tokenizer) Pad() (int32, bool) { return t.named(t.config.PadToken) }

func (t *Tokenizer) named(token string) (int32, bool) {
	if token == "" {
		return 0, false
	}
	return t.ID(token)
}

// Config is what the checkpoint says beside the tokenizer itself.
func (t *Tokenizer) Config() Config { return t.config }

// quoteToken makes a token readable in an error.
func quoteToken(s string) string {
	if len(s) > 64 {
		s = strings.ToValidUTF8(s[:64], "") + "…"
	}
	return strconv.Quote(s)
}
