// SPDX-License-Identifier: MIT OR Apache-2.0

package chat

import (
	"strings"
	"sync"
	"testing"

	"github.com/metrale/metrale/internal/chat/jinja"
	"github.com/metrale/metrale/internal/diag"
)

func compile(t testing.TB, source string) *Template {
	t.Helper()
	tpl, err := Compile("test", source)
	if err != nil {
		t.Fatal(err)
	}
	return tpl
}

func parse(t testing.TB, text string) Value {
	t.Helper()
	v, err := ParseJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// showAll prints messages as the template sees them.
const showAll = `{{ messages | tojson }}`

func TestMessagesAreBroughtIntoForm(t *testing.T) {
	const anyTemplate = `{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}{% for c in m.tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}`
	const textTemplate = `{% for m in messages %}{{ m.role ~ ": " + m.content }}{% endfor %}`
	for _, c := range []struct{ name, template, in, want string }{
		{"unknown keys stay, in order", showAll,
			`[{"z": 1, "role": "user", "content": "a", "extra": {"b": 1.0}}]`,
			`[{"z": 1, "role": "user", "content": "a", "extra": {"b": 1.0}}]`},
		{"null is dropped", showAll,
			`[{"role": "assistant", "content": "x", "tool_calls": null, "name": null}]`,
			`[{"role": "assistant", "content": "x"}]`},
		{"reasoning goes in under every name", showAll,
			`[{"role": "assistant", "content": "x", "reasoning": "why"}]`,
			`[{"thinking": "why", "role": "assistant", "content": "x", "reasoning": "why", "reasoning_content": "why"}]`},
		{"the client's thinking stays", showAll,
			`[{"role": "assistant", "content": "x", "reasoning_content": "a", "thinking": "b"}]`,
			`[{"thinking": "b", "role": "assistant", "content": "x", "reasoning_content": "a"}]`},
		{"parts become text", textTemplate,
			`[{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]`,
			"user: a\nb"},
		{"a refusal is text", textTemplate,
			`[{"role": "user", "content": [{"type": "refusal", "refusal": "no"}]}]`,
			"user: no"},
		{"parts stay where the template knows them", anyTemplate,
			`[{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]`,
			"ab"},
		{"text becomes a part where the template knows nothing else", `{% for m in messages %}{% for p in m.content %}<{{ p['text'] + '' }}>{% endfor %}{% endfor %}`,
			`[{"role": "user", "content": "a"}]`,
			"<a>"},
		{"arguments become an object", anyTemplate,
			`[{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": "{\"b\": 1, \"a\": 1.0}"}}]}]`,
			`{"b": 1, "a": 1.0}`},
		{"missing arguments are an empty object", anyTemplate,
			`[{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f"}}, {"function": {"name": "f", "arguments": " "}}]}]`,
			`{}{}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := compile(t, c.template).Render(Input{Messages: parse(t, c.in)})
			if err != nil {
				t.Fatal(err)
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// conversation is what an OpenAI client sends in the middle of a chat with tools.
const conversation = `[
	{"role": "system", "content": [{"type": "text", "text": "SYS"}]},
	{"role": "user", "content": "w?"},
	{"role": "assistant", "content": null, "tool_calls": [
		{"id": "call_0123456789abcdef", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Bern\"}"}}]},
	{"role": "tool", "tool_call_id": "call_0123456789abcdef", "content": [{"type": "text", "text": "cold"}]},
	{"role": "assistant", "content": "It is cold."},
	{"role": "user", "content": [{"type": "text", "text": "thanks"}]}
]`

// TestClientsConversationWithRealTemplates: the same request works with every model, whatever its template insists on.
func TestClientsConversationWithRealTemplates(t *testing.T) {
	tools := readChats(t).Tools
	for _, c := range []struct {
		name string
		want []string
	}{
		{"qwen3", []string{"<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Bern\"}}\n</tool_call>", "\ncold\n"}},
		{"qwen3.5", []string{"<parameter=city>\nBern\n</parameter>", "cold"}},
		{"qwen3.8", []string{"<parameter=city>\nBern\n</parameter>", "cold"}},
		{"deepseek-v3", []string{"```json\n{\"city\": \"Bern\"}\n```", "cold"}},
		{"deepseek-v3.1", []string{"Bern", "cold"}},
		{"mistral-nemo", []string{`"arguments": {"city": "Bern"}, "id": "`, "cold"}},
		{"mistral-small-3.2", []string{"Bern", "cold"}},
		{"ministral-3", []string{"Bern", "cold"}},
		{"gpt-oss", []string{`{"city": "Bern"}`, "cold"}},
		{"glm-4.6", []string{"<arg_value>Bern</arg_value>", "cold"}},
		{"granite-4.0", []string{"Bern", "cold"}},
		{"minimax-m2", []string{"Bern", "cold"}},
		{"seed-oss", []string{"Bern", "cold"}},
		{"step-3.5-flash", []string{"Bern", "cold"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tpl := compile(t, source(t, c.name))
			got, err := tpl.Render(Input{Messages: parse(t, conversation), Tools: tools, AddGenerationPrompt: true, BOS: "<s>", EOS: "</s>", Now: now})
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range append(c.want, "SYS", "thanks", "It is cold.") {
				if !strings.Contains(got, w) {
					t.Errorf("no %q in\n%s", w, got)
				}
			}
		})
	}
}

func TestFeaturesOfRealTemplates(t *testing.T) {
	for _, c := range []struct {
		name string
		want string // letters: tools, enable_thinking (e), parts, system, calls, string arguments (a), short ids (i)
	}{
		{"smollm2", "s"}, {"qwen2.5", "tsc"}, {"qwen3", "tesc"}, {"qwen3.8", "tepsc"}, {"qwen3-coder", "tsc"},
		{"deepseek-v3", "sca"}, {"mistral-nemo", "tsci"}, {"gpt-oss", "tsc"}, {"glm-4.6", "tepsc"}, {"ministral-3", "tpsc"},
	} {
		f := compile(t, source(t, c.name)).Probe()
		got := ""
		for _, b := range []struct {
			letter string
			on     bool
		}{{"t", f.UsesTools}, {"e", f.UsesEnableThinking}, {"p", f.WantsContentParts}, {"s", f.SupportsSystem}, {"c", f.ToolCalls}, {"a", f.StringArguments}, {"i", f.ShortCallIDs}} {
			if b.on {
				got += b.letter
			}
		}
		if got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestShortCallIDsMatch(t *testing.T) {
	for _, id := range []string{"call_0123456789abcdef", "x", "", "abc-12345", "äöü"} {
		short := shortID(id)
		if len(short) != 9 || short != shortID(id) || shortID(short) != short {
			t.Errorf("%q gives %q", id, short)
		}
	}
	if shortID("a") == shortID("b") {
		t.Error("different ids give the same")
	}
}

func TestBadInputNamesTheField(t *testing.T) {
	text := compile(t, `{% for m in messages %}{{ m.content + "" }}{{ m.tool_calls[0].function.arguments | tojson if m.tool_calls }}{% endfor %}`)
	one := `[{"role": "user", "content": "x"}]`
	for _, c := range []struct {
		param string
		code  diag.Code
		in    Input
	}{
		{"messages", diag.Invalid, Input{}},
		{"messages", diag.Invalid, Input{Messages: parse(t, `{}`)}},
		{"messages", diag.Invalid, Input{Messages: parse(t, `[]`)}},
		{"messages.1", diag.Invalid, Input{Messages: parse(t, `[{"role": "user", "content": "x"}, 5]`)}},
		{"messages.0.role", diag.Invalid, Input{Messages: parse(t, `[{"content": "x"}]`)}},
		{"messages.0.content.1", diag.Unsupported, Input{Messages: parse(t, `[{"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url"}]}]`)}},
		{"messages.0.tool_calls", diag.Invalid, Input{Messages: parse(t, `[{"role": "assistant", "tool_calls": {"a": 1}}]`)}},
		{"messages.0.tool_calls.0", diag.Invalid, Input{Messages: parse(t, `[{"role": "assistant", "tool_calls": [1]}]`)}},
		{"messages.0.tool_calls.1.function.arguments", diag.Invalid, Input{Messages: parse(t,
			`[{"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}, {"function": {"arguments": "{\"a\": "}}]}]`)}},
		{"tools", diag.Invalid, Input{Messages: parse(t, one), Tools: parse(t, `{"a": 1}`)}},
		{"tools.0", diag.Invalid, Input{Messages: parse(t, one), Tools: parse(t, `["f"]`)}},
		{"documents.0", diag.Invalid, Input{Messages: parse(t, one), Documents: parse(t, `["f"]`)}},
		{"chat_template_kwargs", diag.Invalid, Input{Messages: parse(t, one), Kwargs: parse(t, `[]`)}},
		{"chat_template_kwargs.messages", diag.Invalid, Input{Messages: parse(t, one), Kwargs: parse(t, `{"messages": []}`)}},
		{"continue_final_message", diag.Invalid, Input{Messages: parse(t, one), ContinueFinalMessage: true, AddGenerationPrompt: true}},
		{"messages.0.content", diag.Invalid, Input{Messages: parse(t, `[{"role": "assistant"}]`), ContinueFinalMessage: true}},
	} {
		_, err := text.Render(c.in)
		e, ok := diag.As(err)
		if !ok || e.Param != c.param || e.Code != c.code {
			t.Errorf("got %v (%+v), want %s at %s", err, e, c.code, c.param)
		}
	}
}

func TestErrorsOfTemplates(t *testing.T) {
	one := Input{Messages: parse(t, `[{"role": "user", "content": "x"}]`)}
	_, err := compile(t, "\n{{ raise_exception('roles must alternate') }}").Render(one)
	if err == nil || err.Error() != "roles must alternate" || diag.HTTPStatus(err) != 400 || !diag.Is(err, diag.Invalid) {
		t.Errorf("raise_exception gives %v", err)
	}
	_, err = compile(t, "a\n{{ messages[0].nope.more }}").Render(one)
	if err == nil || err.Error() != "test:2: chat template: UndefinedError: 'dict object' has no attribute 'nope'" || !diag.Is(err, diag.Invalid) {
		t.Errorf("a bad attribute gives %v", err)
	}
	_, err = Compile("file.jinja", "a\n{% if %}")
	if err == nil || err.Error() != "file.jinja:2: chat template: TemplateSyntaxError: Expected an expression, got 'end of statement block'" || !diag.Is(err, diag.Format) {
		t.Errorf("bad syntax gives %v", err)
	}
	_, err = Compile("f", "{% include 'x' %}")
	if !diag.Is(err, diag.Unsupported) {
		t.Errorf("include gives %v", err)
	}
}

func TestContinueFinalMessage(t *testing.T) {
	const trims = `{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</end>{% endfor %}`
	const keeps = `{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endif %}</end>{% endfor %}`
	text := parse(t, `[{"role": "user", "content": "x"}, {"role": "assistant", "content": "Sure, "}]`)
	parts := parse(t, `[{"role": "user", "content": "x"}, {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "Sure, "}]}]`)
	for _, c := range []struct {
		name, template string
		messages       Value
		want           string
	}{
		{"kept", keeps, text, "<user>x</end><assistant>Sure, "},
		{"trimmed", trims, text, "<user>x</end><assistant>Sure,"},
		{"parts", keeps, parts, "<user>x</end><assistant>aSure, "},
	} {
		got, err := compile(t, c.template).Render(Input{Messages: c.messages, ContinueFinalMessage: true})
		if err != nil || got != c.want {
			t.Errorf("%s: got %q, %v, want %q", c.name, got, err, c.want)
		}
	}
	_, err := compile(t, `{{ messages[0].content }}`).Render(Input{Messages: text, ContinueFinalMessage: true})
	if e, _ := diag.As(err); e == nil || e.Param != "continue_final_message" {
		t.Errorf("a template without the last message gives %v", err)
	}
}

func TestKwargsAndTokens(t *testing.T) {
	tpl := compile(t, `{{ bos_token }}|{{ eos_token }}|{{ unk_token is defined }}|{{ enable_thinking }}|{{ n }}|{{ tools is none }}|{{ add_generation_prompt }}|{{ strftime_now("%d %b %Y") }}`)
	got, err := tpl.Render(Input{
		Messages: parse(t, `[{"role": "user", "content": "x"}]`), Kwargs: parse(t, `{"enable_thinking": false, "n": 1.0}`),
		Tools: parse(t, `[]`), AddGenerationPrompt: true, BOS: "<s>", EOS: "</s>", Now: now,
	})
	if want := "<s>|</s>|False|False|1.0|True|True|30 Nov 2026"; err != nil || got != want {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestPick(t *testing.T) {
	both := map[string]string{"default": "d", "tool_use": "t", "rag": "r"}
	for _, c := range []struct {
		sources map[string]string
		tools   bool
		want    string
	}{
		{both, false, "default"}, {both, true, "tool_use"}, {map[string]string{"default": "d"}, true, "default"},
		{map[string]string{"only": "x"}, true, "only"}, {nil, false, ""}, {map[string]string{"a": "", "b": ""}, false, ""},
	} {
		got, err := Pick(c.sources, c.tools)
		if got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%v, tools %v: got %q, %v, want %q", c.sources, c.tools, got, err, c.want)
		}
	}
}

func TestRenderIsSafeForConcurrentUse(t *testing.T) {
	tpl := compile(t, source(t, "qwen3"))
	in := Input{Messages: parse(t, conversation), Tools: readChats(t).Tools, AddGenerationPrompt: true}
	want, err := tpl.Render(in)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				if got, err := tpl.Render(in); err != nil || got != want {
					t.Errorf("got %q, %v", got, err)
				}
			}
		})
	}
	wg.Wait()
}

// TestTexts: Text is applied to every text of the client's, as the template sees it, and to nothing else.
func TestTexts(t *testing.T) {
	tpl := compile(t, `{{ messages[0].content }}|{{ messages[1].tool_calls[0].function.arguments | tojson }}|{{ messages[2].content }}|{{ tools | tojson }}|{{ documents | tojson }}|{{ k | tojson }}|{{ bos_token }}`)
	in := Input{
		Messages: parse(t, `[{"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{\"a\": [1, \"\\u0078\"], \"x\": null}"}}]}, {"role": "assistant", "content": "ax"}]`),
		Tools:    parse(t, `[{"x": [true, "x", {"a": "x", "x": 1}]}]`), Documents: parse(t, `[{"a": "a"}]`), Kwargs: parse(t, `{"k": ["x", "a"]}`), BOS: "x",
		Text: func(s string) string { return strings.ReplaceAll(s, "x", "y") },
	}
	want := `y|{"a": [1, "y"], "y": null}|ay|[{"y": [true, "y", {"a": "y", "y": 1}]}]|[{"a": "a"}]|["y", "a"]|x`
	before, _ := in.Messages.MarshalJSON()
	if got, err := tpl.Render(in); err != nil || got != want {
		t.Errorf("%v, got\n%s\nwant\n%s", err, got, want)
	}
	if after, _ := in.Messages.MarshalJSON(); string(after) != string(before) {
		t.Errorf("the input was changed: %s", after)
	}
	in.ContinueFinalMessage = true
	tpl = compile(t, "{% for m in messages %}{{ m.content }}{% endfor %}")
	if got, err := tpl.Render(in); err != nil || got != "yay" {
		t.Errorf("continued: %q, %v", got, err)
	}
}

// TestRefusedMessagesAreNamed: when a template raises an exception over one message, the error names it; when nothing shows which
// it is, none.
func TestRefusedMessagesAreNamed(t *testing.T) {
	const alternate = "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}{{ m.content }}{% endfor %}"
	const late, query = "System message must be at the beginning.", "No user query found in messages."
	qwen := source(t, "qwen3.5")
	for _, c := range []struct{ template, roles, param, message string }{
		{qwen, "u a s u", "messages.2", late},
		{qwen, "s u s", "messages.2", late},
		{qwen, "u s", "messages.1", late},
		{qwen, "s u a s u a s u", "messages.3", late},
		{qwen, "s s u", "", late},
		{qwen, "s", "", query},
		{qwen, "s a", "", query},
		{qwen, "u a x u", "messages.2", "Unexpected message role."},
		{qwen, "s u a u a" + strings.Repeat(" u a", 300) + " s" + strings.Repeat(" u a", 300), "messages.605", late},
		{alternate, "u u", "messages.1", "roles must alternate"},
		{alternate, "u a u a a a u", "messages.4", "roles must alternate"},
		{alternate, "a u", "", "roles must alternate"},
		{"{{ raise_exception('no') }}", "u a u", "", "no"},
		{"{% if messages|length > 2 %}{{ nothing.more }}{% endif %}", "u a u", "", "chat template: UndefinedError: 'nothing' is undefined"},
	} {
		var messages []Value
		for _, r := range strings.Fields(c.roles) {
			role := map[string]string{"u": "user", "a": "assistant", "s": "system", "x": "narrator"}[r]
			messages = append(messages, dict("role", role, "content", "x"))
		}
		_, err := compile(t, c.template).Render(Input{Messages: jinja.List(messages...), AddGenerationPrompt: true})
		e, ok := diag.As(err)
		if !ok || e.Param != c.param || !strings.HasSuffix(err.Error(), c.message) || !diag.Is(err, diag.Invalid) {
			t.Errorf("%.30s: %v at %q, want %s at %q", c.roles, err, e.Param, c.message, c.param)
		}
	}
}
