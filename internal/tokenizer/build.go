// SPDX-License-Identifier: MIT OR Apache-2.0

package tokenizer

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

// build puts the tokenizer together from what was read.
func (l *loader) build(config Config) (*Tokenizer, error) {
	if a, b := l.vocab.seal(); a >= 0 {
		text, _ := l.vocab.token(int32(a))
		return nil, l.errorAt(0, "token %s has the ids %d and %d", quoteToken(text), a, b)
	}
	t := &Tokenizer{vocab: l.vocab, config: config}
	var err error
	if t.normalizer, err = l.normalizer(l.component["normalizer"], "normalizer"); err != nil {
		return nil, err
	}
	list, byteLevel, err := l.preTokenizers(l.component["pre_tokenizer"], "pre_tokenizer")
	if err != nil {
		return nil, err
	}
	t.preTokenizers = list
	pairs, err := l.pairs()
	if err != nil {
		return nil, err
	}
	if t.bpe, err = l.buildModel(&t.vocab, pairs, byteLevel); err != nil {
		return nil, err
	}
	if j := t.bpe.joinSplitter(&t.vocab, pairs); j != nil {
		t.preTokenizers = append(t.preTokenizers, j)
	}
	if err = t.addTokens(l); err != nil {
		return nil, err
	}
	if t.prefix, t.suffix, err = l.postProcessor(l.component["post_processor"], "post_processor"); err != nil {
		return nil, err
	}
	if t.decoding, err = l.decoder(l.component["decoder"]); err != nil {
		return nil, err
	}
	if config.cleanup {
		t.decoding = append(t.decoding, cleanupStep{})
	}
	return t, nil
}

// pairs resolves the merges.
func (l *loader) pairs() ([]pairMerge, error) {
	pairs := make([]pairMerge, len(l.merges))
	v := &l.vocab
	for i, x := range l.merges {
		left, right, both := l.mergeBuf[x.from:x.mid], l.mergeBuf[x.mid:x.to], l.mergeBuf[x.from:x.to]
		a, okA := v.id(string(left))
		b, okB := v.id(string(right))
		c, okC := v.id(string(both))
		if !okA || !okB || !okC {
			return nil, l.errorAt(0, "model: merge %d, %s and %s, is not of tokens in the vocabulary", i,
				quoteToken(string(left)), quoteToken(string(right)))
		}
		pairs[i] = pairMerge{a, b, merge{uint32(i), c}}
	}
	return pairs, nil
}

func (l *loader) buildModel(v *vocab, pairs []pairMerge, byteLevel bool) (*bpe, error) {
	m := &bpe{byteLevel: byteLevel, fuse: l.model.fuse, fallback: l.model.fallback, unknown: -1, merges: newMergeTable(pairs)}
	complete := m.fillSymbols(v)
	if name := l.model.unknown; name != "" {
		id, ok := v.id(name)
		if !ok && !complete {
			return nil, l.errorAt(0, "model: unk_token %s is not in the vocabulary", quoteToken(name))
		}
		if ok {
			m.unknown = id
		}
	}
	if l.model.ignoreMerges {
		m.whole = m.wholeTokens(v)
	}
	return m, nil
}

// fillSymbols finds the tokens that pieces begin as, when the merges are there. It says whether none can be missing.
func (m *bpe) fillSymbols(v *vocab) bool {
	complete := true
	for b := range m.bytes {
		name := fmt.Sprintf("<0x%02X>", b)
		if m.byteLevel {
			name = string(byteChars[b])
		}
		id, ok := v.id(name)
		if !ok {
			id, complete = -1, false
		}
		m.bytes[b] = id
	}
	if m.byteLevel {
		if complete {
			m.bytePairs = new([1 << 16]merge)
			for i := range m.bytePairs {
				m.bytePairs[i] = m.merges.find(m.bytes[i>>8], m.bytes[i&255])
			}
		}
		return complete
	}
	for id := range v.span {
		token, _ := v.token(int32(id))
		if r, n := utf8.DecodeRuneInString(token); n > 0 && n == len(token) {
			m.runes.set(r, int32(id))
		}
	}
	return complete && m.fallback
}

// wholeTokens is the vocabulary by what pieces look like: bytes, for a byte-level model.
func (m *bpe) wholeTokens(v *vocab) *vocab {
	w := &vocab{}
	var buf []byte
	for id := range v.span {
		token, ok := v.token(int32(id))
		if !ok {
			continue
		}
		if !m.byteLevel {
			w.add([]byte(token), id)
		} else if buf, ok = appendCharBytes(buf[:0], token); ok {
			w.add(buf, id)
		}
	}
	w.seal() // the alphabet is one to one: no two tokens look the same
	w.addFilter()
	return w
}

// joinSplitter knows which code points this model's merges join; nil if pieces are short already or if cutting them could
// change a result: an unknown token that others fuse with, or merges of tokens that are not what they spell.
func (m *bpe) joinSplitter(v *vocab, pairs []pairMerge) *joinSplitter {
	if m.byteLevel || !m.fallback || m.whole != nil {
		return nil
	}
	special := map[int32]bool{}
	for _, id := range m.bytes {
		if id < 0 {
			return nil
		}
		special[id] = true
	}
	if m.unknown >= 0 {
		special[m.unknown] = true
	}
	j := newJoinSplitter(len(pairs))
	for _, p := range pairs {
		if special[p.left] || special[p.right] {
			return nil
		}
		a, _ := v.token(p.left)
		b, _ := v.token(p.right)
		before, n := utf8.DecodeLastRuneInString(a)
		after, k := utf8.DecodeRuneInString(b)
		if n == 0 || k == 0 {
			return nil
		}
		j.add(before, after)
	}
	return j
}

// addTokens resolves the added tokens: those of tokenizer.json, then those that only the configuration knows.
func (t *Tokenizer) addTokens(l *loader) error {
	t.added, t.byText, t.specialForms = map[int32]*addedToken{}, map[string]int32{}, map[string]bool{}
	t.size = len(t.vocab.span)
	next := int32(l.tokens) // the reference gives ids in order and does not look at the file's
	for _, a := range l.added {
		if a.Content == "" {
			continue
		}
		id, ok := t.ID(a.Content)
		if !ok {
			id = next
			next++
		}
		if id != a.ID {
			return l.errorAt(0, "added token %s says id %d, but its place in the vocabulary is %d", quoteToken(a.Content), a.ID, id)
		}
		if err := t.add(a); err != nil {
			return l.errorAt(0, "%v", err)
		}
	}
	for _, a := range t.config.special {
		id, ok := t.ID(a.Content)
		if !ok && a.ID < 0 || a.Content == "" {
			continue // a name without token
		}
		if ok && a.ID >= 0 && a.ID != id {
			return l.errorAt(0, "tokenizer_config.json: token %s says id %d, but its id is %d", quoteToken(a.Content), a.ID, id)
		}
		if old, ok := t.added[id]; ok && old.Content == a.Content {
			old.Special = old.Special || a.Special
			continue
		}
		if ok {
			a.ID = id
		}
		if err := t.add(a); err != nil {
			return l.errorAt(0, "tokenizer_config.json: %v", err)
		}
	}
	t.finishAdded()
	return nil
}

func (t *Tokenizer) add(a addedToken) error {
	if text, ok := t.Token(a.ID); ok && text != a.Content {
		return fmt.Errorf("id %d is both %s and added token %s", a.ID, quoteToken(text), quoteToken(a.Content))
	}
	a.form = a.Content
	if a.Normalized && t.normalizer != nil {
		a.form = t.normalizer.normalize(a.Content)
	}
	t.added[a.ID] = &a
	t.byText[a.Content] = a.ID
	t.size = max(t.size, int(a.ID)+1)
	return nil
}

// finishAdded makes the matchers.
func (t *Tokenizer) finishAdded() {
	var raw, normalized []addedToken
	for id := range int32(t.size) {
		a, ok := t.added[id]
		if !ok {
			continue
		}
		if a.Special {
			t.specialForms[a.Content] = true
		}
		if a.Normalized {
			normalized = append(normalized, *a)
		} else {
			raw = append(raw, *a)
		}
	}
	t.raw, t.normalized = newMatcher(raw), newMatcher(normalized)
}

// postProcessor builds what is put around the text.
func (l *loader) postProcessor(r raw, path string) (prefix, suffix []int32, err error) {
	kind, err := l.kind(r, path)
	if err != nil {
		return nil, nil, err
	}
	switch kind {
	case "", "ByteLevel": // offsets only
		return nil, nil, nil
	case "TemplateProcessing":
		return l.template(r, path)
	case "RobertaProcessing", "BertProcessing":
		var c struct {
			typed
			Sep            [2]any
			Cls            [2]any
			TrimOffsets    bool `json:"trim_offsets"`
			AddPrefixSpace bool `json:"add_prefix_space"`
		}
		if err := l.strict(r, path, &c); err != nil {
			return nil, nil, err
		}
		ends := make([]int32, 2)
		for i, end := range []any{c.Cls[1], c.Sep[1]} {
			id, ok := end.(float64)
			if !ok || id < 0 || id > maxID || id != float64(int32(id)) {
				return nil, nil, l.errorAt(r.pos, "%s: cls and sep must be a token and its id", path)
			}
			ends[i] = int32(id)
		}
		return ends[:1:1], ends[1:], nil
	case "Sequence":
		items, err := l.list(r, path, "processors")
		for i := 0; err == nil && i < len(items); i++ { // each wraps what the one before made
			var before, after []int32
			before, after, err = l.postProcessor(items[i], item(path, i))
			prefix, suffix = append(before, prefix...), append(suffix, after...)
		}
		return prefix, suffix, err
	}
	return nil, nil, l.refuse(r, path, kind)
}

func (l *loader) template(r raw, path string) (prefix, suffix []int32, err error) {
	type element struct {
		ID     string `json:"id"`
		TypeID int    `json:"type_id"`
	}
	var c struct {
		typed
		Single []struct {
			SpecialToken *element
			Sequence     *element
		}
		Pair          any
		SpecialTokens map[string]struct {
			ID     string   `json:"id"`
			IDs    []int32  `json:"ids"`
			Tokens []string `json:"tokens"`
		} `json:"special_tokens"`
	}
	if err := l.strict(r, path, &c); err != nil {
		return nil, nil, err
	}
	sequences := 0
	for _, e := range c.Single {
		switch {
		case e.SpecialToken != nil && e.Sequence == nil:
			token, ok := c.SpecialTokens[e.SpecialToken.ID]
			if !ok {
				return nil, nil, l.errorAt(r.pos, "%s: %s is not among special_tokens", path, quoteToken(e.SpecialToken.ID))
			}
			for _, id := range token.IDs {
				if id < 0 || id > maxID {
					return nil, nil, l.errorAt(r.pos, "%s: id %s is not from 0 to %d", path, strconv.Itoa(int(id)), maxID)
				}
			}
			if sequences == 0 {
				prefix = append(prefix, token.IDs...)
			} else {
				suffix = append(suffix, token.IDs...)
			}
		case e.Sequence != nil && e.SpecialToken == nil && e.Sequence.ID == "A":
			sequences++
		default:
			return nil, nil, l.errorAt(r.pos, "%s: single must consist of special tokens and sequence A", path)
		}
	}
	if sequences != 1 {
		return nil, nil, l.unsupported(r.pos, "%s: single has the text %d times; once is supported", path, sequences)
	}
	return prefix, suffix, nil
}

// decoder builds the steps of decoding. After Fuse or ByteLevel all tokens are one; a step that then must see the text to
// its end waits for it.
func (l *loader) decoder(r raw) (decoding, error) {
	if kind, err := l.kind(r, "decoder"); err != nil || kind == "" {
		return decoding{spaced{}}, err
	}
	var d decoding
	fused := false
	err := l.decoderSteps(r, "decoder", &d, &fused)
	return d, err
}

func (l *loader) decoderSteps(r raw, path string, d *decoding, fused *bool) error {
	kind, err := l.kind(r, path)
	if err != nil {
		return err
	}
	switch kind {
	case "Sequence":
		items, err := l.list(r, path, "decoders")
		for i := 0; err == nil && i < len(items); i++ {
			err = l.decoderSteps(items[i], item(path, i), d, fused)
		}
		return err
	case "ByteLevel":
		var c struct {
			typed
			AddPrefixSpace bool `json:"add_prefix_space"`
			TrimOffsets    bool `json:"trim_offsets"`
			UseRegex       bool `json:"use_regex"`
		}
		d.add(byteLevelStep{}, *fused)
		*fused = true
		return l.strict(r, path, &c)
	case "ByteFallback":
		d.add(byteFallbackStep{}, *fused)
		return l.strict(r, path, &typed{})
	case "Fuse":
		*fused = true
		return l.strict(r, path, &typed{})
	case "Replace":
		var c struct {
			typed
			Pattern patternJSON
			Content string
		}
		if err := l.strict(r, path, &c); err != nil {
			return err
		}
		n, err := l.replacer(r, path, c.Pattern, c.Content)
		s, literal := n.(replaceString)
		d.add(replaceStep{normalizer: n}, *fused && !(literal && utf8.RuneCountInString(s.old) == 1))
		return err
	case "Strip":
		var c struct {
			typed
			Content     string
			Start, Stop int
		}
		if err := l.strict(r, path, &c); err != nil {
			return err
		}
		if utf8.RuneCountInString(c.Content) != 1 || c.Start < 0 || c.Stop < 0 {
			return l.errorAt(r.pos, "%s: content must be one character, start and stop not negative", path)
		}
		if *fused && c.Stop == 0 {
			d.add(stripStep{char: c.Content, head: c.Start, fused: true}, false)
		} else {
			d.add(stripStep{char: c.Content, head: c.Start, tail: c.Stop}, *fused)
		}
		return nil
	case "Metaspace":
		m, err := l.metaspace(r, path)
		d.add(metaspaceStep{mark: m.replacement, strip: m.prepend, fused: *fused}, false)
		return err
	}
	return l.refuse(r, path, kind)
}

// add appends a step; whole makes it wait for the end of the text.
func (d *decoding) add(s step, whole bool) {
	if whole {
		s = wholeStep{s}
	}
	*d = append(*d, s)
}
