// SPDX-License-Identifier: MIT OR Apache-2.0

package server

import (
	"slices"
	"time"

	"github.com/metrale/metrale/internal/api/openai"
	"github.com/metrale/metrale/internal/api/text"
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/engine"
	"github.com/metrale/metrale/internal/tokenizer"
)

// Template makes a prompt of a conversation; openai.Template is one.
type Template interface {
	// Render applies text to all texts of the client's.
	Render(c *openai.Conversation, text func(string) string) (string, error)
}

// Model is what a server serves.
type Model struct {
	Name         string
	Aliases      []string // further names that requests may use
	Created      time.Time
	Engine       *engine.Engine
	Tokenizer    *tokenizer.Tokenizer
	Template     Template // nil: the model does not chat
	Images       *Images  // nil: the model takes text only
	Defaults     openai.Defaults
	EOS          []int32 // tokens that end a text
	Vocab        int     // token ids are below it
	PageSize     int     // tokens in a KV page
	MaxSequences int     // that the engine holds, running and waiting
	Fingerprint  string  // of everything that decides what the model says

	longest int // bytes of the longest token
	guard   *tokenizer.Guard
}

// prepare computes what requests need again and again.
func (m *Model) prepare() {
	for id := range m.Tokenizer.VocabSize() {
		m.longest = max(m.longest, len(m.Tokenizer.TokenBytes(int32(id))))
	}
	m.guard = m.Tokenizer.NewGuard()
	if m.Images != nil {
		m.Images.fetcher = newFetcher(m.Images.Hosts)
	}
}

func (m *Model) info() openai.ModelInfo {
	return openai.ModelInfo{ID: m.Name, Created: m.Created.Unix(), MaxLen: m.Engine.Context()}
}

func (m *Model) scope() openai.Scope {
	s := openai.Scope{Vocab: m.Vocab, Defaults: m.Defaults}
	if m.Images != nil {
		s.Images, s.Hosts = m.Images.Most, m.Images.Hosts
	}
	return s
}

// named refuses the name of another model. No name is this model's.
func (m *Model) named(name string) error {
	if name == "" || name == m.Name || slices.Contains(m.Aliases, name) {
		return nil
	}
	return diag.Errorf(diag.NotFound, "the model %q does not exist here; this server has %q", name, m.Name).For("model")
}

// shrink is by how much a tokenizer's normalizer may shorten a text, at most.
const shrink = 4

// fits refuses a text that cannot fit the context, without tokenising it.
func (m *Model) fits(s, field string) error {
	context := m.Engine.Context()
	if least := len(s) / (shrink * max(m.longest, 1)); least > context {
		return diag.Errorf(diag.TooLong, "the prompt has more than %d tokens; the context holds %d", least, context).For(field)
	}
	return nil
}

// encode turns a text of the client's own into ids.
func (m *Model) encode(s string, addSpecial bool) ([]int32, error) {
	if err := m.fits(s, "prompt"); err != nil {
		return nil, err
	}
	return m.Tokenizer.Encode(s, tokenizer.EncodeOptions{AddSpecial: addSpecial}), nil
}

// chat renders and encodes a conversation, in whose texts special tokens are plain. One token stands for each image.
func (m *Model) chat(c *openai.Conversation) ([]int32, error) {
	const field = "messages"
	if m.Template == nil {
		return nil, diag.Errorf(diag.Unsupported, "the model %s has no chat template; use /v1/completions", m.Name).For(field)
	}
	prompt, err := m.Template.Render(c, m.guard.Mark)
	if err != nil {
		return nil, rename(err, field)
	}
	if err := m.fits(prompt, field); err != nil {
		return nil, err
	}
	return m.guard.Encode(prompt, tokenizer.EncodeOptions{AddSpecial: c.AddSpecial}), nil
}

// decoder decodes what follows the ids, or the ids too.
func (m *Model) decoder(ids []int32, echo, skipSpecial bool) text.Decoder {
	d := m.Tokenizer.NewDecoder(skipSpecial)
	if !echo && len(ids) > 0 {
		d.Push(ids[len(ids)-1]) // the text goes on from there: no space is taken away as at a text's beginning
	}
	return d
}
