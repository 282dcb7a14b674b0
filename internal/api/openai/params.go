// SPDX-License-Identifier: MIT OR Apache-2.0

package openai

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/seq"
)

// Bounds of what a request may ask for.
const (
	MaxN        = 128  // choices of a prompt
	MaxStops    = 16   // stop strings
	MaxStopLen  = 4096 // bytes of one
	MaxLogprobs = 20   // likeliest tokens to report
	MaxPrompts  = 2048 // prompts of a completion request
)

// Scope is what a request is checked against.
type Scope struct {
	Vocab    int      // token ids are below it
	Defaults Defaults // of the model
	Images   int      // most images of a request; 0: the model takes none
	Hosts    []string // that images may be fetched from, with their ports, in small letters
}

// Defaults are a model's own sampling parameters, for what a request leaves out. A nil pointer means the API's default.
type Defaults struct {
	Temperature, TopP, MinP, PresencePenalty, RepetitionPenalty *float64
	TopK                                                        *int64
}

// Params are the fields that all generating requests share.
type Params struct {
	Model           string // "" when left out
	Stream          bool
	IncludeUsage    bool // a last chunk of a stream counts tokens
	ContinuousUsage bool // every chunk does
	N               int
	Seed            *int64
	Sampling        seq.Sampling // Seed unset
	MaxTokens       int          // -1: left out
	MinTokens       int
	Stop            []string
	StopTokenIDs    []int32
	IncludeStop     bool // the stop string is part of the text
	IgnoreEOS       bool
	SkipSpecial     bool     // special tokens are no part of the text
	Logprobs        int      // -1: none, 0: of the token only, n: of the n likeliest too
	PromptLogprobs  int      // the same, of the prompt
	Unknown         []string // fields that nobody knows
}

// ignored are fields of OpenAI's and vLLM's clients that change nothing here: they are about storage, billing, routing or
// engines.
var ignored = []string{"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
	"prediction", "verbosity", "spaces_between_special_tokens", "priority", "request_id", "cache_salt",
	"return_tokens_as_token_ids", "length_penalty", "early_stopping", "web_search_options"}

// unbuilt are fields that would change the answer and that this server cannot honour, each with what is missing.
var unbuilt = map[string]string{
	"guided_json": "structured output", "guided_regex": "structured output", "guided_choice": "structured output",
	"guided_grammar": "structured output", "structured_outputs": "structured output", "structural_tag": "structured output",
	"grammar": "structured output", "json_schema": "structured output", "regex": "structured output", "ebnf": "structured output",
	"allowed_token_ids": "masks of allowed tokens", "bad_words": "banned words", "use_beam_search": "beam search", "truncate_prompt_tokens": "truncated prompts",
	"typical_p": "typical sampling", "mirostat": "the mirostat sampler", "dry_multiplier": "the DRY sampler", "xtc_probability": "the XTC sampler",
	"dynatemp_range": "dynamic temperatures", "repeat_penalty": "repeat_penalty, which is repetition_penalty here", "n_predict": "n_predict, which is max_tokens here",
	"logits_processors": "custom logits processors", "chat_template": "a chat template of the request's own",
	"audio": "audio output", "functions": "the functions field, which tools replaced", "function_call": "function_call, which tool_choice replaced",
}

// isOff tells whether a value of an unbuilt field leaves the answer as it is.
func isOff(key, value string) bool {
	switch key {
	case "typical_p", "repeat_penalty":
		return value == "1" || value == "1.0"
	case "mirostat", "dry_multiplier", "xtc_probability", "dynatemp_range":
		return value == "0" || value == "0.0"
	case "n_predict":
		return value == "-1"
	}
	return slices.Contains([]string{"[]", "{}", "false", `""`}, value)
}

// params reads the shared fields. Logprobs are each endpoint's own.
func (o *object) params(s Scope) Params {
	p := Params{
		Model: o.string("model"), Stream: o.bool("stream", false), N: int(o.int("n", 1, MaxN, 1)),
		MinTokens:   int(o.int("min_tokens", 0, math.MaxInt32, 0)),
		IncludeStop: o.bool("include_stop_str_in_output", false), IgnoreEOS: o.bool("ignore_eos", false),
		SkipSpecial:  o.bool("skip_special_tokens", true),
		StopTokenIDs: o.ids("stop_token_ids", s.Vocab), MaxTokens: -1, Logprobs: -1,
		PromptLogprobs: int(o.int("prompt_logprobs", 0, MaxLogprobs, -1)),
		Sampling:       o.sampling(s),
	}
	if o.has("seed") {
		n := o.int("seed", math.MinInt64, math.MaxInt64, 0)
		p.Seed = &n
	}
	p.Stop = o.stops()
	p.stream(o)
	if p.PromptLogprobs >= 0 && p.Stream {
		o.fail("prompt_logprobs", "it cannot be streamed")
	}
	o.ignore(ignored...)
	for _, key := range slices.Sorted(maps.Keys(unbuilt)) {
		what := unbuilt[key]
		if raw := o.get(key); raw != nil && !isOff(key, string(raw)) {
			o.failWith(diag.Unsupported, key, "this server does not have %s", what)
		}
	}
	return p
}

func (p *Params) stream(o *object) {
	so := o.object("stream_options")
	if so == nil {
		return
	}
	if !p.Stream {
		o.fail("stream_options", "it is only for stream: true")
		return
	}
	p.ContinuousUsage = so.bool("continuous_usage_stats", false)
	p.IncludeUsage = so.bool("include_usage", false) || p.ContinuousUsage
	so.ignore("include_obfuscation")
}

func (o *object) sampling(s Scope) seq.Sampling {
	pick := func(key string, lo, hi float64, model *float64, api float64) float32 {
		if f := o.float(key, lo, hi); f != nil {
			return float32(*f)
		}
		if model != nil {
			return float32(*model)
		}
		return float32(api)
	}
	d := s.Defaults
	topK := int64(0)
	if d.TopK != nil {
		topK = *d.TopK
	}
	p := seq.Sampling{
		Temperature:       pick("temperature", 0, 100, d.Temperature, 1),
		TopP:              pick("top_p", 0, 1, d.TopP, 1),
		MinP:              pick("min_p", 0, 1, d.MinP, 0),
		TopNSigma:         pick("top_n_sigma", 0, 100, nil, 0),
		RepetitionPenalty: pick("repetition_penalty", 0.01, 100, d.RepetitionPenalty, 1),
		PresencePenalty:   pick("presence_penalty", -2, 2, d.PresencePenalty, 0),
		FrequencyPenalty:  pick("frequency_penalty", -2, 2, nil, 0),
		TopK:              int(max(o.int("top_k", -1, math.MaxInt32, topK), 0)),
		LogitBias:         o.logitBias(s.Vocab),
	}
	if p.TopP == 0 {
		p.TopP = math.SmallestNonzeroFloat32 // only the likeliest token
	}
	return p
}

// logitBias reads an object from token ids to values, ascending by id.
func (o *object) logitBias(vocab int) []seq.Bias {
	b := o.object("logit_bias")
	if b == nil {
		return nil
	}
	out := make([]seq.Bias, 0, len(b.fields))
	for _, f := range b.fields {
		id, err := strconv.ParseUint(f.key, 10, 31)
		if err != nil || id >= uint64(vocab) || f.key != strconv.FormatUint(id, 10) {
			o.fail("logit_bias", "key %q is no token id; they are integers from 0 to %d", shown([]byte(f.key)), vocab-1)
			return nil
		}
		v, ok := number(f.raw)
		if !ok || v < -100 || v > 100 {
			o.fail("logit_bias", "the value of %d is %s; it must be a number from -100 to 100", id, shown(f.raw))
			return nil
		}
		out = append(out, seq.Bias{Token: int32(id), Value: float32(v)})
	}
	slices.SortFunc(out, func(a, b seq.Bias) int { return cmp.Compare(a.Token, b.Token) })
	return out
}

// stops reads a string or a list of strings.
func (o *object) stops() []string {
	raw := o.get("stop")
	if raw == nil {
		return nil
	}
	items := [][]byte{raw}
	if raw[0] == '[' {
		items = o.list("stop")
	}
	if len(items) > MaxStops {
		o.fail("stop", "it has %d stop strings, at most %d are possible", len(items), MaxStops)
		return nil
	}
	var out []string
	for i, item := range items {
		if item[0] != '"' {
			o.fail("stop", "item %d is %s; it must be a string, or a list of strings", i, shown(item))
			return nil
		}
		s := unquote(item)
		if s == "" || len(s) > MaxStopLen {
			o.fail("stop", "a stop string has %d bytes; it must have 1 to %d", len(s), MaxStopLen)
			return nil
		}
		out = append(out, s)
	}
	return out
}

// StopIDs are the tokens that end a text: the model's, unless the request ignores them, and the request's own.
func (p *Params) StopIDs(eos []int32) []int32 {
	if p.IgnoreEOS {
		return p.StopTokenIDs
	}
	return slices.Concat(eos, p.StopTokenIDs)
}

// Request makes what the engine takes of one choice. seed is of the whole request: choices differ in it, prompts do not, so
// that a prompt says the same alone and beside others. stop are StopIDs, which all choices share.
func (p *Params) Request(prompt []int32, choice int, seed uint64, stop []int32, echo bool) seq.Request {
	r := seq.Request{
		Prompt:   prompt,
		Limits:   seq.Limits{MaxTokens: p.MaxTokens, MinTokens: p.MinTokens, Stop: stop},
		Sampling: p.Sampling, Logprobs: max(p.Logprobs, p.PromptLogprobs), Echo: echo || p.PromptLogprobs >= 0,
	}
	r.Sampling.Seed = seed + uint64(choice)
	return r
}
