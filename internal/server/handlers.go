// SPDX-License-Identifier: MIT OR Apache-2.0

package server

import (
	"net/http"

	"github.com/metrale/metrale/internal/api/openai"
	"github.com/metrale/metrale/internal/diag"
)

// begin gives what every generating route needs: the model and the request's body. Whoever is still sending is not counted.
func (x *exchange) begin() (*Model, []byte, error) {
	m, err := x.s.current()
	if err != nil {
		return nil, nil, err
	}
	body, err := x.body()
	if err != nil {
		return nil, nil, err
	}
	x.counted = true
	if x.s.inFlight.Add(1) > maxRequests {
		return nil, nil, diag.Errorf(diag.Overloaded, "%d requests are being answered, the most that this server takes", maxRequests)
	}
	return m, body, nil
}

func (x *exchange) chat() error {
	m, body, err := x.begin()
	if err != nil {
		return err
	}
	r, err := openai.DecodeChat(body, m.scope())
	if err != nil {
		return err
	}
	if err := m.named(r.Model); err != nil {
		return err
	}
	x.unknown(r.Unknown)
	j, err := x.newJob(m, &r.Params, 1, false)
	if err != nil {
		return err
	}
	ids, err := m.chat(&r.Conversation)
	if err != nil {
		return err
	}
	ids, images, err := x.see(m, ids, r.Images)
	if err != nil {
		return err
	}
	if err := j.add(ids, images, "", "messages"); err != nil {
		return err
	}
	return j.run(x.newSink(openai.NewChatRenderer(x.answer(m, &r.Params, "chatcmpl-")), &r.Params, len(j.choices)))
}

func (x *exchange) completions() error {
	m, body, err := x.begin()
	if err != nil {
		return err
	}
	r, err := openai.DecodeCompletion(body, m.scope())
	if err != nil {
		return err
	}
	if err := m.named(r.Model); err != nil {
		return err
	}
	x.unknown(r.Unknown)
	j, err := x.newJob(m, &r.Params, len(r.Prompts), r.Echo)
	if err != nil {
		return err
	}
	for _, p := range r.Prompts {
		ids, verbatim := p.IDs, ""
		if ids == nil {
			verbatim = p.Text
			if ids, err = m.encode(p.Text, r.AddSpecial); err != nil {
				return err
			}
		}
		if err := j.add(ids, nil, verbatim, "prompt"); err != nil {
			return err
		}
	}
	return j.run(x.newSink(openai.NewCompletionRenderer(x.answer(m, &r.Params, "cmpl-")), &r.Params, len(j.choices)))
}

// answer is the unchanging part of an answer.
func (x *exchange) answer(m *Model, p *openai.Params, prefix string) *openai.Answer {
	return &openai.Answer{ID: prefix + newID(), Created: x.begun.Unix(), Model: m.Name, Fingerprint: m.Fingerprint, Vocabulary: m.Tokenizer, Params: p}
}

// unknown logs the fields that were ignored.
func (x *exchange) unknown(fields []string) {
	if len(fields) > 0 {
		x.s.log.Debug("fields ignored", "id", x.id, "fields", fields)
	}
}

func (x *exchange) tokenize() error {
	m, body, err := x.begin()
	if err != nil {
		return err
	}
	r, err := openai.DecodeTokenize(body, m.scope())
	if err != nil {
		return err
	}
	if err := m.named(r.Model); err != nil {
		return err
	}
	var ids []int32
	if r.Conversation != nil {
		if ids, err = m.chat(r.Conversation); err == nil {
			ids, _, err = x.see(m, ids, r.Conversation.Images)
		}
	} else {
		ids, err = m.encode(r.Prompt, r.AddSpecial)
	}
	if err != nil {
		return err
	}
	var strs []string
	if r.Strings {
		strs = make([]string, len(ids))
		for i, id := range ids {
			strs[i], _ = m.Tokenizer.Token(id)
		}
	}
	return x.json(http.StatusOK, openai.AppendTokens(nil, ids, m.Engine.Context(), strs))
}

func (x *exchange) detokenize() error {
	m, body, err := x.begin()
	if err != nil {
		return err
	}
	r, err := openai.DecodeDetokenize(body, m.Vocab)
	if err != nil {
		return err
	}
	if err := m.named(r.Model); err != nil {
		return err
	}
	if most := m.Engine.Context(); len(r.Tokens) > most {
		return diag.Errorf(diag.TooLong, "there are %d tokens; the context holds %d", len(r.Tokens), most).For("tokens")
	}
	return x.json(http.StatusOK, openai.AppendText(nil, m.Tokenizer.Decode(r.Tokens, false)))
}
