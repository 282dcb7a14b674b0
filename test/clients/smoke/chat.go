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

const story = "Write a long story about a river that wanted to see the sea."

// asking is a greedy chat request of a few tokens; change may adapt it.
func (s *server) asking(change func(*openai.ChatCompletionNewParams)) openai.ChatCompletionNewParams {
	p := openai.ChatCompletionNewParams{
		Model:       s.model,
		Messages:    []openai.ChatCompletionMessageParamUnion{openai.UserMessage(story)},
		Temperature: openai.Float(0),
		MaxTokens:   openai.Int(24),
	}
	if change != nil {
		change(&p)
	}
	return p
}

// chat is the answer in one piece.
func (s *server) chat(ctx context.Context, p openai.ChatCompletionNewParams, o ...option.RequestOption) (*openai.ChatCompletion, error) {
	return s.client.Chat.Completions.New(ctx, p, o...)
}

// say is the text of an answer.
func (s *server) say(ctx context.Context, p openai.ChatCompletionNewParams, o ...option.RequestOption) (string, error) {
	a, err := s.chat(ctx, p, o...)
	if err != nil {
		return "", err
	}
	return a.Choices[0].Message.Content, nil
}

// streamed is the answer that the client puts together from a stream, and the stream's chunks.
func (s *server) streamed(ctx context.Context, p openai.ChatCompletionNewParams) (*openai.ChatCompletion, []openai.ChatCompletionChunk, error) {
	stream := s.client.Chat.Completions.NewStreaming(ctx, p)
	defer stream.Close()
	var whole openai.ChatCompletionAccumulator
	var chunks []openai.ChatCompletionChunk
	for stream.Next() {
		chunks = append(chunks, stream.Current())
		if !whole.AddChunk(stream.Current()) {
			return nil, nil, fmt.Errorf("chunk %d does not fit those before it: %s", len(chunks), stream.Current().RawJSON())
		}
	}
	return &whole.ChatCompletion, chunks, stream.Err()
}

var chatChecks = []check{
	{"chat: an answer has every part", func(ctx context.Context, s *server) error {
		a, err := s.chat(ctx, s.asking(nil))
		if err != nil {
			return err
		}
		c := a.Choices[0]
		return errors.Join(
			equal("model", a.Model, s.model),
			holds(strings.HasPrefix(a.ID, "chatcmpl-"), "id %q", a.ID),
			holds(a.Created > 1<<30, "created %d", a.Created),
			equal("choices", len(a.Choices), 1),
			equal("role", string(c.Message.Role), "assistant"),
			holds(c.Message.Content != "", "no content"),
			equal("finish_reason", c.FinishReason, "length"),
			equal("completion_tokens", a.Usage.CompletionTokens, int64(24)),
			equal("total_tokens", a.Usage.TotalTokens, a.Usage.PromptTokens+a.Usage.CompletionTokens),
		)
	}},
	{"chat: a stream says the same", func(ctx context.Context, s *server) error {
		want, err := s.chat(ctx, s.asking(nil))
		if err != nil {
			return err
		}
		got, chunks, err := s.streamed(ctx, s.asking(nil))
		if err != nil {
			return err
		}
		ids := map[string]bool{}
		usage := 0
		for _, c := range chunks {
			ids[c.ID] = true
			if c.JSON.Usage.Valid() {
				usage++
			}
		}
		return errors.Join(
			equal("content", got.Choices[0].Message.Content, want.Choices[0].Message.Content),
			equal("finish_reason", got.Choices[0].FinishReason, want.Choices[0].FinishReason),
			equal("first role", chunks[0].Choices[0].Delta.Role, "assistant"),
			equal("ids of the chunks", len(ids), 1),
			equal("chunks with usage, which was not asked for", usage, 0),
			holds(len(chunks) > 8, "%d chunks for 24 tokens", len(chunks)),
		)
	}},
	{"chat: include_usage counts as the whole answer does", func(ctx context.Context, s *server) error {
		want, err := s.chat(ctx, s.asking(nil))
		if err != nil {
			return err
		}
		_, chunks, err := s.streamed(ctx, s.asking(func(p *openai.ChatCompletionNewParams) {
			p.StreamOptions.IncludeUsage = openai.Bool(true)
		}))
		if err != nil {
			return err
		}
		last := chunks[len(chunks)-1]
		early := slices.ContainsFunc(chunks[:len(chunks)-1], func(c openai.ChatCompletionChunk) bool { return c.JSON.Usage.Valid() })
		return errors.Join(
			equal("choices of the last chunk", len(last.Choices), 0),
			equal("prompt_tokens", last.Usage.PromptTokens, want.Usage.PromptTokens),
			equal("completion_tokens", last.Usage.CompletionTokens, want.Usage.CompletionTokens),
			equal("total_tokens", last.Usage.TotalTokens, want.Usage.TotalTokens),
			equal("usage before the last chunk", early, false),
		)
	}},
	{"chat: system message, turns and content in parts", func(ctx context.Context, s *server) error {
		turns := func(last openai.ChatCompletionMessageParamUnion) openai.ChatCompletionNewParams {
			return s.asking(func(p *openai.ChatCompletionNewParams) {
				p.Messages = []openai.ChatCompletionMessageParamUnion{
					openai.SystemMessage("You are terse."), openai.UserMessage("Hello."), openai.AssistantMessage("Hi."), last,
				}
			})
		}
		want, err := s.say(ctx, turns(openai.UserMessage(story)))
		if err != nil {
			return err
		}
		parts := []openai.ChatCompletionContentPartUnionParam{openai.TextContentPart(story)}
		got, err := s.say(ctx, turns(openai.UserMessage(parts)))
		return errors.Join(err, equal("content", got, want))
	}},
	{"chat: tools may be offered", func(ctx context.Context, s *server) error {
		got, err := s.chat(ctx, s.asking(func(p *openai.ChatCompletionNewParams) {
			p.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(openai.FunctionDefinitionParam{
				Name: "weather", Description: openai.String("Tells the weather"),
				Parameters: openai.FunctionParameters{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}},
			})}
		}))
		if err != nil {
			return err
		}
		return equal("choices", len(got.Choices), 1)
	}},
	{"chat: logprobs tell the text, streamed too", chatLogprobs},
	{"chat: n=2 gives two answers, streamed too", func(ctx context.Context, s *server) error {
		p := s.asking(func(p *openai.ChatCompletionNewParams) {
			p.N, p.Temperature, p.Seed = openai.Int(2), openai.Float(1), openai.Int(11)
		})
		want, err := s.chat(ctx, p)
		if err != nil {
			return err
		}
		got, _, err := s.streamed(ctx, p)
		if err != nil {
			return err
		}
		first, second := want.Choices[0], want.Choices[1]
		return errors.Join(
			equal("choices", len(want.Choices), 2),
			equal("indices", []int64{first.Index, second.Index}, []int64{0, 1}),
			holds(first.Message.Content != second.Message.Content, "both say %q at temperature 1", first.Message.Content),
			equal("streamed choices", len(got.Choices), 2),
			equal("streamed, first", got.Choices[0].Message.Content, first.Message.Content),
			equal("streamed, second", got.Choices[1].Message.Content, second.Message.Content),
			holds(want.Usage.CompletionTokens > 24 && want.Usage.CompletionTokens <= 48, "completion_tokens %d for two answers of 24", want.Usage.CompletionTokens),
		)
	}},
	{"chat: a stop string ends the text before it, streamed too", func(ctx context.Context, s *server) error {
		free, err := s.say(ctx, s.asking(nil))
		if err != nil {
			return err
		}
		word := middle(free)
		p := s.asking(func(p *openai.ChatCompletionNewParams) {
			p.Stop.OfStringArray = []string{"no such text", word}
		})
		whole, err := s.chat(ctx, p)
		if err != nil {
			return err
		}
		streamed, _, err := s.streamed(ctx, p)
		if err != nil {
			return err
		}
		before, _, _ := strings.Cut(free, word)
		return errors.Join(
			equal("content", whole.Choices[0].Message.Content, before),
			equal("finish_reason", whole.Choices[0].FinishReason, "stop"),
			equal("streamed content", streamed.Choices[0].Message.Content, before),
			equal("streamed finish_reason", streamed.Choices[0].FinishReason, "stop"),
		)
	}},
	{"chat: a seed repeats its text, others differ", func(ctx context.Context, s *server) error {
		texts := map[string]bool{}
		for _, seed := range []int64{7, 7, 8, 9, 10} {
			said, err := s.say(ctx, s.asking(func(p *openai.ChatCompletionNewParams) {
				p.Temperature, p.Seed = openai.Float(1), openai.Int(seed)
			}))
			if err != nil {
				return err
			}
			if seed == 7 && len(texts) == 1 && !texts[said] {
				return fmt.Errorf("seed 7 said something else the second time: %q", said)
			}
			texts[said] = true
		}
		return holds(len(texts) > 1, "four seeds say the same")
	}},
	{"chat: top_k=1 and min_p=1 make hot sampling greedy", func(ctx context.Context, s *server) error {
		want, err := s.say(ctx, s.asking(nil))
		if err != nil {
			return err
		}
		hot := s.asking(func(p *openai.ChatCompletionNewParams) { p.Temperature = openai.Float(2) })
		k, kerr := s.say(ctx, hot, option.WithJSONSet("top_k", 1))
		m, merr := s.say(ctx, hot, option.WithJSONSet("min_p", 1))
		return errors.Join(kerr, merr, equal("top_k", k, want), equal("min_p", m, want))
	}},
	{"chat: ignore_eos runs to max_tokens", func(ctx context.Context, s *server) error {
		p := s.asking(func(p *openai.ChatCompletionNewParams) {
			p.Messages = []openai.ChatCompletionMessageParamUnion{openai.UserMessage("Say yes.")}
			p.MaxTokens = openai.Int(64)
		})
		a, err := s.chat(ctx, p, option.WithJSONSet("ignore_eos", true))
		if err != nil {
			return err
		}
		return errors.Join(
			equal("finish_reason", a.Choices[0].FinishReason, "length"),
			equal("completion_tokens", a.Usage.CompletionTokens, int64(64)),
		)
	}},
}

// chatLogprobs compares the tokens' bytes with the text, and a stream's entries with those of the whole answer.
func chatLogprobs(ctx context.Context, s *server) error {
	p := s.asking(func(p *openai.ChatCompletionNewParams) {
		p.Logprobs, p.TopLogprobs = openai.Bool(true), openai.Int(3)
	})
	whole, err := s.chat(ctx, p)
	if err != nil {
		return err
	}
	_, chunks, err := s.streamed(ctx, p)
	if err != nil {
		return err
	}
	var told []byte
	var entries []string
	for i, t := range whole.Choices[0].Logprobs.Content {
		entries = append(entries, t.RawJSON())
		for _, b := range t.Bytes {
			told = append(told, byte(b))
		}
		if t.Logprob > 0 || len(t.TopLogprobs) != 3 || t.TopLogprobs[0].Token != t.Token {
			return fmt.Errorf("token %d of a greedy answer is not the first of its top three: %s", i, t.RawJSON())
		}
		if t.TopLogprobs[0].Logprob < t.TopLogprobs[1].Logprob || t.TopLogprobs[1].Logprob < t.TopLogprobs[2].Logprob {
			return fmt.Errorf("top_logprobs of token %d do not descend: %s", i, t.RawJSON())
		}
	}
	var streamed []string
	for _, c := range chunks {
		for _, choice := range c.Choices {
			for _, t := range choice.Logprobs.Content {
				streamed = append(streamed, t.RawJSON())
			}
		}
	}
	return errors.Join(
		equal("tokens", len(entries), 24),
		equal("bytes of the tokens", string(told), whole.Choices[0].Message.Content),
		equal("streamed entries", streamed, entries),
	)
}

// middle is a piece out of the middle of a text, from within a word into the next.
func middle(text string) string {
	runes := []rune(text)
	for i := len(runes) / 2; i < len(runes)-3; i++ {
		if runes[i] == ' ' {
			return string(runes[i-2 : i+3])
		}
	}
	return string(runes[len(runes)/2:])
}
