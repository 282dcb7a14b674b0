// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import (
	"compress/gzip"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/metrale/metrale/internal/diag"
)

// fixtureCase is a template, its variables and what Python's jinja2 made of it; tools/chat/make_goldens.py makes them.
type fixtureCase struct {
	Name     string          `json:"name"`
	Template string          `json:"t"`
	Context  json.RawMessage `json:"ctx"`
	Want     *string         `json:"want"`
	Err      *string         `json:"err"` // "Class: message", or the class alone
}

const data = "../../../testdata/chat/"

// fixtureNow is what strftime_now shows in the cases.
var fixtureNow = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func readGzip(t testing.TB, path string, v any) {
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
	raw, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatal(err)
	}
}

// variables gives the fields of an object in JSON.
func variables(t testing.TB, object []byte) []Field {
	t.Helper()
	v, err := ParseJSON(object)
	if err != nil {
		t.Fatal(err)
	}
	vars := make([]Field, v.Len())
	for i := range vars {
		vars[i] = v.Field(i)
	}
	return vars
}

// run renders a case and gives the text, or what went wrong.
func (c fixtureCase) run(t testing.TB) (text string, failure *Error) {
	t.Helper()
	tpl, err := Compile("case", c.Template)
	if err == nil {
		text, err = tpl.Render(variables(t, c.Context), fixtureNow)
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

// check compares a case with Python.
func (c fixtureCase) check(t *testing.T) {
	text, failure := c.run(t)
	switch {
	case c.Err == nil && failure != nil:
		t.Errorf("%s\nfails: %s\nwant %q", c.Template, failure, *c.Want)
	case c.Err == nil && text != *c.Want:
		t.Errorf("%s\ngives %q\nwant  %q", c.Template, text, *c.Want)
	case c.Err != nil && failure == nil:
		t.Errorf("%s\ngives %q\nwant error %s", c.Template, text, *c.Err)
	case c.Err != nil && !sameError(failure, *c.Err):
		t.Errorf("%s\nfails %s\nwant  %s", c.Template, failure, *c.Err)
	}
}

// reclassed are errors that have another class here, as Python's and as ours.
var reclassed = map[string]string{
	"SyntaxError": syntaxError,      // Python refuses the code that jinja2 makes: break outside of a loop
	"TypeError":   unsupportedError, // include without a loader
}

func sameError(got *Error, want string) bool {
	class, _, whole := strings.Cut(want, ": ")
	if whole && got.Class != "RecursionError" {
		return got.Error() == want
	}
	return got.Class == class || reclassed[class] == got.Class
}

func TestCasesOfPythonsJinja(t *testing.T) {
	var cases []fixtureCase
	readGzip(t, data+"cases.json.gz", &cases)
	if len(cases) < 334 {
		t.Fatalf("only %d cases", len(cases))
	}
	for _, c := range cases {
		t.Run(c.Name, c.check)
	}
}

func TestRandomTemplatesAsPython(t *testing.T) {
	var cases []fixtureCase
	readGzip(t, data+"random.json.gz", &cases)
	if len(cases) < 4000 {
		t.Fatalf("only %d cases", len(cases))
	}
	for _, c := range cases {
		t.Run(c.Name, c.check)
	}
}
