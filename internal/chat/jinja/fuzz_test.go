// SPDX-License-Identifier: MIT OR Apache-2.0

package jinja

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

// seeds gives every n-th case of both files to a fuzz target.
func seeds(f *testing.F, n int, add func(c fixtureCase)) {
	for _, file := range []string{"cases.json.gz", "random.json.gz"} {
		var cases []fixtureCase
		readGzip(f, data+file, &cases)
		for i := 0; i < len(cases); i += n {
			add(cases[i])
		}
	}
}

// FuzzCompile: no source makes the lexer, the parser or the compiler panic, and what compiles has lines within the source.
func FuzzCompile(f *testing.F) {
	seeds(f, 7, func(c fixtureCase) { f.Add(c.Template) })
	f.Fuzz(func(t *testing.T, source string) {
		if tpl, err := Compile("fuzz", source); err == nil && tpl == nil {
			t.Fatal("neither a template nor an error")
		}
	})
}

// FuzzRender: no template with any variables panics; what it gives is UTF-8, and the same every time.
func FuzzRender(f *testing.F) {
	seeds(f, 7, func(c fixtureCase) { f.Add(c.Template, []byte(c.Context)) })
	f.Fuzz(func(t *testing.T, source string, vars []byte) {
		v, err := ParseJSON(vars)
		if err != nil || !v.IsDict() {
			return
		}
		tpl, err := Compile("fuzz", source)
		if err != nil {
			return
		}
		fields := variables(t, vars)
		text, err := tpl.RenderWithin(200_000, fields, fixtureNow)
		if err != nil {
			return
		}
		if !utf8.ValidString(text) {
			t.Fatalf("%q gives %q", source, text)
		}
		if again, err := tpl.RenderWithin(200_000, fields, fixtureNow); (err != nil || again != text) && !strings.Contains(source, "random") {
			t.Fatalf("%q gives %q, then %q, %v", source, text, again, err)
		}
	})
}

// FuzzParseJSON: what is read writes itself so that it reads back the same, and encoding/json agrees on what is valid.
func FuzzParseJSON(f *testing.F) {
	for _, s := range []string{`{"a": [1, 1.0, null, "\ud83d\ude00"]}`, `[[], {}, -0, 1e400]`, `"\u0000"`, `{"a":1,"a":2}`, `1 `, `[1,]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := ParseJSON(data)
		if err != nil {
			return
		}
		if !json.Valid(data) {
			t.Fatalf("%q is taken", data)
		}
		first, err := v.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		again, err := ParseJSON(first)
		if err != nil {
			return // 1e400 is written as Infinity, as Python does
		}
		if second, _ := again.MarshalJSON(); string(first) != string(second) {
			t.Fatalf("%q becomes %q, then %q", data, first, second)
		}
	})
}
