// SPDX-License-Identifier: MIT OR Apache-2.0

package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// strict decodes a value of tokenizer.json. An unknown key is an error: it may mean something.
func (l *loader) strict(r raw, path string, into any) error {
	d := json.NewDecoder(bytes.NewReader(r.text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return l.errorAt(r.pos, "%s does not follow its format", path).For(path).Because(err)
	}
	return nil
}

// kind is the type of a component; "" for null or an absent one.
func (l *loader) kind(r raw, path string) (string, error) {
	if len(r.text) == 0 || string(r.text) == "null" {
		return "", nil
	}
	var c struct{ Type string }
	if err := json.Unmarshal(r.text, &c); err != nil || c.Type == "" {
		return "", l.errorAt(r.pos, "%s must be an object with a type", path).For(path).Because(err)
	}
	return c.Type, nil
}

func (l *loader) refuse(r raw, path, kind string) error {
	return l.unsupported(r.pos, "%s: %s is not supported", path, quoteToken(kind))
}

// typed is embedded in the structs of components for their type key, which kind has read.
type typed struct {
	Type string `json:"type"`
}

// patternJSON is {"String": …} or {"Regex": …}.
type patternJSON struct {
	String *string
	Regex  *string
}

func (l *loader) pattern(r raw, path string, p patternJSON) (*pattern, error) {
	switch {
	case p.String != nil && p.Regex == nil && *p.String != "":
		return &pattern{literal: *p.String}, nil
	case p.Regex != nil && p.String == nil:
		re, err := compilePattern(*p.Regex)
		if err != nil {
			return nil, l.unsupported(r.pos, "%s: in the pattern %s, %v is not supported", path, quoteToken(*p.Regex), err)
		}
		return re, nil
	}
	return nil, l.errorAt(r.pos, "%s: the pattern must be a String that is not empty or a Regex", path)
}

// list decodes a Sequence's items.
func (l *loader) list(r raw, path, key string) ([]raw, error) {
	var s map[string]json.RawMessage
	var items []json.RawMessage
	if err := l.strict(r, path, &s); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(s[key], &items); err != nil || len(s) != 2 {
		return nil, l.errorAt(r.pos, "%s must have type and %s only", path, key).For(path).Because(err)
	}
	out := make([]raw, len(items))
	for i, text := range items {
		out[i] = raw{text, r.pos + max(0, bytes.Index(r.text, text))}
	}
	return out, nil
}

func item(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

// normalizer builds the normalizer; nil for none.
func (l *loader) normalizer(r raw, path string) (normalizer, error) {
	kind, err := l.kind(r, path)
	if err != nil || kind == "" {
		return nil, err
	}
	switch kind {
	case "Sequence":
		return l.normalizerSequence(r, path)
	case "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip", "Prepend", "Replace":
	default:
		return nil, l.refuse(r, path, kind)
	}
	var c struct {
		typed
		Pattern    patternJSON
		Content    string
		Prepend    string
		StripLeft  bool `json:"strip_left"`
		StripRight bool `json:"strip_right"`
	}
	if err := l.strict(r, path, &c); err != nil {
		return nil, err
	}
	switch kind {
	case "NFC":
		return unicodeForm{norm.NFC}, nil
	case "NFD":
		return unicodeForm{norm.NFD}, nil
	case "NFKC":
		return unicodeForm{norm.NFKC}, nil
	case "NFKD":
		return unicodeForm{norm.NFKD}, nil
	case "Lowercase":
		return lowercase{}, nil
	case "StripAccents":
		return stripAccents{}, nil
	case "Strip":
		return strip{c.StripLeft, c.StripRight}, nil
	case "Prepend":
		return prepend(c.Prepend), nil
	}
	return l.replacer(r, path, c.Pattern, c.Content)
}

func (l *loader) normalizerSequence(r raw, path string) (normalizer, error) {
	items, err := l.list(r, path, "normalizers")
	if err != nil {
		return nil, err
	}
	var all normalizers
	for i, r := range items {
		n, err := l.normalizer(r, item(path, i))
		if err != nil {
			return nil, err
		}
		if n != nil {
			all = append(all, n)
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	return all, nil
}

func (l *loader) replacer(r raw, path string, p patternJSON, content string) (normalizer, error) {
	re, err := l.pattern(r, path, p)
	if err != nil {
		return nil, err
	}
	if re.re == nil {
		return replaceString{re.literal, content}, nil
	}
	return replacePattern{re, content}, nil
}

// preTokenizers builds the pre-tokenizers, sequences flattened, and says whether the last one is ByteLevel, so that the
// model sees bytes.
func (l *loader) preTokenizers(r raw, path string) (list []preTokenizer, byteLevel bool, err error) {
	kind, err := l.kind(r, path)
	if err != nil || kind == "" {
		return nil, false, err
	}
	if kind == "Sequence" {
		items, err := l.list(r, path, "pretokenizers")
		if err != nil {
			return nil, false, err
		}
		for i, r := range items {
			more, bytes, err := l.preTokenizers(r, item(path, i))
			if err != nil {
				return nil, false, err
			}
			switch { // what follows ByteLevel sees its alphabet
			case byteLevel && bytes:
				return nil, false, l.unsupported(r.pos, "%s: a second ByteLevel is not supported", item(path, i))
			case byteLevel && slices.ContainsFunc(more, writes):
				return nil, false, l.unsupported(r.pos, "%s: Metaspace after ByteLevel is not supported", item(path, i))
			case byteLevel && len(more) > 0:
				list = append(list, byteCharMap{})
				list = append(append(list, more...), byteCharUnmap{})
				continue
			}
			list = append(list, more...)
			byteLevel = byteLevel || bytes
		}
		return list, byteLevel, nil
	}
	one, err := l.preTokenizer(r, path, kind)
	if err != nil {
		return nil, false, err
	}
	return one, kind == "ByteLevel", nil
}

// writes says whether a pre-tokenizer may put in what the byte-level alphabet does not have; the others only cut or drop.
func writes(p preTokenizer) bool { _, ok := p.(metaspace); return ok }

func (l *loader) preTokenizer(r raw, path, kind string) ([]preTokenizer, error) {
	switch kind {
	case "ByteLevel":
		c := struct {
			typed
			AddPrefixSpace bool `json:"add_prefix_space"`
			TrimOffsets    bool `json:"trim_offsets"`
			UseRegex       bool `json:"use_regex"`
		}{UseRegex: true}
		var list []preTokenizer
		err := l.strict(r, path, &c)
		if c.AddPrefixSpace {
			list = append(list, prefixSpace{})
		}
		if c.UseRegex {
			list = append(list, gpt2Splitter{})
		}
		return list, err
	case "Split":
		p, err := l.split(r, path)
		return []preTokenizer{p}, err
	case "Digits":
		var c struct {
			typed
			Individual bool `json:"individual_digits"`
		}
		err := l.strict(r, path, &c)
		return []preTokenizer{digitSplitter{c.Individual}}, err
	case "Punctuation":
		c := struct {
			typed
			Behavior string
		}{Behavior: "Isolated"}
		if err := l.strict(r, path, &c); err != nil {
			return nil, err
		}
		b, ok := behaviors[c.Behavior]
		if !ok {
			return nil, l.refuse(r, path+".behavior", c.Behavior)
		}
		return []preTokenizer{runeSplit{isPunct, b}}, nil
	case "WhitespaceSplit":
		return []preTokenizer{runeSplit{isSpace, removed}}, l.strict(r, path, &typed{})
	case "Whitespace":
		return []preTokenizer{wordsSplit{}}, l.strict(r, path, &typed{})
	case "CharDelimiterSplit":
		var c struct {
			typed
			Delimiter string
		}
		if err := l.strict(r, path, &c); err != nil {
			return nil, err
		}
		delimiter, n := utf8.DecodeRuneInString(c.Delimiter)
		if n == 0 || n < len(c.Delimiter) {
			return nil, l.errorAt(r.pos, "%s: the delimiter must be one character", path)
		}
		return []preTokenizer{runeSplit{func(r rune) bool { return r == delimiter }, removed}}, nil
	case "Metaspace":
		m, err := l.metaspace(r, path)
		return []preTokenizer{m}, err
	}
	return nil, l.refuse(r, path, kind)
}

func (l *loader) split(r raw, path string) (preTokenizer, error) {
	var c struct {
		typed
		Pattern  patternJSON
		Behavior string
		Invert   bool
	}
	if err := l.strict(r, path, &c); err != nil {
		return nil, err
	}
	b, ok := behaviors[c.Behavior]
	if !ok {
		return nil, l.refuse(r, path+".behavior", c.Behavior)
	}
	if c.Pattern.Regex != nil && c.Pattern.String == nil {
		if s, ok := knownPatterns[*c.Pattern.Regex]; ok && (b == isolated || b == removed && c.Invert && coversAll(s)) {
			return s, nil
		}
	}
	re, err := l.pattern(r, path, c.Pattern)
	if err != nil {
		return nil, err
	}
	return patternSplit{re, b, c.Invert}, nil
}

// coversAll says whether the splitter's pattern matches everywhere, so that nothing lies between its matches.
func coversAll(s splitter) bool {
	switch s.(type) {
	case gpt2Splitter, wordSplitter, caseSplitter:
		return true
	}
	return false
}

func (l *loader) metaspace(r raw, path string) (metaspace, error) {
	c := struct {
		typed
		Replacement    string
		AddPrefixSpace *bool   `json:"add_prefix_space"`
		PrependScheme  *string `json:"prepend_scheme"`
		Split          *bool
		StrRep         *string `json:"str_rep"`
	}{}
	if err := l.strict(r, path, &c); err != nil {
		return metaspace{}, err
	}
	if utf8.RuneCountInString(c.Replacement) != 1 {
		return metaspace{}, l.errorAt(r.pos, "%s: the replacement must be one character", path)
	}
	scheme := "always"
	if c.PrependScheme != nil {
		scheme = *c.PrependScheme
	}
	if c.AddPrefixSpace != nil && !*c.AddPrefixSpace {
		if c.PrependScheme == nil || *c.PrependScheme != "never" {
			return metaspace{}, l.errorAt(r.pos, "%s: add_prefix_space false needs prepend_scheme never", path)
		}
	}
	if scheme != "always" && scheme != "first" && scheme != "never" {
		return metaspace{}, l.refuse(r, path+".prepend_scheme", scheme)
	}
	return newMetaspace(c.Replacement, scheme, c.Split == nil || *c.Split), nil
}
