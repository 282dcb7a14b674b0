// SPDX-License-Identifier: MIT OR Apache-2.0

package openai

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/metrale/metrale/internal/diag"
)

// ChatRequest is a body of /v1/chat/completions.
type ChatRequest struct {
	Params
	Conversation
}

// Conversation is what a chat template renders.
type Conversation struct {
	Messages      []Message
	Tools         [][]byte // each a JSON object; none when tool_choice forbids them
	Documents     [][]byte // the same
	Kwargs        []Kwarg  // further variables of the template
	AddGeneration bool     // end with the beginning of the assistant's turn
	ContinueFinal bool     // leave the last message open
	// AddSpecial puts the tokenizer's own special tokens around the prompt too; templates write them themselves.
	AddSpecial bool
}

// Kwarg is a variable for the template, in JSON.
type Kwarg struct {
	Name string
	JSON []byte
}

// Message is a turn of a conversation.
type Message struct {
	Role      string
	Text      string   // the content; text parts are joined by line feeds
	Parts     []string // the texts of a content that came in parts; nil when it was one string
	NoContent bool     // it was left out or null
	ToolCalls []ToolCall
	More      []Kwarg // the other fields, as they came
}

// ToolCall is a call that the assistant made in an earlier turn.
type ToolCall struct {
	ID, Name  string
	Arguments string // JSON, as the model wrote it
}

// roles are those of OpenAI's API.
var roles = []string{"system", "developer", "user", "assistant", "tool", "function"}

// DecodeChat reads a body of /v1/chat/completions.
func DecodeChat(body []byte, s Scope) (*ChatRequest, error) {
	o, err := parseBody(body)
	if err != nil {
		return nil, err
	}
	r := &ChatRequest{Params: o.params(s), Conversation: o.conversation()}
	r.chatLogprobs(o)
	limit := "max_tokens"
	if o.has("max_completion_tokens") {
		limit = "max_completion_tokens"
		o.ignore("max_tokens")
	}
	r.MaxTokens = int(o.int(limit, 1, math.MaxInt32, -1))
	if r.MaxTokens >= 0 && r.MinTokens > r.MaxTokens {
		o.fail("min_tokens", "it is %d, more than %s (%d)", r.MinTokens, limit, r.MaxTokens)
	}
	for _, m := range o.list("modalities") {
		if string(m) != `"text"` {
			o.failWith(diag.Unsupported, "modalities", "it names %s; only text is possible", shown(m))
		}
	}
	if n := o.int("best_of", 1, MaxN, int64(r.N)); n != int64(r.N) {
		o.failWith(diag.Unsupported, "best_of", "it is %d; only n (%d) is possible", n, r.N)
	}
	checkResponseFormat(o)
	r.Unknown = o.unknown()
	return r, o.err()
}

// chatLogprobs reads logprobs and top_logprobs.
func (r *ChatRequest) chatLogprobs(o *object) {
	top := o.int("top_logprobs", 0, MaxLogprobs, -1)
	switch wanted := o.bool("logprobs", false); {
	case wanted:
		r.Logprobs = int(max(top, 0))
	case top > 0:
		o.fail("top_logprobs", "it needs logprobs: true")
	}
}

// conversation reads what the template renders.
func (o *object) conversation() Conversation {
	c := Conversation{
		AddGeneration: o.bool("add_generation_prompt", true), ContinueFinal: o.bool("continue_final_message", false),
		AddSpecial: o.bool("add_special_tokens", false),
	}
	if c.ContinueFinal {
		if o.has("add_generation_prompt") && c.AddGeneration {
			o.fail("continue_final_message", "it cannot go with add_generation_prompt: true")
		}
		c.AddGeneration = false
	}
	c.Messages = o.messages()
	if n := len(c.Messages); c.ContinueFinal && n > 0 && c.Messages[n-1].Role != "assistant" {
		o.fail("continue_final_message", "the last message is not the assistant's")
	}
	c.Tools = o.tools()
	for _, d := range o.objects("documents") {
		c.Documents = append(c.Documents, d.text)
	}
	if kw := o.object("chat_template_kwargs"); kw != nil {
		for _, f := range kw.fields {
			c.Kwargs = append(c.Kwargs, Kwarg{f.key, f.raw})
		}
	}
	if e := o.oneOf("reasoning_effort", "none", "minimal", "low", "medium", "high", "xhigh", "max"); e != "" {
		c.Kwargs = append(c.Kwargs, Kwarg{"reasoning_effort", []byte(strconv.Quote(e))})
	}
	return c
}

func (o *object) messages() []Message {
	items := o.objects("messages")
	if len(items) == 0 {
		if o.err() == nil {
			o.fail("messages", "it must be a list of at least one message")
		}
		return nil
	}
	out := make([]Message, len(items))
	for i, m := range items {
		out[i] = m.message()
	}
	return out
}

func (m *object) message() Message {
	out := Message{Role: m.string("role")}
	switch {
	case out.Role == "":
		m.fail("role", "it is missing; it must be one of %v", roles)
	case !slices.Contains(roles, out.Role):
		m.fail("role", "it is %q; it must be one of %v", out.Role, roles)
	}
	m.content(&out)
	for _, c := range m.objects("tool_calls") {
		out.ToolCalls = append(out.ToolCalls, c.toolCall())
	}
	if len(out.ToolCalls) > 0 && out.Role != "assistant" {
		m.fail("tool_calls", "only the assistant's messages have it")
	}
	if out.NoContent && out.Role != "assistant" {
		m.fail("content", "it is missing")
	}
	for _, key := range []string{"name", "tool_call_id", "reasoning", "reasoning_content", "refusal"} {
		m.string(key)
	}
	m.ignore("audio", "annotations", "function_call")
	for _, f := range m.fields {
		switch f.key {
		case "role", "content", "tool_calls", "audio", "annotations", "function_call":
		default:
			if string(f.raw) != "null" {
				out.More = append(out.More, Kwarg{f.key, f.raw})
			}
		}
	}
	return out
}

// content reads a string or a list of text parts.
func (m *object) content(out *Message) {
	raw := m.get("content")
	switch {
	case raw == nil:
		out.NoContent = true
	case raw[0] == '"':
		out.Text = unquote(raw)
	case raw[0] != '[':
		m.fail("content", "it is %s; it must be a string or a list of parts", shown(raw))
	default:
		out.Parts = []string{}
		for _, p := range m.objects("content") {
			out.Parts = append(out.Parts, p.part())
		}
		out.Text = strings.Join(out.Parts, "\n")
	}
}

// part reads a part of a content.
func (p *object) part() string {
	switch kind := p.string("type"); kind {
	case "text", "input_text", "output_text", "refusal":
		key := "text"
		if kind == "refusal" {
			key = kind
		}
		if !p.has(key) {
			p.fail(key, "it is missing")
		}
		return p.string(key)
	case "image_url", "input_audio", "file", "video_url", "audio_url", "input_image", "input_file":
		p.failWith(diag.Unsupported, "type", "it is %q; this model takes text only", kind)
	case "":
		p.fail("type", "it is missing")
	default:
		p.fail("type", "it is %q; it must be text", kind)
	}
	return ""
}

func (c *object) toolCall() ToolCall {
	out := ToolCall{ID: c.string("id")}
	c.oneOf("type", "function")
	f := c.object("function")
	if f == nil {
		c.fail("function", "it is missing")
		return out
	}
	if out.Name = f.string("name"); out.Name == "" {
		f.fail("name", "it is missing")
	}
	if raw := f.get("arguments"); raw != nil && raw[0] == '{' {
		out.Arguments = string(raw) // some clients send the object itself
	} else {
		out.Arguments = f.string("arguments")
	}
	return out
}

// tools reads tools and what tool_choice makes of them.
func (o *object) tools() [][]byte {
	var names []string
	var out [][]byte
	for _, t := range o.objects("tools") {
		if kind := t.string("type"); kind != "function" {
			t.fail("type", "it is %q; only function is possible", kind)
		}
		f := t.object("function")
		if f == nil {
			t.fail("function", "it is missing")
			return nil
		}
		name := f.string("name")
		if name == "" {
			f.fail("name", "it is missing")
		}
		f.string("description")
		f.object("parameters")
		f.bool("strict", false)
		names = append(names, name)
		out = append(out, t.text)
	}
	o.bool("parallel_tool_calls", true)
	if o.toolChoice(names) == "none" {
		return nil
	}
	return out
}

// toolChoice checks tool_choice: what would force a call needs grammar-constrained decoding.
func (o *object) toolChoice(names []string) string {
	raw := o.get("tool_choice")
	if raw == nil {
		return "auto"
	}
	const forced = "the answer cannot be forced to be a call; this server has only auto and none"
	if raw[0] == '"' {
		choice := o.oneOf("tool_choice", "none", "auto", "required")
		if choice == "required" {
			if len(names) == 0 {
				o.fail("tool_choice", "it is required, but there are no tools")
			}
			o.failWith(diag.Unsupported, "tool_choice", forced)
		}
		return choice
	}
	c := o.object("tool_choice")
	if c == nil {
		return ""
	}
	c.oneOf("type", "function")
	f := c.object("function")
	if f == nil {
		c.fail("function", "it is missing")
		return ""
	}
	if name := f.string("name"); !slices.Contains(names, name) {
		f.fail("name", "it is %q, which tools does not have", name)
	}
	o.failWith(diag.Unsupported, "tool_choice", forced)
	return ""
}
