// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import (
	"encoding/json"
	"strings"
	"testing"
)

// pythonText is what a template prints of a value.
func pythonText(t testing.TB, v Value) string {
	t.Helper()
	tpl, err := Compile("t", "{{ v }}")
	if err != nil {
		t.Fatal(err)
	}
	text, err := tpl.Render([]Field{{"v", v}}, fixtureNow)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestParseJSONAsPython(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{"b": 1, "a": [true, false, null], "b": 2}`, `{'b': 2, 'a': [True, False, None]}`},
		{` [1.0, 1, -0, -0.0, 1e2, 1E400, 0.1, 1e16, 123456789.125] `, `[1.0, 1, 0, -0.0, 100.0, inf, 0.1, 1e+16, 123456789.125]`},
		{`9223372036854775807`, `9223372036854775807`},
		{`-9223372036854775809`, `-9223372036854775809`},
		{`123456789012345678901234567890`, `123456789012345678901234567890`},
		{`"a\"\\\/\b\f\n\r\té\u00e9\ud83d\ude00"`, "a\"\\/\b\f\n\r\téé😀"},
		{`["\ud800", "\ud800\u0041"]`, "['\ufffd', '\ufffdA']"},
		{`{}`, `{}`}, {`[]`, `[]`}, {`""`, ``},
		{`{"k": {"1": {"2": [[[]]]}}}`, `{'k': {'1': {'2': [[[]]]}}}`},
		{`{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"j":10,"a":11}`,
			`{'a': 11, 'b': 2, 'c': 3, 'd': 4, 'e': 5, 'f': 6, 'g': 7, 'h': 8, 'i': 9, 'j': 10}`},
	} {
		v, err := ParseJSON([]byte(c.in))
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		if got := pythonText(t, v); got != c.want {
			t.Errorf("%s gives %s, want %s", c.in, got, c.want)
		}
	}
}

func TestParseJSONRefuses(t *testing.T) {
	for _, in := range []string{
		``, ` `, `{`, `[`, `[1,]`, `{"a":1,}`, `{"a"}`, `{a:1}`, `'a'`, `"a`, `"\x"`, `"\u12"`, `"\u12g4"`, "\"\n\"", `01`, `1.`, `.5`, `+1`, `-`, `1e`,
		`NaN`, `Infinity`, `tru`, `nul`, `1 2`, `[1 2]`, "\"\xff\"", `{"a":1 "b":2}`, `]`,
		strings.Repeat("[", MaxDepth+2), strings.Repeat("[", 1_000_000), strings.Repeat(`{"a":`, 1_000_000), strings.Repeat("9", MaxIntWidth+1),
	} {
		if v, err := ParseJSON([]byte(in)); err == nil {
			t.Errorf("%.40q gives %v", in, v)
		} else if !strings.HasPrefix(err.Error(), "JSON: ") || len(err.Error()) > 200 {
			t.Errorf("%.40q: %v", in, err)
		}
	}
}

func TestMarshalJSONKeepsOrder(t *testing.T) {
	const in = `{"z": [1.0, 1, null, true], "a": {"é": "\n\u0001"}}`
	v, err := ParseJSON([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	out, err := v.MarshalJSON()
	if err != nil || string(out) != in {
		t.Errorf("got %s, %v", out, err)
	}
	var back struct{ V Value }
	if err := json.Unmarshal([]byte(`{"V": `+in+`}`), &back); err != nil {
		t.Fatal(err)
	}
	if out, _ = back.V.MarshalJSON(); string(out) != in {
		t.Errorf("through encoding/json: got %s", out)
	}
}

func TestValuesCanBeLookedInto(t *testing.T) {
	v, _ := ParseJSON([]byte(`{"a": [1, "x"], "n": null}`))
	if items, ok := v.Get("a").Items(); !ok || len(items) != 2 || v.Get("a").Len() != 2 {
		t.Error("a is not a list of two")
	}
	if s, ok := v.Get("a").seq().items[1].Text(); !ok || s != "x" {
		t.Error("x is not text")
	}
	if !v.Get("zz").IsAbsent() || !v.Get("n").IsNull() || v.Get("n").IsAbsent() || !v.IsDict() || v.Len() != 2 || v.Field(1).Name != "n" {
		t.Error("keys are wrong")
	}
	if !(Value{}).IsNull() || !(Value{}).IsAbsent() || !Null.Get("x").IsAbsent() {
		t.Error("the zero Value is not absent")
	}
}
