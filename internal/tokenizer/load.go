// SPDX-License-Identifier: MIT OR Apache-2.0

package tokenizer

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/metrale/metrale/internal/diag"
)

// FromJSON loads a tokenizer.json, with the tokenizer_config.json beside it or nil. An error names the component that
// cannot be honoured exactly (diag.Unsupported) or the place where the file breaks its format (diag.Format).
func FromJSON(tokenizerJSON, tokenizerConfigJSON []byte) (*Tokenizer, error) {
	l := &loader{scanner: scanner{file: "tokenizer.json", data: tokenizerJSON}}
	if !utf8.Valid(tokenizerJSON) {
		return nil, l.errorAt(0, "not UTF-8")
	}
	var config Config
	if tokenizerConfigJSON != nil {
		var err error
		if config, err = parseConfig(tokenizerConfigJSON); err != nil {
			return nil, err
		}
	}
	if err := l.read(); err != nil {
		return nil, err
	}
	return l.build(config)
}

// loader gathers a tokenizer.json: the big lists while they pass, the components as text.
type loader struct {
	scanner
	vocab     vocab
	tokens    int // in the model's vocabulary
	merges    []mergeText
	mergeBuf  []byte
	added     []addedToken
	model     modelOptions
	component map[string]raw // normalizer, pre_tokenizer, post_processor, decoder
}

// raw is a component's text and its place.
type raw struct {
	text []byte
	pos  int
}

// mergeText is a merge of mergeBuf[from:mid] and mergeBuf[mid:to].
type mergeText struct{ from, mid, to uint32 }

// modelOptions are the small keys of the model.
type modelOptions struct {
	seenVocab, seenMerges bool
	unknown               string
	fuse, fallback        bool
	ignoreMerges          bool
}

func (l *loader) unsupported(pos int, format string, args ...any) error {
	err := l.errorAt(pos, format, args...)
	err.Code = diag.Unsupported
	return err
}

func (l *loader) read() error {
	l.component = map[string]raw{}
	model := false
	err := l.object("an object", func(k []byte) error {
		l.peek()
		key, pos := string(k), l.pos
		switch key {
		case "version":
			text, err := l.raw()
			if err == nil && string(text) != `"1.0"` {
				return l.unsupported(pos, "version %s; 1.0 is supported", text)
			}
			return err
		case "truncation", "padding": // off
			_, err := l.raw()
			return err
		case "added_tokens":
			return l.addedTokens()
		case "normalizer", "pre_tokenizer", "post_processor", "decoder":
			text, err := l.raw()
			l.component[key] = raw{text, pos}
			return err
		case "model":
			model = true
			return l.readModel()
		}
		return l.unsupported(pos, "unknown key %s", quoteToken(key))
	})
	if err != nil {
		return err
	}
	if !model {
		return l.errorAt(l.pos, "no model")
	}
	return l.end()
}

func (l *loader) addedTokens() error {
	return l.array("a list", func() error {
		l.peek()
		pos := l.pos
		text, err := l.raw()
		if err != nil {
			return err
		}
		var t struct {
			ID         *int32  `json:"id"`
			Content    *string `json:"content"`
			SingleWord bool    `json:"single_word"`
			LStrip     bool    `json:"lstrip"`
			RStrip     bool    `json:"rstrip"`
			Normalized bool    `json:"normalized"`
			Special    bool    `json:"special"`
		}
		if err := l.strict(raw{text, pos}, "added_tokens", &t); err != nil {
			return err
		}
		if t.ID == nil || t.Content == nil || *t.ID < 0 || *t.ID > maxID {
			return l.errorAt(pos, "an added token needs content and an id from 0 to %d", maxID)
		}
		l.added = append(l.added, addedToken{ID: *t.ID, Content: *t.Content, SingleWord: t.SingleWord, LStrip: t.LStrip,
			RStrip: t.RStrip, Normalized: t.Normalized, Special: t.Special})
		return nil
	})
}

// readModel reads the model, which must be BPE. Nothing is resolved yet: merges may stand before the vocabulary.
func (l *loader) readModel() error {
	start := l.pos
	m := &l.model
	kind := ""
	err := l.object("the model", func(k []byte) error {
		l.peek()
		key, pos := string(k), l.pos
		switch key {
		case "vocab":
			if l.peek() == '[' {
				return l.unsupported(pos, "model: Unigram is not supported; BPE is")
			}
			m.seenVocab = true
			return l.readVocab()
		case "merges":
			m.seenMerges = true
			return l.readMerges()
		}
		text, err := l.raw()
		if err != nil {
			return err
		}
		r := raw{text, pos}
		switch key {
		case "type":
			if err := l.strict(r, "model.type", &kind); err != nil {
				return err
			}
			if kind != "BPE" {
				return l.unsupported(pos, "model: %s is not supported; BPE is", quoteToken(kind))
			}
		case "unk_token":
			return l.strict(r, "model.unk_token", &m.unknown)
		case "fuse_unk":
			return l.strict(r, "model.fuse_unk", &m.fuse)
		case "byte_fallback":
			return l.strict(r, "model.byte_fallback", &m.fallback)
		case "ignore_merges":
			return l.strict(r, "model.ignore_merges", &m.ignoreMerges)
		case "dropout":
			if s := string(text); s != "null" && strings.Trim(s, "0.") != "" {
				return l.unsupported(pos, "model: dropout %s would make ids random", s)
			}
		case "continuing_subword_prefix", "end_of_word_suffix":
			if s := string(text); s != "null" && s != `""` {
				return l.unsupported(pos, "model: %s %s is not supported", key, s)
			}
		default:
			return l.unsupported(pos, "model: %s is not a key of BPE, the only supported model", quoteToken(key))
		}
		return nil
	})
	if err == nil && !(m.seenVocab && m.seenMerges) {
		return l.errorAt(start, "model: vocab or merges are missing")
	}
	return err
}

func (l *loader) readVocab() error {
	return l.object("the vocabulary, an object", func(token []byte) error {
		l.peek()
		pos := l.pos
		id, err := l.integer("an id", maxID)
		if err != nil {
			return err
		}
		if !l.vocab.add(token, id) {
			return l.errorAt(pos, "two tokens have id %d", id)
		}
		l.tokens++
		return nil
	})
}

func (l *loader) readMerges() error {
	return l.array("the list of merges", func() error {
		if len(l.merges) > maxMerges {
			return l.unsupported(l.pos, "more than %d merges", maxMerges)
		}
		from := len(l.mergeBuf)
		l.peek()
		pos := l.pos
		if l.peek() == '"' {
			text, err := l.str("a merge")
			if err != nil {
				return err
			}
			if bytes.HasPrefix(text, []byte("#version")) {
				return nil
			}
			left, right, ok := bytes.Cut(text, []byte(" "))
			if !ok || bytes.IndexByte(right, ' ') >= 0 {
				return l.errorAt(pos, "a merge must be two tokens with a space between: %s", quoteToken(string(text)))
			}
			l.mergeBuf = append(append(l.mergeBuf, left...), right...)
			l.merges = append(l.merges, mergeText{uint32(from), uint32(from + len(left)), uint32(len(l.mergeBuf))})
			return nil
		}
		n, mid := 0, 0
		err := l.array("a merge, a pair of tokens", func() error {
			l.peek()
			text, err := l.str("a token")
			l.mergeBuf = append(l.mergeBuf, text...)
			if n++; n == 1 {
				mid = len(l.mergeBuf)
			}
			return err
		})
		if err == nil && n != 2 {
			err = l.errorAt(pos, "a merge must be a pair of tokens")
		}
		l.merges = append(l.merges, mergeText{uint32(from), uint32(mid), uint32(len(l.mergeBuf))})
		return err
	})
}
