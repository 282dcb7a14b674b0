// SPDX-License-Identifier: MIT OR Apache-2.0

package chat

import (
	"slices"
	"time"

	"github.com/metrale/metrale/internal/chat/jinja"
	"github.com/metrale/metrale/internal/diag"
)

// Value is a JSON value with the keys of objects in order. The zero Value is absent.
type Value = jinja.Value

// ParseJSON reads a value; see jinja.ParseJSON.
func ParseJSON(data []byte) (Value, error) { return jinja.ParseJSON(data) }

// Template is a compiled chat template. It is immutable and safe for concurrent use.
type Template struct {
	code *jinja.Template
	form form
	feat Features
}

// Compile compiles a template and finds out what it takes. name is for messages: a file or a model.
func Compile(name, source string) (*Template, error) {
	code, err := jinja.Compile(name, source)
	if err != nil {
		return nil, err
	}
	t := &Template{code: code}
	t.probe()
	return t, nil
}

// Input is what Render passes to a template.
type Input struct {
	Messages  Value // list of dicts, as the client sent them
	Tools     Value // list of dicts, or null
	Documents Value // list of dicts, or null

	AddGenerationPrompt  bool
	ContinueFinalMessage bool // the prompt ends within the last message, for the model to go on

	Kwargs Value // dict of further variables (enable_thinking, …), or null

	BOS, EOS, Unk, Pad string // special tokens; "" leaves the variable undefined, as in transformers

	Now time.Time // what strftime_now shows

	// Text, if there is one, is applied to every text of messages, tools, documents and kwargs, names of fields too, as the
	// template is going to see it.
	Text func(string) string
}

// protected are the names that Kwargs must not have: Render passes them, or apply_chat_template takes them.
var protected = []string{
	"messages", "tools", "documents", "add_generation_prompt", "continue_final_message", "conversation", "chat_template",
	"tokenize", "bos_token", "eos_token", "unk_token", "pad_token",
}

// Render gives the prompt.
func (t *Template) Render(in Input) (string, error) {
	messages, err := t.form.messages(in.Messages)
	if err != nil {
		return "", err
	}
	if in.Text != nil {
		for i, m := range messages {
			messages[i] = mapTexts(m, in.Text)
		}
		for _, v := range []*Value{&in.Tools, &in.Documents, &in.Kwargs} {
			*v = mapTexts(*v, in.Text)
		}
	}
	var tag *finalTag
	if in.ContinueFinalMessage {
		if in.AddGenerationPrompt {
			return "", invalid("continue_final_message", "continue_final_message and add_generation_prompt exclude each other")
		}
		if tag, err = tagFinal(messages); err != nil {
			return "", err
		}
	}
	vars := make([]jinja.Field, 0, 16)
	vars = append(vars, jinja.Field{Name: "messages", Value: jinja.List(messages...)})
	for _, list := range []jinja.Field{{Name: "tools", Value: in.Tools}, {Name: "documents", Value: in.Documents}} {
		if list.Value, err = listOfDicts(list.Name, list.Value); err != nil {
			return "", err
		}
		vars = append(vars, list)
	}
	vars = append(vars, jinja.Field{Name: "add_generation_prompt", Value: jinja.Bool(in.AddGenerationPrompt)})
	for _, token := range [...]struct{ name, text string }{
		{"bos_token", in.BOS}, {"eos_token", in.EOS}, {"unk_token", in.Unk}, {"pad_token", in.Pad},
	} {
		if token.text != "" {
			vars = append(vars, jinja.Field{Name: token.name, Value: jinja.String(token.text)})
		}
	}
	if !in.Kwargs.IsNull() {
		if !in.Kwargs.IsDict() {
			return "", invalid("chat_template_kwargs", "chat_template_kwargs must be an object")
		}
		for i := range in.Kwargs.Len() {
			f := in.Kwargs.Field(i)
			if slices.Contains(protected, f.Name) {
				return "", invalid("chat_template_kwargs."+f.Name, "chat_template_kwargs must not set %s", f.Name)
			}
			vars = append(vars, f)
		}
	}
	text, err := t.code.Render(vars, in.Now)
	if err != nil {
		return "", t.blame(err, messages, vars, in.Now)
	}
	if tag != nil {
		return tag.cut(text)
	}
	return text, nil
}

// blame names the message for which a template refuses a conversation: with it the template raises the same exception, and
// without it and those behind it it renders. That is found by halving; when there is no such message, none is named. vars
// begin with messages, and are changed.
func (t *Template) blame(err error, messages []Value, vars []jinja.Field, now time.Time) error {
	refused, ok := diag.As(err)
	if !ok {
		return err
	}
	if cause, ok := refused.Cause.(*jinja.Error); !ok || !cause.Raised() {
		return err
	}
	renders := false // the first so many messages; with more up to others it raises
	some, all := 0, len(messages)
	for all-some > 1 {
		n := (some + all) / 2
		vars[0].Value = jinja.List(messages[:n]...)
		_, fault := t.code.Render(vars, now)
		if fault != nil && fault.Error() == refused.Error() {
			all = n
		} else {
			some, renders = n, fault == nil
		}
	}
	if !renders {
		return err
	}
	return refused.For(at("messages", some))
}

// listOfDicts checks tools or documents; none and an empty list are null.
func listOfDicts(name string, v Value) (Value, error) {
	if v.IsNull() {
		return jinja.Null, nil
	}
	items, ok := v.Items()
	if !ok {
		return v, invalid(name, "%s must be a list", name)
	}
	for i, item := range items {
		if !item.IsDict() {
			return v, invalid(at(name, i), "%s must be an object", at(name, i))
		}
	}
	if len(items) == 0 {
		return jinja.Null, nil
	}
	return v, nil
}

func invalid(param, format string, args ...any) error {
	return diag.Errorf(diag.Invalid, format, args...).For(param)
}

// Pick gives the name of the template to use when a checkpoint has several: tool_use for a request with tools, if there
// is one, else default, else the only one.
func Pick(sources map[string]string, wantTools bool) (string, error) {
	if _, ok := sources["tool_use"]; ok && wantTools {
		return "tool_use", nil
	}
	if _, ok := sources["default"]; ok {
		return "default", nil
	}
	names := make([]string, 0, len(sources))
	for name := range sources {
		names = append(names, name)
	}
	slices.Sort(names)
	switch len(names) {
	case 0:
		return "", diag.Errorf(diag.NotFound, "the model has no chat template")
	case 1:
		return names[0], nil
	}
	return "", diag.Errorf(diag.NotFound, "the model has chat templates %q, but none of them is the default", names)
}
