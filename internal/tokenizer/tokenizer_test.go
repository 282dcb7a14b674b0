// SPDX-License-Identifier: MIT OR Apache-2.0

package tokenizer

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func readSample(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(testdata, "sample.txt"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A byte-level tokenizer loses nothing, and its tokens' bytes are the text.
func TestByteLevelRoundTrip(t *testing.T) {
	tok := goldenTokenizer(t, "falcon")
	sample := readSample(t)
	ids := tok.Encode(sample, EncodeOptions{})
	if got := tok.Decode(ids, false); got != sample {
		t.Error("the sample does not survive")
	}
	var b []byte
	for _, id := range ids {
		b = append(b, tok.TokenBytes(id)...)
	}
	if string(b) != sample {
		t.Error("the tokens' bytes are not the sample")
	}
}

func TestTokenBytes(t *testing.T) {
	for _, c := range []struct{ tokenizer, token, want string }{
		{"pattern llama3", "Ġa", " a"},
		{"pattern llama3", "Ċ", "\n"},
		{"pattern llama3", "<|s|>", "<|s|>"},
		{"llama", "▁t", " t"},
		{"llama", "<0xE4>", "\xe4"},
		{"llama", "</s>", "</s>"},
		{"llama", "▁▁▁", "   "},
		{"metaspace always True", "▁t", " t"},
	} {
		tok := goldenTokenizer(t, c.tokenizer)
		id, ok := tok.ID(c.token)
		if !ok {
			t.Fatalf("%s has no %q", c.tokenizer, c.token)
		}
		if got := tok.TokenBytes(id); string(got) != c.want {
			t.Errorf("%s: bytes of %q are %q, want %q", c.tokenizer, c.token, got, c.want)
		}
		if text, ok := tok.Token(id); !ok || text != c.token {
			t.Errorf("%s: token of %q's id is %q", c.tokenizer, c.token, text)
		}
	}
	tok := goldenTokenizer(t, "llama")
	for _, id := range []int32{-1, int32(tok.VocabSize()), 1 << 30} {
		if _, ok := tok.Token(id); ok || tok.TokenBytes(id) != nil || tok.IsSpecial(id) {
			t.Errorf("id %d is no token, and yet", id)
		}
	}
}

func TestMalformedText(t *testing.T) {
	tok := goldenTokenizer(t, "pattern llama3")
	for text, want := range map[string]string{
		"a\xff b":              "a\uFFFD b",
		"\xe4\xb8":             "\uFFFD",             // one prefix
		"\xe4\xb8\xe4\xb8\xad": "\uFFFD中",            // and a whole one
		"\xed\xa0\x80":         "\uFFFD\uFFFD\uFFFD", // a surrogate
		"\xf0\x80\x80":         "\uFFFD\uFFFD\uFFFD",
		"\xf4\x90\x80\x80":     "\uFFFD\uFFFD\uFFFD\uFFFD",
		"\xc0\x80":             "\uFFFD\uFFFD",
		"\xf0\x9f\x98x":        "\uFFFDx",
	} {
		if got := tok.Decode(tok.Encode(text, EncodeOptions{}), false); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// AppendEncode keeps what is there.
func TestAppendEncode(t *testing.T) {
	tok := goldenTokenizer(t, "template")
	got := tok.AppendEncode([]int32{7}, "a", EncodeOptions{AddSpecial: true})
	want := append([]int32{7}, tok.Encode("a", EncodeOptions{AddSpecial: true})...)
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestEncodeInManyGoroutines(t *testing.T) {
	tok := goldenTokenizer(t, "pattern qwen2")
	sample := readSample(t)
	want := tok.Encode(sample, EncodeOptions{})
	var wg sync.WaitGroup
	for range 40 {
		wg.Go(func() {
			if got := tok.Encode(sample, EncodeOptions{}); !slices.Equal(got, want) {
				t.Error("ids differ between goroutines")
			}
		})
	}
	wg.Wait()
}

// A megabyte of one letter takes no longer than a megabyte times a logarithm.
func TestLongRuns(t *testing.T) {
	for _, name := range []string{"pattern llama3", "pattern deepseek", "llama", "normalizer NFC"} {
		tok := goldenTokenizer(t, name)
		for _, unit := range []string{"a", " ", "\n", "é", "\u0301", "中", "<", "'"} {
			start := time.Now()
			ids := tok.Encode(strings.Repeat(unit, 1<<20/len(unit)), EncodeOptions{})
			// Far more than it takes, for a machine that starves; far less than what is quadratic takes.
			if d := time.Since(start); d > 30*time.Second {
				t.Errorf("%s: 1 MB of %q took %v", name, unit, d)
			}
			if len(ids) == 0 {
				t.Errorf("%s: no ids for %q", name, unit)
			}
		}
	}
}

// In steady state, encoding into a buffer allocates nothing.
func TestEncodeAllocates(t *testing.T) {
	tok := goldenTokenizer(t, "pattern llama3")
	sample := readSample(t)
	buf := tok.Encode(sample, EncodeOptions{})
	n := testing.AllocsPerRun(10, func() { buf = tok.AppendEncode(buf[:0], sample, EncodeOptions{}) })
	if n > 3 { // the closures over the text
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkEncode(b *testing.B) {
	sample := readSample(b)
	for _, name := range []string{"pattern llama3", "pattern o200k", "pattern qwen2", "deepseek", "llama", "normalizer NFC"} {
		b.Run(strings.ReplaceAll(name, " ", "_"), func(b *testing.B) {
			tok := goldenTokenizer(b, name)
			buf := tok.Encode(sample, EncodeOptions{})
			b.SetBytes(int64(len(sample)))
			b.ReportAllocs()
			for b.Loop() {
				buf = tok.AppendEncode(buf[:0], sample, EncodeOptions{})
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, name := range []string{"pattern llama3", "llama"} {
		b.Run(strings.ReplaceAll(name, " ", "_"), func(b *testing.B) {
			tok := goldenTokenizer(b, name)
			ids := tok.Encode(readSample(b), EncodeOptions{})
			b.SetBytes(int64(len(ids)))
			b.ReportAllocs()
			for b.Loop() {
				tok.Decode(ids, false)
			}
		})
	}
}
