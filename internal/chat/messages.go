// SPDX-License-Identifier: MIT OR Apache-2.0

package chat

import (
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/metrale/metrale/internal/chat/jinja"
	"github.com/metrale/metrale/internal/diag"
)

// form is the form in which a template takes messages. The zero form is the usual one: a str or parts as they are,
// arguments as objects, no content beside tool calls, any ids.
type form struct {
	content      map[string]contentForm // by role; an unknown role takes what user takes
	callContent  callContent
	argumentText bool // tool calls: arguments as JSON in a str
	shortIDs     bool // tool calls: ids of nine letters and digits
}

// contentForm says what the content of a message may be.
type contentForm uint8

const (
	anyContent contentForm = iota
	onlyText
	onlyParts
)

// callContent is what stands for the missing content of a message with tool calls.
type callContent uint8

const (
	noContent callContent = iota
	nullContent
	emptyContent
)

// at names an item of a list as errors do: messages.2.
func at(list string, i int) string { return list + "." + strconv.Itoa(i) }

// messages brings the messages into form. The result is the caller's; messages that need no change are shared.
func (f *form) messages(v Value) ([]Value, error) {
	items, ok := v.Items()
	if !ok {
		return nil, invalid("messages", "messages must be a list")
	}
	if len(items) == 0 {
		return nil, invalid("messages", "messages is empty")
	}
	out := make([]Value, len(items))
	for i, m := range items {
		var err error
		if out[i], err = f.message(m, i); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// reasoningNames are the keys under which clients send reasoning, the one that templates read first.
var reasoningNames = [...]string{"reasoning_content", "thinking", "reasoning"}

func (f *form) message(m Value, index int) (Value, error) {
	if !m.IsDict() {
		name := at("messages", index)
		return m, invalid(name, "%s must be an object", name)
	}
	role, ok := m.Get("role").Text()
	if !ok {
		name := at("messages", index) + ".role"
		return m, invalid(name, "%s must be a string", name)
	}
	e := editor{from: m}
	for i := range m.Len() {
		e.dropNulls = e.dropNulls || m.Field(i).Value.IsNull()
	}
	for _, key := range reasoningNames {
		if v := m.Get(key); !v.IsNull() {
			e.front = jinja.Field{Name: "thinking", Value: v}
			e.set("reasoning_content", v)
			break
		}
	}
	content := m.Get("content")
	if !content.IsNull() {
		v, changed, err := f.contentOf(role, content, index)
		if err != nil {
			return m, err
		}
		if changed {
			e.set("content", v)
		}
	}
	if calls := m.Get("tool_calls"); !calls.IsNull() {
		list, changed, err := f.toolCalls(calls, index)
		if err != nil {
			return m, err
		}
		if changed {
			e.set("tool_calls", list)
		}
		if content.IsNull() && calls.Len() > 0 {
			switch f.callContent {
			case nullContent:
				e.set("content", jinja.Null)
			case emptyContent:
				e.set("content", jinja.String(""))
			}
		}
	}
	if id, ok := m.Get("tool_call_id").Text(); ok && f.shortIDs {
		e.set("tool_call_id", jinja.String(shortID(id)))
	}
	return e.value(), nil
}

// editor makes a changed copy of a dict; without a change, there is no copy.
type editor struct {
	from      Value
	dropNulls bool
	front     jinja.Field // before all others, unless the key is there
	edits     [4]jinja.Field
	n         int // edits
}

// set gives a key a value, in place when the key is there. A message has at most four edits.
func (e *editor) set(name string, v Value) {
	e.edits[e.n] = jinja.Field{Name: name, Value: v}
	e.n++
}

func (e *editor) value() Value {
	if e.front.Name == "" && e.n == 0 && !e.dropNulls {
		return e.from
	}
	var room [12]jinja.Field
	fields := room[:0]
	if e.front.Name != "" {
		fields = append(fields, e.front)
	}
	kept := len(fields)
	for i := range e.from.Len() {
		f := e.from.Field(i)
		keep := !e.dropNulls || !f.Value.IsNull()
		for j := range e.edits[:e.n] {
			if e.edits[j].Name == f.Name {
				f, keep = e.edits[j], true
			}
		}
		if keep {
			fields = append(fields, f)
		}
	}
	for _, f := range e.edits[:e.n] { // keys that were not there
		if !has(fields[kept:], f.Name) {
			fields = append(fields, f)
		}
	}
	return jinja.Dict(fields...)
}

func has(fields []jinja.Field, name string) bool {
	for _, f := range fields {
		if f.Name == name {
			return true
		}
	}
	return false
}

// contentOf brings the content of messages[index] into the form for its role.
func (f *form) contentOf(role string, v Value, index int) (Value, bool, error) {
	want, ok := f.content[role]
	if !ok {
		want = f.content["user"]
	}
	if _, ok := v.Text(); ok {
		if want == onlyParts {
			return jinja.List(textPart(v)), true, nil
		}
		return v, false, nil
	}
	parts, ok := v.Items()
	if !ok {
		return v, false, nil // an object or a number: the template may know what to do with it
	}
	if want == onlyText {
		return joinParts(parts, index)
	}
	return mediaParts(parts, index)
}

func textPart(text Value) Value {
	return jinja.Dict(jinja.Field{Name: "type", Value: jinja.String("text")}, jinja.Field{Name: "text", Value: text})
}

// partText gives the text of a part, if it is one of text.
func partText(p Value) (string, bool) {
	if s, ok := p.Text(); ok {
		return s, true
	}
	key := "text"
	if kind, _ := p.Get("type").Text(); kind == "refusal" {
		key = "refusal"
	}
	return p.Get(key).Text()
}

// joinParts gives the text of parts, which must all be text.
func joinParts(parts []Value, index int) (Value, bool, error) {
	texts := make([]string, len(parts))
	for i, p := range parts {
		text, ok := partText(p)
		if !ok {
			kind, _ := p.Get("type").Text()
			name := at(at("messages", index)+".content", i)
			return p, false, diag.Errorf(diag.Unsupported, "%s: the model's chat template takes text only, not %q", name, kind).For(name)
		}
		texts[i] = text
	}
	return jinja.String(strings.Join(texts, "\n")), true, nil
}

// media are the kinds of parts that hold a picture, sound or film; templates know them by the short name.
var media = map[string]string{
	"image": "image", "image_url": "image", "input_image": "image",
	"audio": "audio", "audio_url": "audio", "input_audio": "audio",
	"video": "video", "video_url": "video", "input_video": "video",
}

// mediaParts replaces parts of media by what templates look for; their data does not go in.
func mediaParts(parts []Value, index int) (Value, bool, error) {
	out := parts
	changed := false
	for i, p := range parts {
		kind, _ := p.Get("type").Text()
		_, isText := p.Text()
		if !p.IsDict() && !isText {
			name := at(at("messages", index)+".content", i)
			return p, false, invalid(name, "%s must be an object", name)
		}
		short, ok := media[kind]
		if !ok {
			continue
		}
		if !changed {
			out, changed = append([]Value(nil), parts...), true
		}
		out[i] = jinja.Dict(jinja.Field{Name: "type", Value: jinja.String(short)})
	}
	return jinja.List(out...), changed, nil
}

// toolCalls brings the tool calls of messages[index] into form.
func (f *form) toolCalls(v Value, index int) (Value, bool, error) {
	calls, ok := v.Items()
	if !ok {
		name := at("messages", index) + ".tool_calls"
		return v, false, invalid(name, "%s must be a list", name)
	}
	out := calls
	changed := false
	for i, call := range calls {
		if !call.IsDict() {
			name := at(at("messages", index)+".tool_calls", i)
			return v, false, invalid(name, "%s must be an object", name)
		}
		e := editor{from: call}
		if function := call.Get("function"); function.IsDict() {
			args, edited, err := f.arguments(function.Get("arguments"))
			if err != nil {
				name := at(at("messages", index)+".tool_calls", i) + ".function.arguments"
				return v, false, diag.Errorf(diag.Invalid, "%s is not valid %s", name, err).For(name)
			}
			if edited {
				fe := editor{from: function}
				fe.set("arguments", args)
				e.set("function", fe.value())
			}
		}
		if id, ok := call.Get("id").Text(); ok && f.shortIDs {
			e.set("id", jinja.String(shortID(id)))
		}
		if e.n == 0 {
			continue
		}
		if !changed {
			out, changed = append([]Value(nil), calls...), true
		}
		out[i] = e.value()
	}
	if !changed {
		return v, false, nil
	}
	return jinja.List(out...), true, nil
}

// arguments brings the arguments of a call into form: an object, or JSON in a str.
func (f *form) arguments(v Value) (Value, bool, error) {
	text, isText := v.Text()
	switch {
	case v.IsNull() || isText && strings.TrimSpace(text) == "":
		if f.argumentText {
			return jinja.String("{}"), true, nil
		}
		return jinja.Dict(), true, nil
	case isText == f.argumentText:
		return v, false, nil
	case isText:
		parsed, err := ParseJSON([]byte(text))
		return parsed, true, err
	}
	data, err := v.MarshalJSON()
	return jinja.String(string(data)), true, err
}

// shortID gives an id of nine letters and digits: id itself, if it is one, else always the same one for the same id.
func shortID(id string) string {
	const size = 9
	const alphabet = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	fits := len(id) == size
	for i := 0; i < len(id) && fits; i++ {
		fits = strings.IndexByte(alphabet, id[i]) >= 0
	}
	if fits {
		return id
	}
	h := fnv.New64a()
	h.Write([]byte(id))
	n := h.Sum64()
	out := make([]byte, size)
	for i := range out {
		out[i] = alphabet[n%uint64(len(alphabet))]
		n /= uint64(len(alphabet))
	}
	return string(out)
}
