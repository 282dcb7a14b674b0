// SPDX-License-Identifier: MIT OR Apache-2.0

package openai

import (
	"math"
	"slices"

	"github.com/metrale/metrale/internal/diag"
)

// ChatRequest is a body of /v1/chat/completions.
type ChatRequest struct {
	Params
	Conversation
}

// Conversation is what a chat template renders: checked, and otherwise as the client wrote it.
type Conversation struct {
	Messages        []byte // a JSON list of objects, at least one
	Images          []Image
	Tools           []byte // the same, or nil: none, or tool_choice forbids them
	Documents       []byte // the same, or nil
	Kwargs          []byte // a JSON object of further variables, or nil
	ReasoningEffort string // "" when left out
	AddGeneration   bool   // end with the beginning of the assistant's turn
	ContinueFinal   bool   // leave the last message open
	AddSpecial      bool   // put the tokenizer's own special tokens around; templates write them themselves
}

// roles are those of OpenAI's API.
var roles = []string{"system", "developer", "user", "assistant", "tool", "function"}

// DecodeChat reads a body of /v1/chat/completions.
func DecodeChat(body []byte, s Scope) (*ChatRequest, error) {
	o, err := parseBody(body)
	if err != nil {
		return nil, err
	}
	r := &ChatRequest{Params: o.params(s), Conversation: o.conversation(s)}
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

// maxTemplateValues is how many values a template may be handed.
const maxTemplateValues = 1 << 20

// conversation reads what the template renders.
func (o *object) conversation(s Scope) Conversation {
	c := Conversation{
		AddGeneration: o.bool("add_generation_prompt", true), ContinueFinal: o.bool("continue_final_message", false),
		AddSpecial:      o.bool("add_special_tokens", false),
		ReasoningEffort: o.oneOf("reasoning_effort", "none", "minimal", "low", "medium", "high", "xhigh", "max"),
	}
	if c.ContinueFinal {
		if o.has("add_generation_prompt") && c.AddGeneration {
			o.fail("continue_final_message", "it cannot go with add_generation_prompt: true")
		}
		c.AddGeneration = false
	}
	images := imageScope{most: s.Images, hosts: s.Hosts}
	if last := o.messages(&images); c.ContinueFinal && last != "assistant" {
		o.fail("continue_final_message", "the last message is not the assistant's")
	}
	c.Messages, c.Images = images.take(o.get("messages")), images.found
	if o.tools() {
		c.Tools = o.get("tools")
	}
	if len(o.objects("documents")) > 0 {
		c.Documents = o.get("documents")
	}
	if o.object("chat_template_kwargs") != nil {
		c.Kwargs = o.get("chat_template_kwargs")
	}
	left := maxTemplateValues
	for _, key := range []string{"messages", "tools", "documents", "chat_template_kwargs"} {
		if left -= countValues(o.get(key)); left < 0 {
			o.fail(key, "the template can be handed at most %d values", maxTemplateValues)
		}
	}
	return c
}

// countValues is about how many values a JSON text holds.
func countValues(raw []byte) int {
	n := 0
	for s := (scanner{data: raw}); s.pos < len(raw); s.pos++ {
		switch raw[s.pos] {
		case '"':
			s.skipString()
			s.pos--
		case ',', '[', '{':
			n++
		}
	}
	return n
}

// messages checks the messages and gives the role of the last one.
func (o *object) messages(images *imageScope) string {
	items := o.objects("messages")
	if len(items) == 0 {
		if o.err() == nil {
			o.fail("messages", "it must be a list of at least one message")
		}
		return ""
	}
	role := ""
	for _, m := range items {
		role = m.message(images)
	}
	return role
}

// message checks a message and gives its role.
func (m *object) message(images *imageScope) string {
	role := m.string("role")
	switch {
	case role == "":
		m.fail("role", "it is missing; it must be one of %v", roles)
	case !slices.Contains(roles, role):
		m.fail("role", "it is %q; it must be one of %v", role, roles)
	}
	m.content(role, images)
	calls := m.objects("tool_calls")
	for _, c := range calls {
		c.toolCall()
	}
	if len(calls) > 0 && role != "assistant" {
		m.fail("tool_calls", "only the assistant's messages have it")
	}
	for _, key := range []string{"name", "tool_call_id", "reasoning", "reasoning_content"} {
		m.string(key)
	}
	return role
}

// content checks a string or a list of parts.
func (m *object) content(role string, images *imageScope) {
	raw := m.get("content")
	switch {
	case raw == nil:
		if role != "assistant" {
			m.fail("content", "it is missing")
		}
	case raw[0] == '[':
		for _, p := range m.objects("content") {
			p.part(images)
		}
	case raw[0] != '"':
		m.fail("content", "it is %s; it must be a string or a list of parts", shown(raw))
	}
}

// part checks a part of a content.
func (p *object) part(images *imageScope) {
	switch kind := p.string("type"); kind {
	case "text", "refusal":
		if !p.has(kind) {
			p.fail(kind, "it is missing")
		}
		p.string(kind)
	case "image_url":
		images.image(p)
	case "":
		p.fail("type", "it is missing")
	default:
		if slices.Contains(otherMedia, kind) {
			p.failWith(diag.Unsupported, "type", "it is %s; no model here takes that", kind)
		}
		p.fail("type", "it is %q; it must be text or image_url", kind)
	}
}

// toolCall checks a call of an earlier turn.
func (c *object) toolCall() {
	c.string("id")
	c.oneOf("type", "function")
	f := c.object("function")
	if f == nil {
		c.fail("function", "it is missing")
		return
	}
	if f.string("name") == "" {
		f.fail("name", "it is missing")
	}
	if raw := f.get("arguments"); raw != nil && raw[0] != '{' { // some clients send the object itself
		f.string("arguments")
	}
}

// tools checks tools and tool_choice, and says whether the template is to see tools.
func (o *object) tools() bool {
	var names []string
	for _, t := range o.objects("tools") {
		if kind := t.string("type"); kind != "function" {
			t.fail("type", "it is %q; only function is possible", kind)
		}
		f := t.object("function")
		if f == nil {
			t.fail("function", "it is missing")
			return false
		}
		name := f.string("name")
		if name == "" {
			f.fail("name", "it is missing")
		}
		f.string("description")
		f.object("parameters")
		f.bool("strict", false)
		names = append(names, name)
	}
	o.bool("parallel_tool_calls", true)
	return o.toolChoice(names) != "none" && len(names) > 0
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
