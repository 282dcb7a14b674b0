// SPDX-License-Identifier: MIT OR Apache-2.0

package tokenizer

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// testdata is what tools/tokenizer/make_golden.py writes with the reference, Hugging Face's tokenizers.
const testdata = "../../testdata/tokenizer"

func readGolden(t testing.TB, name string, into any) {
	t.Helper()
	f, err := os.Open(filepath.Join(testdata, name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(z).Decode(into); err != nil {
		t.Fatal(err)
	}
}

// golden is golden.json.gz.
type golden struct {
	Models map[string]json.RawMessage
	Cases  []goldenCase
}

type goldenCase struct {
	Name, Model string
	Tokenizer   map[string]json.RawMessage
	Texts       []string
	IDs         [][]int32 // of each text with special tokens, then others
	Plain       [][]int32 // without special tokens; nil: the same
	Literal     [][]int32 // without special tokens, those in the text as plain text; nil: as Plain
	Decoded     []*string // nil where the reference has no answer
	Skipped     []*string // without special tokens; nil: as Decoded
}

// file is the case's tokenizer.json.
func (c goldenCase) file(t testing.TB, g *golden) []byte {
	c.Tokenizer["model"] = g.Models[c.Model]
	data, err := json.Marshal(c.Tokenizer)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func goldenTokenizer(t testing.TB, name string) *Tokenizer {
	t.Helper()
	var g golden
	readGolden(t, "golden.json.gz", &g)
	for _, c := range g.Cases {
		if c.Name == name {
			tok, err := FromJSON(c.file(t, &g), nil)
			if err != nil {
				t.Fatal(err)
			}
			return tok
		}
	}
	t.Fatalf("no golden case %q", name)
	return nil
}

// Every component in many variants: ids and texts are the reference's.
func TestGolden(t *testing.T) {
	var g golden
	readGolden(t, "golden.json.gz", &g)
	for _, c := range g.Cases {
		t.Run(c.Name, func(t *testing.T) {
			tok, err := FromJSON(c.file(t, &g), nil)
			if err != nil {
				t.Fatal(err)
			}
			for i, text := range c.Texts {
				sameIDs(t, tok, text, EncodeOptions{AddSpecial: true}, c.IDs[i])
				plain := c.IDs
				if c.Plain != nil {
					plain = c.Plain
				}
				sameIDs(t, tok, text, EncodeOptions{}, plain[i])
				if c.Literal != nil {
					plain = c.Literal
				}
				sameIDs(t, tok, text, EncodeOptions{NoSpecialInText: true}, plain[i])
			}
			for i, ids := range c.IDs {
				sameText(t, tok, ids, false, c.Decoded[i])
				if c.Skipped != nil {
					sameText(t, tok, ids, true, c.Skipped[i])
				} else {
					sameText(t, tok, ids, true, c.Decoded[i])
				}
			}
		})
	}
}

func sameIDs(t *testing.T, tok *Tokenizer, text string, o EncodeOptions, want []int32) {
	t.Helper()
	if got := tok.Encode(text, o); !slices.Equal(got, want) {
		t.Errorf("%q with %+v\n got %v\nwant %v", text, o, spell(tok, got), spell(tok, want))
	}
}

func sameText(t *testing.T, tok *Tokenizer, ids []int32, skip bool, want *string) {
	t.Helper()
	if want == nil {
		return
	}
	if got := tok.Decode(ids, skip); got != *want {
		t.Errorf("decode %v, skipSpecial %v\n got %q\nwant %q", spell(tok, ids), skip, got, *want)
	}
	d := tok.NewDecoder(skip)
	var b strings.Builder
	for _, id := range ids {
		part := d.Push(id)
		if !utf8.ValidString(part) {
			t.Errorf("Push(%d) in %v gives %q", id, ids, part)
		}
		b.WriteString(part)
	}
	b.WriteString(d.Flush())
	if b.String() != *want {
		t.Errorf("streamed %v, skipSpecial %v\n got %q\nwant %q", spell(tok, ids), skip, b.String(), *want)
	}
}

func spell(tok *Tokenizer, ids []int32) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i], _ = tok.Token(id)
	}
	return out
}

// Each pattern cuts a text as the reference's regular expressions do, by its splitter if it has one and by regexp2.
func TestGoldenPieces(t *testing.T) {
	var g struct {
		Patterns map[string]string
		Pieces   [][3]any
		Random   [][2]any // a pattern; texts with pieces
	}
	readGolden(t, "pieces.json.gz", &g)
	compiled := map[string]*pattern{}
	for name, expr := range g.Patterns {
		p, err := compilePattern(expr)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		compiled[name] = p
	}
	fast := 0
	for _, c := range g.Pieces {
		name, text := c[0].(string), c[1].(string)
		var want []string
		for _, p := range c[2].([]any) {
			want = append(want, p.(string))
		}
		if got := (patternSplit{compiled[name], isolated, false}).split(nil, text, true); !slices.Equal(got, want) {
			t.Errorf("%s by regexp2: %q\n got %q\nwant %q", name, text, got, want)
		}
		if s, ok := knownPatterns[g.Patterns[name]]; ok {
			fast++
			if got := pieces(s, text); !slices.Equal(got, want) {
				t.Errorf("%s by splitter: %q\n got %q\nwant %q", name, text, got, want)
			}
		}
	}
	if fast < 1000 {
		t.Errorf("only %d texts met a splitter", fast)
	}
	tried := 0
	for _, r := range g.Random {
		p, err := compilePattern(r[0].(string))
		if err != nil {
			continue // some cannot be translated, and say so
		}
		tried++
		for _, c := range r[1].([]any) {
			text, want := c.([]any)[0].(string), c.([]any)[1].([]any)
			got := (patternSplit{p, isolated, false}).split(nil, text, true)
			if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
				t.Errorf("%s: %q\n got %q\nwant %q", r[0], text, got, want)
			}
		}
	}
	if tried < len(g.Random)/2 {
		t.Errorf("only %d of %d random patterns could be translated", tried, len(g.Random))
	}
}

func pieces(s splitter, text string) (out []string) {
	for i := 0; i < len(text); {
		end := s.next(text, i)
		out = append(out, text[i:end])
		i = end
	}
	return out
}

func TestGoldenForms(t *testing.T) {
	var lines [][7]string
	readGolden(t, "forms.json.gz", &lines)
	forms := []struct {
		name string
		normalizer
	}{
		{"NFC", unicodeForm{norm.NFC}}, {"NFD", unicodeForm{norm.NFD}}, {"NFKC", unicodeForm{norm.NFKC}}, {"NFKD", unicodeForm{norm.NFKD}},
		{"Lowercase", lowercase{}}, {"StripAccents", stripAccents{}},
	}
	for _, line := range lines {
		for i, f := range forms {
			if got, want := f.normalize(line[0]), line[i+1]; got != want {
				t.Errorf("%s of %+q: got %+q, want %+q", f.name, line[0], got, want)
			}
		}
	}
}
