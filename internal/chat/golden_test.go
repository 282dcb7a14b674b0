// SPDX-License-Identifier: MIT OR Apache-2.0

package chat

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/metrale/metrale/internal/chat/jinja"
	"github.com/metrale/metrale/internal/diag"
)

const data = "../../testdata/chat/"

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func source(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile(data + "templates/" + name + ".jinja")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// chats is testdata/chat/chats.json.
type chats struct {
	Tools    Value            `json:"tools"`
	Variants map[string]Value `json:"variants"`
	Chats    map[string]Value `json:"chats"`
}

func readChats(t testing.TB) (c chats) {
	t.Helper()
	b, err := os.ReadFile(data + "chats.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// golden is what Python rendered of a template with a chat in a variant.
type golden struct {
	Template string  `json:"template"`
	Chat     string  `json:"chat"`
	Variant  string  `json:"variant"`
	Want     *string `json:"want"`
	Err      *string `json:"err"` // "Class: message", or the class alone
}

func readGoldens(t testing.TB) (g []golden) {
	t.Helper()
	f, err := os.Open(data + "goldens.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(z).Decode(&g); err != nil {
		t.Fatal(err)
	}
	return g
}

// variables are those that tools/chat/make_goldens.py passes.
func (g golden) variables(c chats) []jinja.Field {
	vars := []jinja.Field{
		{Name: "documents", Value: jinja.Null}, {Name: "add_generation_prompt", Value: jinja.False},
		{Name: "bos_token", Value: jinja.String("<s>")}, {Name: "eos_token", Value: jinja.String("</s>")},
	}
	variant := c.Variants[g.Variant]
	for i := range variant.Len() {
		vars = append(vars, variant.Field(i))
	}
	tools := jinja.Null
	if !variant.Get("tools").IsAbsent() {
		tools = c.Tools
	}
	return append(vars, jinja.Field{Name: "messages", Value: c.Chats[g.Chat]}, jinja.Field{Name: "tools", Value: tools})
}

// TestRealTemplates renders the templates of real checkpoints byte for byte as jinja2 does, errors included.
func TestRealTemplates(t *testing.T) {
	c := readChats(t)
	goldens := readGoldens(t)
	files, _ := filepath.Glob(data + "templates/*.jinja")
	if want := len(files) * len(c.Variants) * len(c.Chats); len(goldens) != want || want < 1200 {
		t.Fatalf("%d goldens, want %d: run tools/chat/make_goldens.py", len(goldens), want)
	}
	compiled := map[string]*jinja.Template{}
	for _, g := range goldens {
		tpl := compiled[g.Template]
		if tpl == nil {
			var err error
			if tpl, err = jinja.Compile(g.Template, source(t, g.Template)); err != nil {
				t.Fatal(err)
			}
			compiled[g.Template] = tpl
		}
		text, err := tpl.Render(g.variables(c), now)
		where := g.Template + "/" + g.Chat + "/" + g.Variant
		switch {
		case g.Err == nil && err != nil:
			t.Errorf("%s fails: %v", where, err)
		case g.Err == nil && text != *g.Want:
			t.Errorf("%s gives\n%s\nwant\n%s", where, text, *g.Want)
		case g.Err != nil && err == nil:
			t.Errorf("%s gives\n%s\nwant error %s", where, text, *g.Err)
		case g.Err != nil:
			e, _ := diag.As(err)
			cause := e.Cause.(*jinja.Error)
			if got := cause.Error(); got != *g.Err && (strings.Contains(*g.Err, ": ") || cause.Class != *g.Err) {
				t.Errorf("%s fails: %s, want %s", where, got, *g.Err)
			}
		}
	}
}
