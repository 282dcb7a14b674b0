// SPDX-License-Identifier: MIT OR Apache-2.0

package openai

import (
	"testing"
	"time"

	"github.com/metrale/metrale/internal/diag"
)

const chatml = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"

func TestTemplates(t *testing.T) {
	for _, c := range []struct{ name, source, body, want string }{
		{"plain", chatml, `{` + hello + `}`, "<|user|>Hello<|assistant|>"},
		{"parts", chatml, `{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}`, "<|user|>a\nb<|assistant|>"},
		{"developer becomes system", chatml, `{"messages":[{"content":"developer","role":"developer","name":"x"},{"role":"user","content":"y"}]}`, "<|system|>developer<|user|>y<|assistant|>"},
		{"developer is known", chatml + "{# developer #}", `{"messages":[{"role":"developer","content":"x"}]}`, "<|developer|>x<|assistant|>"},
		{"continued", chatml, `{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":"The "}],"continue_final_message":true}`, "<|user|>x<|assistant|>The "},
		{"tokens", "{{ bos_token }}{{ eos_token }}{{ pad_token is defined }}{% if messages[0].content == 'a' %}a{% endif %}", `{` + hello + `}`, "<s></s>False"},
		{"tools", "{{ tools | tojson }}{{ messages[0].content }}", `{` + hello + `,"tools":[{"type":"function","function":{"name":"f","parameters":{"b":1,"a":1.0}}}]}`,
			`[{"type": "function", "function": {"name": "f", "parameters": {"b": 1, "a": 1.0}}}]Hello`},
		{"no tools", "{{ tools is none }}{{ messages[0].content }}", `{` + hello + `,"tools":[]}`, `TrueHello`},
		{"kwargs", "{{ enable_thinking }} {{ reasoning_effort }} {{ messages[0].content }}", `{` + hello + `,"chat_template_kwargs":{"enable_thinking":false},"reasoning_effort":"low"}`, "False low Hello"},
		{"kwargs win", "{{ reasoning_effort }} {{ messages[0].content }}", `{` + hello + `,"chat_template_kwargs":{"reasoning_effort":"mine"},"reasoning_effort":"low"}`, "mine Hello"},
		{"documents", "{{ documents[0].t }}{{ messages[0].content }}", `{` + hello + `,"documents":[{"t":"D"}]}`, "DHello"},
		{"clock", "{{ strftime_now('%Y') }}{{ messages[0].content }}", `{` + hello + `}`, "2026Hello"},
	} {
		t.Run(c.name, func(t *testing.T) {
			templates, err := NewTemplates(map[string]string{"default": c.source}, SpecialTokens{BOS: "<s>", EOS: "</s>"}, func() time.Time { return time.Unix(1_790_000_000, 0) })
			if err != nil {
				t.Fatal(err)
			}
			r, err := DecodeChat([]byte(c.body), scope)
			if err != nil {
				t.Fatal(err)
			}
			got, err := templates.Render(&r.Conversation, nil)
			if err != nil || got != c.want {
				t.Errorf("%q, %v, want %q", got, err, c.want)
			}
		})
	}
}

func TestTemplateErrorsNameTheField(t *testing.T) {
	templates, err := NewTemplates(map[string]string{"default": chatml + "{% if messages|length == 2 %}{{ raise_exception('two') }}{% endif %}"}, SpecialTokens{}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for body, param := range map[string]string{
		`{` + hello + `,"chat_template_kwargs":{"messages":1}}`: "chat_template_kwargs.messages",
		`{"messages":[{"role":"user","content":"x"},{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":"{"}}]}]}`: "messages.1.tool_calls.0.function.arguments",
	} {
		r, err := DecodeChat([]byte(body), scope)
		if err != nil {
			t.Fatal(err)
		}
		_, err = templates.Render(&r.Conversation, nil)
		checkFault(t, err, "", param)
	}
	r, _ := DecodeChat([]byte(`{"messages":[{"role":"user","content":"x"},{"role":"user","content":"x"}]}`), scope)
	_, err = templates.Render(&r.Conversation, nil)
	if e, ok := diag.As(err); !ok || err.Error() != "two" || e.Param != "messages.1" {
		t.Errorf("raise_exception: %v at %+v", err, e)
	}
}

func TestTemplateForTools(t *testing.T) {
	templates, err := NewTemplates(map[string]string{"default": "plain {{ messages[0].content }}", "tool_use": "tools {{ messages[0].content }}"}, SpecialTokens{}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]string{
		`{` + hello + `}`: "plain Hello",
		`{` + hello + `,"tools":[{"type":"function","function":{"name":"f"}}]}`: "tools Hello",
	} {
		r, err := DecodeChat([]byte(body), scope)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := templates.Render(&r.Conversation, nil); got != want || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	if _, err := NewTemplates(map[string]string{"a": "x", "b": "y"}, SpecialTokens{}, time.Now); err == nil {
		t.Error("two templates and no default are accepted")
	}
	if _, err := NewTemplates(map[string]string{"default": "{% if %}"}, SpecialTokens{}, time.Now); err == nil {
		t.Error("a broken template is accepted")
	}
}
