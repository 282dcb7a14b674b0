// SPDX-License-Identifier: MIT OR Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
)

const opening = "Once upon a time a river"

// completing is a greedy completion request of a few tokens; change may adapt it.
func (s *server) completing(change func(*openai.CompletionNewParams)) openai.CompletionNewParams {
	p := openai.CompletionNewParams{
		Model:       openai.CompletionNewParamsModel(s.model),
		Prompt:      openai.CompletionNewParamsPromptUnion{OfString: openai.String(opening)},
		Temperature: openai.Float(0),
		MaxTokens:   openai.Int(24),
	}
	if change != nil {
		change(&p)
	}
	return p
}

func (s *server) complete(ctx context.Context, p openai.CompletionNewParams, o ...option.RequestOption) (*openai.Completion, error) {
	return s.client.Completions.New(ctx, p, o...)
}

// completeStreamed joins the texts of a stream, and gives its last reason and the usage of its last chunk.
func (s *server) completeStreamed(ctx context.Context, p openai.CompletionNewParams) (text, reason string, usage openai.CompletionUsage, err error) {
	stream := s.client.Completions.NewStreaming(ctx, p)
	defer stream.Close()
	for stream.Next() {
		chunk := stream.Current()
		usage = chunk.Usage
		for _, c := range chunk.Choices {
			text += c.Text
			if c.FinishReason != "" {
				reason = string(c.FinishReason)
			}
		}
	}
	return text, reason, usage, stream.Err()
}

var completionChecks = []check{
	{"completions: a stream says the same and counts the same", func(ctx context.Context, s *server) error {
		want, err := s.complete(ctx, s.completing(nil))
		if err != nil {
			return err
		}
		text, reason, usage, err := s.completeStreamed(ctx, s.completing(func(p *openai.CompletionNewParams) {
			p.StreamOptions.IncludeUsage = openai.Bool(true)
		}))
		if err != nil {
			return err
		}
		return errors.Join(
			equal("model", want.Model, s.model),
			holds(want.Choices[0].Text != "", "no text"),
			equal("text", text, want.Choices[0].Text),
			equal("finish_reason", reason, string(want.Choices[0].FinishReason)),
			equal("prompt_tokens", usage.PromptTokens, want.Usage.PromptTokens),
			equal("completion_tokens", usage.CompletionTokens, want.Usage.CompletionTokens),
			equal("total_tokens", usage.TotalTokens, want.Usage.PromptTokens+want.Usage.CompletionTokens),
		)
	}},
	{"completions: many prompts say what each says alone", func(ctx context.Context, s *server) error {
		prompts := []string{"One, two, three,", "A, B, C, D,", "Monday, Tuesday,"}
		many, err := s.complete(ctx, s.completing(func(p *openai.CompletionNewParams) {
			p.Prompt = openai.CompletionNewParamsPromptUnion{OfArrayOfStrings: prompts}
		}))
		if err != nil {
			return err
		}
		for i, prompt := range prompts {
			one, err := s.complete(ctx, s.completing(func(p *openai.CompletionNewParams) { p.Prompt.OfString = openai.String(prompt) }))
			if err != nil {
				return err
			}
			if err := equal(prompt, many.Choices[i].Text, one.Choices[0].Text); err != nil {
				return err
			}
		}
		return nil
	}},
	{"completions: echo begins with the prompt", func(ctx context.Context, s *server) error {
		want, err := s.complete(ctx, s.completing(nil))
		if err != nil {
			return err
		}
		got, err := s.complete(ctx, s.completing(func(p *openai.CompletionNewParams) { p.Echo = openai.Bool(true) }))
		if err != nil {
			return err
		}
		return equal("text", got.Choices[0].Text, opening+want.Choices[0].Text)
	}},
	{"completions: logprobs tell the text", func(ctx context.Context, s *server) error {
		a, err := s.complete(ctx, s.completing(func(p *openai.CompletionNewParams) { p.Logprobs = openai.Int(2) }))
		if err != nil {
			return err
		}
		c := a.Choices[0]
		l := c.Logprobs
		for i, t := range l.Tokens {
			v, ok := l.TopLogprobs[i][t]
			if !ok || v != l.TokenLogprobs[i] || len(l.TopLogprobs[i]) != 2 {
				return fmt.Errorf("token %d is %q at %v, but its top two are %s", i, t, l.TokenLogprobs[i], show(l.TopLogprobs[i]))
			}
			if i > 0 && l.TextOffset[i]-l.TextOffset[i-1] != int64(len([]rune(l.Tokens[i-1]))) {
				return fmt.Errorf("text_offset goes from %d to %d over %q", l.TextOffset[i-1], l.TextOffset[i], l.Tokens[i-1])
			}
		}
		return errors.Join(
			equal("tokens", len(l.Tokens), 24),
			equal("joined tokens", strings.Join(l.Tokens, ""), c.Text),
		)
	}},
	{"completions: a stop string ends the text, and stop_reason names it", func(ctx context.Context, s *server) error {
		free, err := s.complete(ctx, s.completing(nil))
		if err != nil {
			return err
		}
		word := middle(free.Choices[0].Text)
		p := s.completing(func(p *openai.CompletionNewParams) { p.Stop.OfString = openai.String(word) })
		whole, err := s.complete(ctx, p)
		if err != nil {
			return err
		}
		text, reason, _, err := s.completeStreamed(ctx, p)
		before, _, _ := strings.Cut(free.Choices[0].Text, word)
		return errors.Join(
			err,
			equal("text", whole.Choices[0].Text, before),
			equal("finish_reason", string(whole.Choices[0].FinishReason), "stop"),
			equal("stop_reason", whole.Choices[0].JSON.ExtraFields["stop_reason"].Raw(), show(word)),
			equal("streamed text", text, before),
			equal("streamed finish_reason", reason, "stop"),
		)
	}},
}
