// SPDX-License-Identifier: MIT OR Apache-2.0

package chat

import (
	"strings"
	"unicode"

	"github.com/metrale/metrale/internal/chat/jinja"
)

// finalTag marks the end of the last message while it is rendered, so that the prompt can be cut there. The blank at its
// end shows whether the template trims. This is the way of transformers.
type finalTag struct{ content string }

const tagText = "CONTINUE_FINAL_MESSAGE_TAG "

// tagFinal appends the tag to the last message, which is replaced in messages.
func tagFinal(messages []Value) (*finalTag, error) {
	i := len(messages) - 1
	name := at("messages", i) + ".content"
	content := messages[i].Get("content")
	e := &editor{from: messages[i]}
	text, ok := content.Text()
	if ok {
		e.set("content", jinja.String(text+tagText))
	} else {
		parts, _ := content.Items()
		parts = append([]Value(nil), parts...)
		last := len(parts) - 1
		for last >= 0 && parts[last].Get("text").IsAbsent() {
			last--
		}
		if last < 0 {
			return nil, invalid(name, "continue_final_message: %s has no text to continue", name)
		}
		if text, ok = parts[last].Get("text").Text(); !ok {
			return nil, invalid(name, "%s.text must be a string", at(name, last))
		}
		pe := &editor{from: parts[last]}
		pe.set("text", jinja.String(text+tagText))
		parts[last] = pe.value()
		e.set("content", jinja.List(parts...))
	}
	messages[i] = e.value()
	return &finalTag{text}, nil
}

// cut ends the prompt where the last message ends.
func (t *finalTag) cut(prompt string) (string, error) {
	i := strings.LastIndex(prompt, strings.TrimSpace(tagText))
	if i < 0 || !strings.Contains(prompt, strings.TrimSpace(t.content)) {
		return "", invalid("continue_final_message", "continue_final_message: the chat template leaves out the end of the last message")
	}
	if strings.HasPrefix(prompt[i:], tagText) {
		return prompt[:i], nil
	}
	return strings.TrimRightFunc(prompt[:i], unicode.IsSpace), nil
}
