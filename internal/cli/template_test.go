// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"maps"
	"testing"

	"github.com/metrale/metrale/internal/tokenizer"
)

func TestTemplateSources(t *testing.T) {
	config := tokenizer.Config{ChatTemplates: []tokenizer.ChatTemplate{{Name: "default", Text: "config"}, {Name: "rag", Text: "rag"}}}
	for _, c := range []struct {
		side map[string][]byte
		want map[string]string // nil: an error
	}{
		{nil, map[string]string{"default": "config", "rag": "rag"}},
		{map[string][]byte{"chat_template.json": []byte(`{"chat_template":"json"}`)}, map[string]string{"default": "json", "rag": "rag"}},
		{map[string][]byte{"chat_template.json": []byte(`{"chat_template":"json"}`), "chat_template.jinja": []byte("file"), "additional_chat_templates/tool_use.jinja": []byte("tools")},
			map[string]string{"default": "file", "rag": "rag", "tool_use": "tools"}},
		{map[string][]byte{"chat_template.json": []byte(`{}`)}, nil},
		{map[string][]byte{"chat_template.json": []byte(`{`)}, nil},
	} {
		got, err := templateSources(config, c.side)
		if (err != nil) != (c.want == nil) || !maps.Equal(got, c.want) {
			t.Errorf("%v: %v, %v, want %v", c.side, got, err, c.want)
		}
	}
}
