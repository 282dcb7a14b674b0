// SPDX-License-Identifier: MIT OR Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

// refused demands that the client saw an error of the server with that status that names the field and, unless it is "", has
// the code.
func refused(err error, status int, field, code string) error {
	var e *openai.Error
	if !errors.As(err, &e) {
		return fmt.Errorf("want an error of the server with status %d, got %v", status, err)
	}
	return errors.Join(
		equal("status", e.StatusCode, status),
		equal("param", e.Param, field),
		holds(code == "" || e.Code == code, "code: got %q, want %q", e.Code, code),
		holds(e.Message != "", "no message"),
		equal("type", e.Type, "invalid_request_error"),
	)
}

// wrongFields are values that no server can honour, and what each error must name.
var wrongFields = []struct {
	field string
	value any
	named string
}{
	{"temperature", "hot", "temperature"},
	{"temperature", -1, "temperature"},
	{"top_p", 1.5, "top_p"},
	{"max_tokens", 0, "max_tokens"},
	{"n", 0, "n"},
	{"stop", 7, "stop"},
	{"logit_bias", map[string]int{"-1": 5}, "logit_bias"},
	{"top_logprobs", 5, "top_logprobs"},
	{"messages", []any{}, "messages"},
	{"messages.0.role", "nobody", "messages.0.role"},
	{"messages.0.content", 3, "messages.0.content"},
}

var refusalChecks = []check{
	{"refused: a 400 names its field", func(ctx context.Context, s *server) error {
		var all []error
		for _, w := range wrongFields {
			_, err := s.chat(ctx, s.asking(nil), option.WithJSONSet(w.field, w.value))
			if err := refused(err, 400, w.named, ""); err != nil {
				all = append(all, fmt.Errorf("%s = %s: %w", w.field, show(w.value), err))
			}
		}
		return errors.Join(all...)
	}},
	{"refused: a stream's error comes before its first chunk", func(ctx context.Context, s *server) error {
		stream := s.client.Chat.Completions.NewStreaming(ctx, s.asking(nil), option.WithJSONSet("temperature", "hot"))
		defer stream.Close()
		if stream.Next() {
			return fmt.Errorf("there was a chunk: %s", stream.Current().RawJSON())
		}
		return refused(stream.Err(), 400, "temperature", "")
	}},
	{"refused: a model that is not here", func(ctx context.Context, s *server) error {
		_, err := s.chat(ctx, s.asking(func(p *openai.ChatCompletionNewParams) { p.Model = "no-such-model" }))
		return refused(err, 404, "model", "")
	}},
	{"refused: a conversation longer than the context", func(ctx context.Context, s *server) error {
		_, err := s.chat(ctx, s.asking(func(p *openai.ChatCompletionNewParams) {
			p.Messages = []openai.ChatCompletionMessageParamUnion{openai.UserMessage(strings.Repeat("river ", int(s.context)))}
		}))
		return refused(err, 400, "messages", "context_length_exceeded")
	}},
	{"refused: token ids that fill the context", func(ctx context.Context, s *server) error {
		_, err := s.complete(ctx, s.completing(func(p *openai.CompletionNewParams) {
			p.Prompt = openai.CompletionNewParamsPromptUnion{OfArrayOfTokens: slices.Repeat([]int64{1}, int(s.context))}
		}))
		return refused(err, 400, "prompt", "context_length_exceeded")
	}},
	{"refused: the server answers after all that", func(ctx context.Context, s *server) error {
		_, err := s.say(ctx, s.asking(nil))
		return err
	}},
}
