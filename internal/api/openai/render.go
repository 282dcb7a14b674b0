// SPDX-License-Identifier: MIT OR Apache-2.0

package openai

import (
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/metrale/metrale/internal/api/text"
	"github.com/metrale/metrale/internal/seq"
)

// Vocabulary tells the bytes of tokens; tokenizer.Tokenizer is one.
type Vocabulary interface{ TokenBytes(id int32) []byte }

// Answer is what stays the same in all parts of an answer.
type Answer struct {
	ID          string
	Created     int64 // Unix seconds
	Model       string
	Fingerprint string
	Vocabulary  Vocabulary
	Params      *Params
}

// Usage counts tokens.
type Usage struct {
	Prompt, Completion int
}

// Finish says how a choice ended.
type Finish struct {
	Reason    seq.Finish
	Stop      string // the stop string that ended it; "" if none did
	StopToken int32  // the request's own stop token that ended it; -1 if none did
}

// Choice is a whole choice.
type Choice struct {
	Index  int
	Text   string
	Tokens []text.Token // with log-probabilities, when they were asked for
	Prompt []seq.Token  // with log-probabilities, when prompt_logprobs asked for them
	Finish Finish
}

const hex = "0123456789abcdef"

// AppendString writes s as a JSON string; broken UTF-8 becomes U+FFFD.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	return append(appendEscaped(dst, s), '"')
}

// appendEscaped writes what stands between the quotes. Besides what JSON demands, U+2028 and U+2029 are escaped, which end a line
// for some readers of event streams.
func appendEscaped(dst []byte, s string) []byte {
	begin := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c < utf8.RuneSelf {
			dst = append(dst, s[begin:i]...)
			switch c {
			case '"', '\\':
				dst = append(dst, '\\', c)
			case '\n':
				dst = append(dst, `\n`...)
			case '\r':
				dst = append(dst, `\r`...)
			case '\t':
				dst = append(dst, `\t`...)
			default:
				dst = append(dst, `\u00`...)
				dst = append(dst, hex[c>>4], hex[c&15])
			}
			i++
			begin = i
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			dst = append(append(dst, s[begin:i]...), "\uFFFD"...)
			begin = i + n
		case r == '\u2028' || r == '\u2029':
			dst = append(append(dst, s[begin:i]...), `\u202`...)
			dst = append(dst, hex[r&15])
			begin = i + n
		}
		i += n
	}
	return append(dst, s[begin:]...)
}

// appendLogprob writes a logarithm; what JSON cannot hold becomes the smallest that clients are used to.
func appendLogprob(dst []byte, v float32) []byte {
	f := float64(v)
	if math.IsNaN(f) || f < -9999 {
		f = -9999
	}
	return strconv.AppendFloat(dst, min(f, 0), 'g', -1, 32)
}

func (u *Usage) append(dst []byte) []byte {
	dst = strconv.AppendInt(append(dst, `{"prompt_tokens":`...), int64(u.Prompt), 10)
	dst = strconv.AppendInt(append(dst, `,"completion_tokens":`...), int64(u.Completion), 10)
	dst = strconv.AppendInt(append(dst, `,"total_tokens":`...), int64(u.Prompt+u.Completion), 10)
	return append(dst, '}')
}

// appendFinish writes finish_reason and, when something ended the text that the request named, stop_reason.
func (f *Finish) append(dst []byte) []byte {
	dst = append(append(dst, `,"finish_reason":"`...), f.Reason.String()...)
	dst = append(dst, '"')
	switch {
	case f.Stop != "":
		dst = AppendString(append(dst, `,"stop_reason":`...), f.Stop)
	case f.StopToken >= 0 && f.Reason == seq.Stopped:
		dst = strconv.AppendInt(append(dst, `,"stop_reason":`...), int64(f.StopToken), 10)
	}
	return dst
}

// head writes the fields that every object of the answer begins with, up to those of choices.
func (a *Answer) head(dst []byte, object string) []byte {
	dst = AppendString(append(dst, `{"id":`...), a.ID)
	dst = append(append(append(dst, `,"object":"`...), object...), `","created":`...)
	dst = strconv.AppendInt(dst, a.Created, 10)
	dst = AppendString(append(dst, `,"model":`...), a.Model)
	return AppendString(append(dst, `,"system_fingerprint":`...), a.Fingerprint)
}

// stream is what both formats share of streaming: each chunk is head, one choice, tail.
type stream struct {
	opening []byte // of a chunk, up to its list of choices
	answer  *Answer
}

func newStream(a *Answer, object string) stream {
	return stream{append(a.head([]byte("data: "), object), `,"choices":[`...), a}
}

// begin opens a chunk with one choice.
func (s *stream) begin(dst []byte, index int) []byte {
	dst = append(append(dst, s.opening...), `{"index":`...)
	return strconv.AppendInt(dst, int64(index), 10)
}

// end closes a chunk. usage is what was counted so far.
func (s *stream) end(dst []byte, usage *Usage) []byte {
	dst = append(dst, "}]"...)
	switch p := s.answer.Params; {
	case p.ContinuousUsage:
		dst = usage.append(append(dst, `,"usage":`...))
	case p.IncludeUsage:
		dst = append(dst, `,"usage":null`...)
	}
	return append(dst, "}\n\n"...)
}

// Close ends the stream: with the usage chunk if it was asked for.
func (s *stream) Close(dst []byte, usage *Usage) []byte {
	if s.answer.Params.IncludeUsage {
		dst = append(append(dst, s.opening...), `],"usage":`...)
		dst = append(usage.append(dst), "}\n\n"...)
	}
	return append(dst, "data: [DONE]\n\n"...)
}

// Fail ends a stream that had begun.
func (s *stream) Fail(dst []byte, err error) []byte {
	dst = AppendError(append(dst, "data: "...), err)
	return append(dst, "\n\ndata: [DONE]\n\n"...)
}

// appendPromptLogprobs writes vLLM's prompt_logprobs: for each token, null or an object from ids to entries.
func (a *Answer) appendPromptLogprobs(dst []byte, tokens []seq.Token) []byte {
	dst = append(dst, '[')
	for i := range tokens {
		if i > 0 {
			dst = append(dst, ',')
		}
		t := &tokens[i]
		if math.IsNaN(float64(t.Logprob)) {
			dst = append(dst, "null"...)
			continue
		}
		dst = append(dst, '{')
		own := false
		for k, e := range t.Top[:min(a.Params.PromptLogprobs, len(t.Top))] {
			if k > 0 {
				dst = append(dst, ',')
			}
			own = own || e.Token == t.ID
			dst = a.appendRanked(dst, e, k+1)
		}
		if !own {
			if len(t.Top) > 0 && a.Params.PromptLogprobs > 0 {
				dst = append(dst, ',')
			}
			dst = a.appendRanked(dst, seq.Logprob{Token: t.ID, Value: t.Logprob}, 0)
		}
		dst = append(dst, '}')
	}
	return append(dst, ']')
}

// appendRanked writes one entry; rank 0 is unknown.
func (a *Answer) appendRanked(dst []byte, e seq.Logprob, rank int) []byte {
	dst = strconv.AppendInt(append(dst, '"'), int64(e.Token), 10)
	dst = appendLogprob(append(dst, `":{"logprob":`...), e.Value)
	dst = append(dst, `,"rank":`...)
	if rank == 0 {
		dst = append(dst, "null"...)
	} else {
		dst = strconv.AppendInt(dst, int64(rank), 10)
	}
	dst = append(append(dst, `,"decoded_token":"`...), appendEscaped(nil, string(a.Vocabulary.TokenBytes(e.Token)))...)
	return append(dst, `"}`...)
}
