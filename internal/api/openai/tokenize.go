// SPDX-License-Identifier: MIT OR Apache-2.0

package openai

import (
	"strconv"

	"github.com/metrale/metrale/internal/diag"
)

// TokenizeRequest is a body of vLLM's /tokenize: a text or a conversation.
type TokenizeRequest struct {
	Model        string
	Prompt       string
	Conversation *Conversation // nil: Prompt
	AddSpecial   bool
	Strings      bool // the tokens' texts too
}

// DecodeTokenize reads a body of /tokenize.
func DecodeTokenize(body []byte, s Scope) (*TokenizeRequest, error) {
	o, err := parseBody(body)
	if err != nil {
		return nil, err
	}
	r := &TokenizeRequest{Model: o.string("model"), Strings: o.bool("return_token_strs", false)}
	switch {
	case o.has("messages"):
		c := o.conversation(s)
		r.Conversation, r.AddSpecial = &c, c.AddSpecial
	case !o.has("prompt"):
		o.fail("prompt", "it is missing; a text, or messages, is needed")
	default:
		r.Prompt, r.AddSpecial = o.string("prompt"), o.bool("add_special_tokens", true)
	}
	return r, o.err()
}

// DetokenizeRequest is a body of vLLM's /detokenize.
type DetokenizeRequest struct {
	Model  string
	Tokens []int32
}

// DecodeDetokenize reads a body of /detokenize.
func DecodeDetokenize(body []byte, vocab int) (*DetokenizeRequest, error) {
	o, err := parseBody(body)
	if err != nil {
		return nil, err
	}
	r := &DetokenizeRequest{Model: o.string("model"), Tokens: o.ids("tokens", vocab)}
	if r.Tokens == nil {
		o.fail("tokens", "it is missing; it must be a list of token ids")
	}
	return r, o.err()
}

// AppendTokens writes the answer of /tokenize. strs may be nil.
func AppendTokens(dst []byte, ids []int32, maxLen int, strs []string) []byte {
	dst = strconv.AppendInt(append(dst, `{"count":`...), int64(len(ids)), 10)
	dst = strconv.AppendInt(append(dst, `,"max_model_len":`...), int64(maxLen), 10)
	dst = append(dst, `,"tokens":[`...)
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(dst, int64(id), 10)
	}
	dst = append(dst, ']')
	if strs == nil {
		return append(dst, `,"token_strs":null}`...)
	}
	dst = append(dst, `,"token_strs":[`...)
	for i, s := range strs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendString(dst, s)
	}
	return append(dst, "]}"...)
}

// AppendText writes the answer of /detokenize.
func AppendText(dst []byte, text string) []byte {
	return append(AppendString(append(dst, `{"prompt":`...), text), '}')
}

// ModelInfo is an entry of /v1/models.
type ModelInfo struct {
	ID      string
	Created int64 // Unix seconds
	MaxLen  int   // tokens of a sequence
}

// AppendModel writes one model.
func AppendModel(dst []byte, m ModelInfo) []byte {
	dst = AppendString(append(dst, `{"id":`...), m.ID)
	dst = strconv.AppendInt(append(dst, `,"object":"model","created":`...), m.Created, 10)
	dst = AppendString(append(dst, `,"owned_by":"metrale","root":`...), m.ID)
	dst = strconv.AppendInt(append(dst, `,"parent":null,"max_model_len":`...), int64(m.MaxLen), 10)
	return append(dst, '}')
}

// AppendModels writes the list of models.
func AppendModels(dst []byte, models []ModelInfo) []byte {
	dst = append(dst, `{"object":"list","data":[`...)
	for i, m := range models {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendModel(dst, m)
	}
	return append(dst, "]}"...)
}

// errorTypes are OpenAI's words for what the codes mean to a client.
var errorTypes = map[diag.Code]string{
	diag.Invalid: "invalid_request_error", diag.TooLong: "invalid_request_error", diag.NotFound: "invalid_request_error",
	diag.Unsupported: "invalid_request_error", diag.Format: "invalid_request_error", diag.Denied: "authentication_error",
	diag.Overloaded: "overloaded_error", diag.Canceled: "invalid_request_error",
}

// errorCodes are OpenAI's words where they differ from diag's.
var errorCodes = map[diag.Code]string{diag.Denied: "invalid_api_key", diag.Invalid: "invalid_value"}

// AppendError writes an error's body. Of errors that are not diag's, and of internal ones, only that they happened is told.
func AppendError(dst []byte, err error) []byte {
	e, ok := diag.As(err)
	kind := errorTypes[diag.CodeOf(err)]
	message, param, code := "the server has failed; its log says more", "", string(diag.CodeOf(err))
	if kind == "" {
		kind = "server_error"
	} else if ok {
		message, param = e.Error(), e.Param
	}
	dst = AppendString(append(dst, `{"error":{"message":`...), message)
	dst = AppendString(append(dst, `,"type":`...), kind)
	dst = append(dst, `,"param":`...)
	if param == "" {
		dst = append(dst, "null"...)
	} else {
		dst = AppendString(dst, param)
	}
	if c := errorCodes[diag.Code(code)]; c != "" {
		code = c
	}
	if param == "model" && code == string(diag.NotFound) {
		code = "model_not_found"
	}
	dst = AppendString(append(dst, `,"code":`...), code)
	return append(dst, "}}"...)
}
