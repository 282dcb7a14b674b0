// SPDX-License-Identifier: MIT OR Apache-2.0

package openai

import (
	"strconv"

	"github.com/metrale/metrale/internal/api/text"
	"github.com/metrale/metrale/internal/seq"
)

// ChatRenderer writes chat completions.
type ChatRenderer struct{ stream }

// NewChatRenderer prepares to write an answer, streamed or whole.
func NewChatRenderer(a *Answer) *ChatRenderer {
	return &ChatRenderer{newStream(a, "chat.completion.chunk")}
}

// Begin writes a choice's first chunk.
func (r *ChatRenderer) Begin(dst []byte, index int, usage *Usage) []byte {
	dst = r.begin(dst, index)
	dst = append(dst, `,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null`...)
	return r.end(dst, usage)
}

// Piece writes a chunk of text.
func (r *ChatRenderer) Piece(dst []byte, index int, p text.Piece, usage *Usage) []byte {
	dst = r.begin(dst, index)
	dst = AppendString(append(dst, `,"delta":{"content":`...), p.Text)
	dst = r.answer.appendChatLogprobs(append(dst, `},"logprobs":`...), p.Tokens)
	return r.end(append(dst, `,"finish_reason":null`...), usage)
}

// Finish writes a choice's last chunk.
func (r *ChatRenderer) Finish(dst []byte, index int, f Finish, usage *Usage) []byte {
	dst = append(r.begin(dst, index), `,"delta":{},"logprobs":null`...)
	return r.end(f.append(dst), usage)
}

// Whole writes the answer that is not streamed.
func (r *ChatRenderer) Whole(dst []byte, choices []Choice, usage *Usage) []byte {
	a := r.answer
	dst = append(a.head(dst, "chat.completion"), `,"choices":[`...)
	for i := range choices {
		c := &choices[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(append(dst, `{"index":`...), int64(c.Index), 10)
		dst = AppendString(append(dst, `,"message":{"role":"assistant","content":`...), c.Text)
		dst = a.appendChatLogprobs(append(dst, `,"refusal":null},"logprobs":`...), c.Tokens)
		dst = append(c.Finish.append(dst), '}')
	}
	dst = usage.append(append(dst, `],"usage":`...))
	if a.Params.PromptLogprobs >= 0 {
		dst = a.appendPromptLogprobs(append(dst, `,"prompt_logprobs":`...), choices[0].Prompt)
	}
	return append(dst, '}')
}

// appendChatLogprobs writes the logprobs of a choice, null when they were not asked for.
func (a *Answer) appendChatLogprobs(dst []byte, tokens []text.Token) []byte {
	if a.Params.Logprobs < 0 {
		return append(dst, "null"...)
	}
	dst = append(dst, `{"content":[`...)
	for i := range tokens {
		if i > 0 {
			dst = append(dst, ',')
		}
		t := &tokens[i]
		dst = a.appendEntry(dst, seq.Logprob{Token: t.ID, Value: t.Logprob})
		dst = append(dst, `,"top_logprobs":[`...)
		for k, e := range t.Top[:min(a.Params.Logprobs, len(t.Top))] {
			if k > 0 {
				dst = append(dst, ',')
			}
			dst = append(a.appendEntry(dst, e), '}')
		}
		dst = append(dst, "]}"...)
	}
	return append(dst, `],"refusal":null}`...)
}

// appendEntry writes a token, its logarithm and its bytes, without the closing brace.
func (a *Answer) appendEntry(dst []byte, e seq.Logprob) []byte {
	b := a.Vocabulary.TokenBytes(e.Token)
	dst = AppendString(append(dst, `{"token":`...), string(b))
	dst = appendLogprob(append(dst, `,"logprob":`...), e.Value)
	dst = append(dst, `,"bytes":[`...)
	for i, c := range b {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(c), 10)
	}
	return append(dst, ']')
}
