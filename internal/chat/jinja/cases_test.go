// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"testing"
	"time"

	"github.com/metrale/metrale/internal/diag"
)

// fixtureCase is a template, its variables and what Python's jinja2 made of it.
type fixtureCase struct {
	Name     string          `json:"name"`
	Template string          `json:"t"`
	Context  json.RawMessage `json:"ctx"`
	Want     *string         `json:"want"`
	Err      *string         `json:"err"` // "Class: message"
}

// fixtureNow is when the cases were made.
var fixtureNow = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func readGzip(t testing.TB, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func readCases(t testing.TB, path string) (cases []fixtureCase) {
	t.Helper()
	if err := json.Unmarshal(readGzip(t, path), &cases); err != nil {
		t.Fatal(err)
	}
	return cases
}

// run renders a case and gives the text, or what went wrong.
func (c fixtureCase) run(t testing.TB) (text string, failure *Error) {
	t.Helper()
	ctx, err := ParseJSON(c.Context)
	if err != nil {
		t.Fatal(err)
	}
	var vars []Field
	for i, k := range ctx.dict().keys {
		vars = append(vars, Field{k.str, ctx.dict().vals[i]})
	}
	tpl, err := Compile("case", c.Template)
	if err == nil {
		text, err = tpl.Render(vars, fixtureNow)
	}
	if err == nil {
		return text, nil
	}
	e, ok := diag.As(err)
	if !ok {
		t.Fatalf("%v is no diag.Error", err)
	}
	cause, ok := e.Cause.(*Error)
	if !ok {
		t.Fatalf("%v has no *Error as its cause", err)
	}
	return "", cause
}

// reworded are the cases that fail for the same reason in other words.
var reworded = map[string]bool{"[3,1]|groupby": true, "import jinja include": true, "infinite recursion": true}

func TestCasesOfPythonsJinja(t *testing.T) {
	for _, c := range readCases(t, "testdata/cases.json.gz") {
		t.Run(c.Name, func(t *testing.T) {
			text, failure := c.run(t)
			switch {
			case c.Err == nil && failure != nil:
				t.Fatalf("%s\nfails: %s\nwant %q", c.Template, failure, *c.Want)
			case c.Err == nil && text != *c.Want:
				t.Fatalf("%s\ngives %q\nwant  %q", c.Template, text, *c.Want)
			case c.Err != nil && failure == nil:
				t.Fatalf("%s\ngives %q\nwant error %s", c.Template, text, *c.Err)
			case c.Err != nil && failure.Error() != *c.Err && !reworded[c.Name]:
				t.Fatalf("%s\nfails %s\nwant  %s", c.Template, failure, *c.Err)
			}
		})
	}
}
