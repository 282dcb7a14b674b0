// SPDX-License-Identifier: MIT OR Apache-2.0

package openai

import (
	"bytes"
	"strings"
	"time"

	"github.com/metrale/metrale/internal/chat"
	"github.com/metrale/metrale/internal/chat/jinja"
	"github.com/metrale/metrale/internal/diag"
)

// Templates renders conversations with the chat templates of a model.
type Templates struct {
	sources map[string]string // by name
	byName  map[string]*chat.Template
	tokens  SpecialTokens
	now     func() time.Time
}

// SpecialTokens are texts that templates may ask for; "" if there is none.
type SpecialTokens struct{ BOS, EOS, Unk, Pad string }

// NewTemplates compiles those of the templates that conversations use: with tools, and without.
func NewTemplates(sources map[string]string, tokens SpecialTokens, now func() time.Time) (*Templates, error) {
	t := &Templates{sources: sources, byName: map[string]*chat.Template{}, tokens: tokens, now: now}
	for _, tools := range []bool{false, true} {
		name, err := chat.Pick(sources, tools)
		if err != nil {
			return nil, err
		}
		if t.byName[name] != nil {
			continue
		}
		if t.byName[name], err = chat.Compile(name, sources[name]); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Render gives the prompt of a conversation. text, unless it is nil, is applied to all texts of the client's (chat.Input).
func (t *Templates) Render(c *Conversation, text func(string) string) (string, error) {
	name, err := chat.Pick(t.sources, c.Tools != nil)
	if err != nil {
		return "", err
	}
	in := chat.Input{
		AddGenerationPrompt: c.AddGeneration, ContinueFinalMessage: c.ContinueFinal,
		BOS: t.tokens.BOS, EOS: t.tokens.EOS, Unk: t.tokens.Unk, Pad: t.tokens.Pad, Now: t.now(), Text: text,
	}
	messages := c.Messages
	if !strings.Contains(t.sources[name], "developer") {
		messages = renameDeveloper(messages)
	}
	for _, part := range []struct {
		field string
		raw   []byte
		to    *chat.Value
	}{{"messages", messages, &in.Messages}, {"tools", c.Tools, &in.Tools}, {"documents", c.Documents, &in.Documents}, {"chat_template_kwargs", c.Kwargs, &in.Kwargs}} {
		*part.to = jinja.Null
		if part.raw == nil {
			continue
		}
		if *part.to, err = chat.ParseJSON(part.raw); err != nil {
			return "", diag.Errorf(diag.Invalid, "%s: %w", part.field, err).For(part.field)
		}
	}
	if c.ReasoningEffort != "" && in.Kwargs.Get("reasoning_effort").IsAbsent() {
		in.Kwargs = with(in.Kwargs, jinja.Field{Name: "reasoning_effort", Value: jinja.String(c.ReasoningEffort)})
	}
	return t.byName[name].Render(in)
}

// with is a dict, or null, with one more field.
func with(dict chat.Value, f jinja.Field) chat.Value {
	fields := make([]jinja.Field, 0, dict.Len()+1)
	for i := range dict.Len() {
		fields = append(fields, dict.Field(i))
	}
	return jinja.Dict(append(fields, f)...)
}

// renameDeveloper makes developers' messages the system's, for templates that have not heard of them and would drop them.
func renameDeveloper(messages []byte) []byte {
	if !bytes.Contains(messages, []byte("developer")) {
		return messages
	}
	out := []byte{'['}
	s := scanner{data: messages, pos: 1}
	for first := true; s.more(); first = false {
		if !first {
			out = append(out, ',')
		}
		item := s.skip()
		var fault error
		o := &object{fault: &fault}
		if o.parse(item); o.string("role") != "developer" {
			out = append(out, item...)
			continue
		}
		out = append(out, `{"role":"system"`...)
		for _, f := range o.fields {
			if f.key != "role" {
				out = append(AppendString(append(out, ','), f.key), ':')
				out = append(out, f.raw...)
			}
		}
		out = append(out, '}')
	}
	return append(out, ']')
}
