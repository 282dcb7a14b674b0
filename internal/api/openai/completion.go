// SPDX-License-Identifier: MIT OR Apache-2.0

package openai

import (
	"math"

	"github.com/metrale/metrale/internal/diag"
)

// CompletionRequest is a body of /v1/completions.
type CompletionRequest struct {
	Params
	Prompts    []Prompt
	Echo       bool // the text begins with the prompt
	AddSpecial bool // a text gets the tokens that the tokenizer puts around
}

// Prompt is a text or token ids.
type Prompt struct {
	Text string
	IDs  []int32 // nil when it is a text
}

// defaultMaxTokens is OpenAI's for completions.
const defaultMaxTokens = 16

// DecodeCompletion reads a body of /v1/completions.
func DecodeCompletion(body []byte, s Scope) (*CompletionRequest, error) {
	o, err := parseBody(body)
	if err != nil {
		return nil, err
	}
	r := &CompletionRequest{Params: o.params(s), Echo: o.bool("echo", false), AddSpecial: o.bool("add_special_tokens", true)}
	r.Prompts = o.prompts(s.Vocab)
	r.Logprobs = int(o.int("logprobs", 0, MaxLogprobs, -1))
	least := int64(1)
	if r.Echo {
		least = 0
	}
	r.MaxTokens = int(o.int("max_tokens", least, math.MaxInt32, defaultMaxTokens))
	if n := o.int("best_of", 1, MaxN, int64(r.N)); n != int64(r.N) {
		o.failWith(diag.Unsupported, "best_of", "it is %d; only n (%d) is possible", n, r.N)
	}
	if o.string("suffix") != "" {
		o.failWith(diag.Unsupported, "suffix", "this server does not insert text before a suffix")
	}
	if r.MinTokens > r.MaxTokens {
		o.fail("min_tokens", "it is %d, more than max_tokens (%d)", r.MinTokens, r.MaxTokens)
	}
	checkResponseFormat(o)
	r.Unknown = o.unknown()
	return r, o.err()
}

// prompts reads a text, token ids, or a list of either.
func (o *object) prompts(vocab int) []Prompt {
	raw := o.get("prompt")
	switch {
	case raw == nil:
		o.fail("prompt", "it is missing")
		return nil
	case raw[0] == '"':
		return []Prompt{{Text: unquote(raw)}}
	case raw[0] != '[':
		o.fail("prompt", "it is %s; it must be a string, token ids, or a list of either", shown(raw))
		return nil
	}
	s := scanner{data: raw, pos: 1}
	switch c := s.peek(); {
	case c == ']':
		o.fail("prompt", "it is an empty list")
		return nil
	case c == '-' || c >= '0' && c <= '9':
		return []Prompt{{IDs: o.parseIDs("prompt", raw, vocab)}}
	}
	var out []Prompt
	for s.more() {
		item := s.skip()
		switch {
		case len(out) == MaxPrompts:
			o.fail("prompt", "it has more than %d prompts", MaxPrompts)
			return nil
		case item[0] == '"':
			out = append(out, Prompt{Text: unquote(item)})
		case item[0] == '[':
			out = append(out, Prompt{IDs: o.parseIDs("prompt", item, vocab)})
		default:
			o.fail("prompt", "item %d is %s; it must be a string or a list of token ids", len(out), shown(item))
			return nil
		}
	}
	return out
}

// checkResponseFormat refuses what cannot be promised.
func checkResponseFormat(o *object) {
	f := o.object("response_format")
	if f == nil {
		return
	}
	switch t := f.oneOf("type", "text", "json_object", "json_schema"); t {
	case "json_object", "json_schema":
		f.failWith(diag.Unsupported, "type", "%s needs grammar-constrained decoding, which this server does not have; ask for JSON in the prompt", t)
	case "":
		f.fail("type", "it is missing")
	}
}
