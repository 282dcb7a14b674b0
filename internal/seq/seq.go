// SPDX-License-Identifier: MIT OR Apache-2.0

package seq

// ID names a sequence inside one engine; IDs are never reused.
type ID uint64

// Request asks for one continuation of a prompt. A client's n>1 is n requests.
type Request struct {
	Prompt []int32  // token ids, at least one
	Images []*Image // rising by First; all tokens of images are alike, so prompts are the same only if these are too
	Limits
	Sampling Sampling
	Logprobs int  // top-N log-probabilities wanted with each token; -1: none, 0: only the token's own
	Echo     bool // log-probabilities of the prompt's tokens too (they come as Prompt in the first event)
}

// Limits says when a sequence ends.
type Limits struct {
	MaxTokens int     // most tokens to generate; at least 1, or 0 with Echo
	MinTokens int     // ends by stop token only after so many
	Stop      []int32 // token ids that end the sequence; the end token is not part of the text
}

// Sampling is the policy by which the next token is drawn. The zero value is not valid: use Greedy or set each field.
type Sampling struct {
	Temperature       float32 // 0: the likeliest token
	TopK              int     // 0: all
	TopP              float32 // 1: all
	MinP              float32 // 0: all
	TopNSigma         float32 // 0: all; keeps logits within N standard deviations of the best
	RepetitionPenalty float32 // 1: none; divides positive and multiplies negative logits of tokens seen in prompt and text
	PresencePenalty   float32 // 0: none; of tokens seen in the text
	FrequencyPenalty  float32
	LogitBias         []Bias // ascending by token
	Seed              uint64 // each sequence has one; the server draws it when the client gives none
}

// Greedy is the policy that takes the likeliest token.
func Greedy() Sampling { return Sampling{TopP: 1, RepetitionPenalty: 1} }

// Bias is added to a token's logit before anything else.
type Bias struct {
	Token int32
	Value float32
}

// Count is how often a token, which was seen in prompt or text, came in the text.
type Count struct{ Token, Text int32 }

// Finish says why a sequence ended.
type Finish uint8

const (
	Running  Finish = iota
	Stopped         // a stop token (StopToken of the event names it), or the server's stop string
	Length          // MaxTokens, or the context is full
	Canceled        // the caller went away
	Failed          // Err of the event says why
)

// String is the finish_reason of OpenAI's API.
func (f Finish) String() string {
	return [...]string{"", "stop", "length", "abort", "error"}[f]
}

// Logprob is a token and the natural logarithm of its probability before any sampling policy.
type Logprob struct {
	Token int32
	Value float32
}

// Token is one generated (or, with Echo, one prompt) token.
type Token struct {
	ID      int32
	Logprob float32   // when asked for; the first prompt token has none (NaN)
	Top     []Logprob // falling, as many as asked for
}

// Event is what a sequence's stream delivers, in order. The last one has Finish set.
type Event struct {
	Prompt    []Token // once, first, with Echo
	Tokens    []Token // zero or more new tokens
	Finish    Finish
	StopToken int32 // with Stopped by a token; -1 otherwise
	Err       error // with Failed
}
