// SPDX-License-Identifier: MIT OR Apache-2.0

package modelconf

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/diag"
)

func TestTreeKeepsOrderAndPositions(t *testing.T) {
	n, err := ParseJSON("config.json", []byte("{\n  \"b\": 1,\n  \"a\": {\"x.y\": [true, \"é\\u00e9\\ud83d\\ude00\"]},\n  \"inf\": -Infinity\n}"))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(n.Keys(), " "); got != "b a inf" {
		t.Errorf("keys %q", got)
	}
	a, _ := n.Get("a")
	xy, ok := a.Child("x.y")
	if !ok || xy.Len() != 2 || xy.Path() != "a.x.y" {
		t.Fatalf("x.y: %v %q", ok, xy.Path())
	}
	s, ok := xy.Get("1")
	if v, _ := s.Str(); !ok || v != "éé😀" {
		t.Errorf("string %q", v)
	}
	if s.Pos() != (diag.Pos{File: "config.json", Line: 3, Col: 23}) {
		t.Errorf("position %v", s.Pos())
	}
	inf, _ := n.Get("inf")
	if v, ok := inf.Float(); !ok || !math.IsInf(v, -1) {
		t.Errorf("-Infinity: %v %v", v, ok)
	}
	if _, ok := n.Get("a.b.c.d"); ok {
		t.Error("a path that is not there was found")
	}
	var absent *Node
	if _, ok := absent.Int(); ok || !absent.IsNull() || absent.Keys() != nil {
		t.Error("a nil node answers as if it were there")
	}
}

func TestScalarsAreStrict(t *testing.T) {
	for text, want := range map[string]struct {
		kind  Kind
		isInt bool
		f     float64
	}{
		"0": {Int, true, 0}, "-7": {Int, true, -7}, "1.0": {Float, false, 1}, "1e3": {Float, false, 1000},
		"9223372036854775807": {Int, true, math.MaxInt64}, "9223372036854775808": {Int, false, math.MaxInt64},
		"Infinity": {Float, false, math.Inf(1)}, `{"__float__": "-Infinity"}`: {Object, false, math.Inf(-1)}, `{"__float__": "1"}`: {Object, false, 0},
	} {
		n, err := ParseJSON("x", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		_, isInt := n.Int()
		f, _ := n.Float()
		if n.Kind() != want.kind || isInt != want.isInt || f != want.f {
			t.Errorf("%s: %v %v %v", text, n.Kind(), isInt, f)
		}
	}
}

func TestBadJSONIsRefusedAtItsPlace(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "f:1:1: the document ends where a value is expected",
		"{\"a\":1,\n\"a\":2}":    "f:2:1: duplicate key \"a\"\n\tf:1:6: first given here",
		"{\"a\":1,}":             "f:1:8: expected a key in quotes",
		"[1,]":                   "f:1:4: unexpected character ']'",
		"[1 2]":                  "f:1:4: expected ',' or ']' in a list",
		"{\"a\" 1}":              "f:1:6: expected ':' after the key \"a\"",
		"01":                     "f:1:2: a number must not start with 0",
		"-":                      "f:1:2: expected a digit",
		"1.":                     "f:1:3: expected a digit after the decimal point",
		"1e":                     "f:1:3: expected a digit in the exponent",
		"\"a\nb\"":               "f:1:3: a raw control character (0x0a) in a string",
		"\"\xc0\x80\"":           "f:1:2: a string is no valid UTF-8",
		"\"\\ud800x\"":           "f:1:2: a lone surrogate in a string",
		"\"\\q\"":                "f:1:2: bad escape in a string",
		"\"abc":                  "f:1:1: a string has no closing quote",
		"\"abc\\":                "f:1:5: a string has no closing quote",
		"{} x":                   "f:1:4: text after the end of the document",
		"nul":                    "f:1:1: unexpected character 'n'",
		"'a'":                    "f:1:1: unexpected character '\\''",
		strings.Repeat("[", 200): "f:1:102: nested deeper than 100 levels",
	} {
		_, err := ParseJSON("f", []byte(text))
		if err == nil || err.Error() != want || !diag.Is(err, diag.Format) {
			t.Errorf("%q:\n got %v\nwant %s", text, err, want)
		}
	}
}

// FuzzParseJSON holds the parser against encoding/json: whatever we take, it takes too (but for NaN and Infinity), and
// what it takes we refuse only for the reasons that we are stricter about.
func FuzzParseJSON(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5e-3,null,true,"x\u00e9"]}`, `{"a":1,"a":2}`, `NaN`, `[-Infinity]`, `"\ud83d\ude00"`, "\"\xff\"", `[[[[]]]]`, `01`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := ParseJSON("f", data)
		valid := json.Valid(data)
		if err != nil {
			msg := err.Error()
			stricter := strings.Contains(msg, "duplicate key") || strings.Contains(msg, "UTF-8") || strings.Contains(msg, "surrogate") || strings.Contains(msg, "deeper")
			if valid && !stricter {
				t.Fatalf("refused valid JSON: %v", err)
			}
			if e, ok := diag.As(err); !ok || e.Pos.Line < 1 || e.Pos.Col < 1 {
				t.Fatalf("no position: %#v", err)
			}
			return
		}
		if n == nil {
			t.Fatal("neither tree nor error")
		}
		if !valid && !strings.Contains(string(data), "NaN") && !strings.Contains(string(data), "Infinity") {
			t.Fatalf("accepted invalid JSON %q", data)
		}
	})
}
