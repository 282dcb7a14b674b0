// SPDX-License-Identifier: MIT OR Apache-2.0

package sched

import (
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/seq"
)

// Config are the sizes within which a scheduler decides.
type Config struct {
	PageSize int // tokens in a KV page
	Pages    int // KV pages in all
	Slots    int // recurrent-state slots in all; 0 when the model has no such state
	Rows     int // most rows of a step
	Outs     int // most rows of a step whose logits are wanted
	Prefill  int // most rows of a step that are prefill chunks
	Batch    int // most sequences that run
	Queue    int // most sequences that wait while Batch run: Batch+Queue are taken in all
	Context  int // most tokens of a sequence, prompt and text
	Vocab    int // token ids are below it

	// Ahead: the next step is decided while the last one runs, before its tokens are known.
	Ahead bool
}

// Fit gives the configuration with every size inside what the others allow, or an error when nothing could run.
func (c Config) Fit() (Config, error) {
	c.Batch = min(c.Batch, c.Rows, c.Outs)
	if c.Slots > 0 {
		c.Batch = min(c.Batch, c.Slots)
	}
	c.Prefill = min(c.Prefill, c.Rows)
	c.Context = min(c.Context, c.Pages*c.PageSize)
	if c.Batch < 1 || c.Prefill < 1 || c.Context < 1 || c.Vocab < 1 || c.Queue < 0 || c.PageSize < 1 {
		return c, diag.Errorf(diag.Internal, "nothing can run with pages of %d tokens, %d pages, %d rows, %d outputs, prefill %d, batch %d, queue %d, context %d, vocabulary %d",
			c.PageSize, c.Pages, c.Rows, c.Outs, c.Prefill, c.Batch, c.Queue, c.Context, c.Vocab)
	}
	return c, nil
}

// Check refuses a request that could never run: with diag.TooLong when it does not fit the context, with diag.Invalid
// when it is malformed. Param is the field in the API's spelling.
func (c Config) Check(r *seq.Request) error {
	if len(r.Prompt) == 0 {
		return diag.Errorf(diag.Invalid, "the prompt has no tokens").For("prompt")
	}
	for i, t := range r.Prompt {
		if t < 0 || int(t) >= c.Vocab {
			return diag.Errorf(diag.Invalid, "token %d of the prompt is %d; this model's ids are 0 to %d", i, t, c.Vocab-1).For("prompt")
		}
	}
	switch {
	case r.MaxTokens < 0 || r.MaxTokens == 0 && !r.Echo:
		return diag.Errorf(diag.Invalid, "max_tokens is %d, at least 1 is needed", r.MaxTokens).For("max_tokens")
	case r.MinTokens < 0 || r.MinTokens > r.MaxTokens:
		return diag.Errorf(diag.Invalid, "min_tokens is %d, it must be from 0 to max_tokens (%d)", r.MinTokens, r.MaxTokens).For("min_tokens")
	case r.Logprobs < -1 || r.Logprobs > c.Vocab:
		return diag.Errorf(diag.Invalid, "logprobs is %d, it must be from 0 to %d", r.Logprobs, c.Vocab).For("logprobs")
	case len(r.Prompt) >= c.Context && r.MaxTokens > 0, len(r.Prompt) > c.Context:
		return diag.Errorf(diag.TooLong, "the prompt has %d tokens; the context holds %d, with at least one to generate", len(r.Prompt), c.Context).For("prompt")
	case r.MaxTokens > c.Context-len(r.Prompt):
		return diag.Errorf(diag.TooLong, "the prompt has %d tokens and max_tokens is %d; together they exceed the context of %d tokens", len(r.Prompt), r.MaxTokens, c.Context).For("max_tokens")
	}
	return nil
}
