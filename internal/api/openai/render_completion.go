// SPDX-License-Identifier: MIT OR Apache-2.0

package openai

import (
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/metrale/metrale/internal/api/text"
)

// CompletionRenderer writes completions.
type CompletionRenderer struct{ stream }

// NewCompletionRenderer prepares to write an answer, streamed or whole.
func NewCompletionRenderer(a *Answer) *CompletionRenderer {
	return &CompletionRenderer{newStream(a, "text_completion")}
}

// Begin writes nothing: a choice's first chunk is its first text.
func (r *CompletionRenderer) Begin(dst []byte, _ int, _ *Usage) []byte { return dst }

// Piece writes a chunk of text.
func (r *CompletionRenderer) Piece(dst []byte, index int, p text.Piece, usage *Usage) []byte {
	dst = AppendString(append(r.begin(dst, index), `,"text":`...), p.Text)
	dst = r.answer.appendLegacyLogprobs(append(dst, `,"logprobs":`...), p.Tokens)
	return r.end(append(dst, `,"finish_reason":null`...), usage)
}

// Finish writes a choice's last chunk.
func (r *CompletionRenderer) Finish(dst []byte, index int, f Finish, usage *Usage) []byte {
	dst = append(r.begin(dst, index), `,"text":"","logprobs":null`...)
	return r.end(f.append(dst), usage)
}

// Whole writes the answer that is not streamed.
func (r *CompletionRenderer) Whole(dst []byte, choices []Choice, usage *Usage) []byte {
	a := r.answer
	dst = append(a.head(dst, "text_completion"), `,"choices":[`...)
	for i := range choices {
		c := &choices[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(append(dst, `{"index":`...), int64(c.Index), 10)
		dst = AppendString(append(dst, `,"text":`...), c.Text)
		dst = a.appendLegacyLogprobs(append(dst, `,"logprobs":`...), c.Tokens)
		dst = c.Finish.append(dst)
		if a.Params.PromptLogprobs >= 0 {
			dst = a.appendPromptLogprobs(append(dst, `,"prompt_logprobs":`...), c.Prompt)
		}
		dst = append(dst, '}')
	}
	return append(usage.append(append(dst, `],"usage":`...)), '}')
}

// appendLegacyLogprobs writes four lists, one item a token; null when they were not asked for.
func (a *Answer) appendLegacyLogprobs(dst []byte, tokens []text.Token) []byte {
	if a.Params.Logprobs < 0 {
		return append(dst, "null"...)
	}
	list := func(name string, item func(*text.Token)) {
		dst = append(append(dst, name...), `:[`...)
		for i := range tokens {
			if i > 0 {
				dst = append(dst, ',')
			}
			item(&tokens[i])
		}
		dst = append(dst, ']')
	}
	list(`{"tokens"`, func(t *text.Token) { dst = a.appendLegacyToken(dst, t.ID) })
	list(`,"token_logprobs"`, func(t *text.Token) {
		if math.IsNaN(float64(t.Logprob)) { // the first token of a prompt
			dst = append(dst, "null"...)
		} else {
			dst = appendLogprob(dst, t.Logprob)
		}
	})
	list(`,"top_logprobs"`, func(t *text.Token) { dst = a.appendLegacyTop(dst, t) })
	list(`,"text_offset"`, func(t *text.Token) { dst = strconv.AppendInt(dst, int64(t.Offset), 10) })
	return append(dst, '}')
}

// appendLegacyTop writes an object from tokens to logarithms: the likeliest, and the token itself.
func (a *Answer) appendLegacyTop(dst []byte, t *text.Token) []byte {
	if math.IsNaN(float64(t.Logprob)) || a.Params.Logprobs == 0 {
		return append(dst, "null"...)
	}
	dst = append(dst, '{')
	own := false
	for k, e := range t.Top[:min(a.Params.Logprobs, len(t.Top))] {
		if k > 0 {
			dst = append(dst, ',')
		}
		own = own || e.Token == t.ID
		dst = appendLogprob(append(a.appendLegacyToken(dst, e.Token), ':'), e.Value)
	}
	if !own {
		if len(t.Top) > 0 {
			dst = append(dst, ',')
		}
		dst = appendLogprob(append(a.appendLegacyToken(dst, t.ID), ':'), t.Logprob)
	}
	return append(dst, '}')
}

// appendLegacyToken writes a token's text or, when it is part of a character, its bytes as OpenAI spells them.
func (a *Answer) appendLegacyToken(dst []byte, id int32) []byte {
	b := a.Vocabulary.TokenBytes(id)
	if utf8.Valid(b) {
		return AppendString(dst, string(b))
	}
	dst = append(dst, `"bytes:`...)
	for _, c := range b {
		dst = append(dst, '\\', '\\', 'x', hex[c>>4], hex[c&15])
	}
	return append(dst, '"')
}
