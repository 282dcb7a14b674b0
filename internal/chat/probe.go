// SPDX-License-Identifier: MIT OR Apache-2.0

package chat

import (
	"slices"
	"strings"
	"time"

	"github.com/metrale/metrale/internal/chat/jinja"
)

// Features are what a template was found to do.
type Features struct {
	UsesTools          bool // it reads tools
	UsesEnableThinking bool // it reads enable_thinking
	WantsContentParts  bool // it renders the parts of a user message one by one
	SupportsSystem     bool // it renders a system message

	ToolCalls       bool     // it renders the tool calls of assistant messages
	StringArguments bool     // it wants the arguments of a tool call as JSON in a str
	ShortCallIDs    bool     // it wants tool call ids of nine letters and digits
	Variables       []string // all names that it takes, in order of appearance
}

// Probe tells what the template does. It was found in Compile.
func (t *Template) Probe() Features { return t.feat }

// probeSteps bounds one trial; real templates take a few hundred steps.
const probeSteps = 200_000

// What trials look for in the prompt.
const (
	probeText   = "probe-text-1"
	probeMore   = "probe-text-2"
	probeName   = "probe_name"
	probeValue  = "probe-value"
	probeLongID = "call_0123456789abcdef01234567"
)

// probe renders small conversations to find the form in which the template takes messages.
func (t *Template) probe() {
	t.feat.Variables = t.code.Variables()
	t.feat.UsesTools = slices.Contains(t.feat.Variables, "tools")
	t.feat.UsesEnableThinking = slices.Contains(t.feat.Variables, "enable_thinking")
	t.form.content = map[string]contentForm{}
	t.probeContent()
	t.probeToolCalls()
}

// trial renders messages; ok is false when that fails, or when the prompt lacks one of want.
func (t *Template) trial(messages []Value, tools Value, want ...string) (prompt string, ok bool) {
	prompt, err := t.code.RenderWithin(probeSteps, []jinja.Field{
		{Name: "messages", Value: jinja.List(messages...)},
		{Name: "tools", Value: tools},
		{Name: "documents", Value: jinja.Null},
		{Name: "add_generation_prompt", Value: jinja.False},
		{Name: "bos_token", Value: jinja.String("<s>")},
		{Name: "eos_token", Value: jinja.String("</s>")},
	}, time.Unix(0, 0).UTC())
	for _, w := range want {
		ok = strings.Contains(prompt, w)
		if !ok {
			return prompt, false
		}
	}
	return prompt, err == nil
}

func dict(pairs ...any) Value {
	fields := make([]jinja.Field, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		v, ok := pairs[i+1].(Value)
		if s, isText := pairs[i+1].(string); !ok && isText {
			v = jinja.String(s)
		}
		fields = append(fields, jinja.Field{Name: pairs[i].(string), Value: v})
	}
	return jinja.Dict(fields...)
}

var probeTool = dict("type", "function", "function", dict("name", probeName, "description", "d",
	"parameters", dict("type", "object", "properties", dict("probe_key", dict("type", "string", "description", "d")),
		"required", jinja.List(jinja.String("probe_key")))))

// probeContent finds for each role whether its content may be a str, parts, or both.
func (t *Template) probeContent() {
	text := jinja.String(probeText + "\n" + probeMore)
	parts := jinja.List(textPart(jinja.String(probeText)), textPart(jinja.String(probeMore)))
	user := dict("role", "user", "content", "hi")
	around := map[string][2][]Value{ // what comes before and after the message
		"system":    {nil, {user}},
		"user":      {nil, nil},
		"assistant": {{user}, {user}},
		"tool":      {{user, probeCall(jinja.String(""), true, false, "abcdefgh1"), dict("role", "tool", "content", "x", "tool_call_id", "abcdefgh1")}, nil},
	}
	takes := func(role string, content Value) bool {
		message := dict("role", role, "content", content)
		if role == "tool" {
			message = dict("role", role, "content", content, "tool_call_id", "abcdefgh1", "name", probeName)
		}
		conversation := append(append(slices.Clone(around[role][0]), message), around[role][1]...)
		prompt, ok := t.trial(conversation, jinja.Null, probeText, probeMore)
		return ok && !strings.Contains(prompt, "{'type': 'text'") && !strings.Contains(prompt, `{"type": "text"`) &&
			!strings.Contains(prompt, `{"type":"text"`)
	}
	for role := range around {
		asText, asParts := takes(role, text), takes(role, parts)
		switch {
		case asText && !asParts, !asText && !asParts:
			t.form.content[role] = onlyText
		case asParts && !asText:
			t.form.content[role] = onlyParts
		}
		switch role {
		case "user":
			t.feat.WantsContentParts = asParts
		case "system":
			t.feat.SupportsSystem = asText || asParts
		}
	}
	t.form.content["developer"] = t.form.content["system"]
}

// probeCall is an assistant message with a tool call.
func probeCall(content Value, hasContent, argumentText bool, id string) Value {
	args := dict("probe_key", probeValue)
	if argumentText {
		args = jinja.String(`{"probe_key": "` + probeValue + `"}`)
	}
	calls := jinja.List(dict("id", id, "type", "function", "function", dict("name", probeName, "arguments", args)))
	if hasContent {
		return dict("role", "assistant", "content", content, "tool_calls", calls)
	}
	return dict("role", "assistant", "tool_calls", calls)
}

// probeToolCalls finds the form of tool calls: the first one that renders without a Python dict in the prompt.
func (t *Template) probeToolCalls() {
	contents := []struct {
		form  callContent
		value Value
	}{{noContent, Value{}}, {nullContent, jinja.Null}, {emptyContent, jinja.String("")}}
	content := func(text string) Value {
		if t.form.content["tool"] == onlyParts {
			return jinja.List(textPart(jinja.String(text)))
		}
		return jinja.String(text)
	}
	var fallback *form
	for _, whole := range []bool{true, false} { // with a result and an answer, or the call alone
		for _, id := range []string{probeLongID, "abcdefgh1"} {
			for _, argumentText := range []bool{false, true} {
				for _, c := range contents {
					messages := []Value{
						dict("role", "user", "content", content("hi")),
						probeCall(c.value, c.form != noContent, argumentText, id),
						dict("role", "tool", "content", content("x"), "tool_call_id", id, "name", probeName),
						dict("role", "assistant", "content", content("x")),
						dict("role", "user", "content", content("hi")),
					}
					if !whole {
						messages = messages[:2]
					}
					prompt, ok := t.trial(messages, jinja.List(probeTool), probeValue)
					if !ok {
						continue
					}
					f := t.form
					f.callContent, f.argumentText, f.shortIDs = c.form, argumentText, id != probeLongID
					if strings.Contains(prompt, "{'probe_key'") {
						if fallback == nil {
							fallback = &f
						}
						continue
					}
					t.useCalls(f)
					return
				}
			}
		}
	}
	if fallback != nil {
		t.useCalls(*fallback)
	}
}

func (t *Template) useCalls(f form) {
	t.form = f
	t.feat.ToolCalls, t.feat.StringArguments, t.feat.ShortCallIDs = true, f.argumentText, f.shortIDs
}
