// SPDX-License-Identifier: MIT OR Apache-2.0

package tokenizer

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// Fast against obvious: each of these has a slow twin that is plainly right.

// alphabet has one or more of each class that a splitter or a normalizer tells apart.
var alphabet = []string{
	"a", "s", "t", "S", "T", "e", "l", "L", "Z", "ſ", "é", "Ж", "ж", "ǅ", "中", "カ", "゛", "ʰ", "ª", "\u0301", "\u0903", "\u20dd",
	"1", "2", "٣", "²", "Ⅷ", " ", " ", "\t", "\n", "\r", "\u0085", "\u00a0", "\u2028", "\u3000", "'", "'", "-", "/", "_", "$", "€", "«",
	"\x00", "\u200b", "\ue000", "\U0010ffff", "😀", "\U00011de1",
}

func texts() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom(alphabet), 1, 40).Draw(t, "text"), "")
	})
}

// A splitter cuts as its regular expression does.
func TestSplittersAgainstPatterns(t *testing.T) {
	for expr, s := range knownPatterns {
		p, err := compilePattern(expr)
		if err != nil {
			t.Fatalf("%s: %v", expr, err)
		}
		slow := patternSplit{p, isolated, false}
		rapid.Check(t, func(t *rapid.T) {
			text := texts().Draw(t, "text")
			if got, want := pieces(s, text), slow.split(nil, text, true); !slices.Equal(got, want) {
				t.Fatalf("%s: %q\n got %q\nwant %q", expr, text, got, want)
			}
		})
	}
}

// mergeSlowly is byte-pair encoding as it is defined.
func mergeSlowly(ids []int32, t *mergeTable) []int32 {
	for {
		best, at := merge{rank: noRank}, -1
		for i := 0; i+1 < len(ids); i++ {
			if m := t.find(ids[i], ids[i+1]); m.rank < best.rank {
				best, at = m, i
			}
		}
		if at < 0 {
			return ids
		}
		ids = slices.Concat(ids[:at], []int32{best.result}, ids[at+2:])
	}
}

func TestMergersAgainstDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		token := rapid.Int32Range(0, 12)
		var pairs []pairMerge
		for range rapid.IntRange(0, 40).Draw(t, "merges") {
			rank := rapid.Uint32Range(0, 30).Draw(t, "rank") // some are equal, as scores can be
			pairs = append(pairs, pairMerge{token.Draw(t, "left"), token.Draw(t, "right"), merge{rank, token.Draw(t, "result")}})
		}
		table := newMergeTable(pairs)
		ids := rapid.SliceOfN(token, 2, maxShort).Draw(t, "ids")
		want := mergeSlowly(slices.Clone(ids), &table)
		short := &shortWord{n: len(ids)}
		copy(short.id[:], ids)
		for i := range len(ids) - 1 {
			short.set(i, table.find(ids[i], ids[i+1]))
		}
		if got := short.merge(nil, &table); !slices.Equal(got, want) {
			t.Fatalf("short: %v\n got %v\nwant %v", ids, got, want)
		}
		if got := (&merger{ids: slices.Clone(ids)}).long(nil, &table); !slices.Equal(got, want) {
			t.Fatalf("long: %v\n got %v\nwant %v", ids, got, want)
		}
	})
}

// Cutting where no merge can join changes nothing.
func TestJoinSplitterChangesNothing(t *testing.T) {
	for _, name := range []string{"llama", "gemma", "metaspace first true"} {
		fast := goldenTokenizer(t, strings.Replace(name, "true", "True", 1))
		slow := goldenTokenizer(t, strings.Replace(name, "true", "True", 1))
		slow.preTokenizers = slices.DeleteFunc(slow.preTokenizers, func(p preTokenizer) bool { _, ok := p.(*joinSplitter); return ok })
		if len(slow.preTokenizers) == len(fast.preTokenizers) {
			t.Fatalf("%s has no join splitter", name)
		}
		sample := readSample(t)
		for i := 0; i+200 < len(sample); i += 150 {
			text := validText(sample[i : i+200])
			if got, want := fast.Encode(text, EncodeOptions{}), slow.Encode(text, EncodeOptions{}); !slices.Equal(got, want) {
				t.Errorf("%s: %q\n got %q\nwant %q", name, text, spell(fast, got), spell(slow, want))
			}
		}
	}
}

// A streamed text is the whole text, whatever the ids.
func TestStreamAgainstDecode(t *testing.T) {
	for _, name := range []string{"pattern llama3", "llama", "gemma", "metaspace always True", "strip tokens", "fuse first", "replace text", "no decoder"} {
		tok := goldenTokenizer(t, name)
		clean := *goldenTokenizer(t, name)
		clean.decoding = append(slices.Clone(clean.decoding), cleanupStep{})
		rapid.Check(t, func(t *rapid.T) {
			ids := rapid.SliceOfN(rapid.Int32Range(-1, int32(tok.VocabSize())), 0, 40).Draw(t, "ids")
			skip := rapid.Bool().Draw(t, "skip")
			text := streamed(t, tok, ids, skip)
			if want := tok.Decode(ids, skip); text != want {
				t.Fatalf("%s: %v\n got %q\nwant %q", name, ids, text, want)
			}
			for _, c := range cleanups {
				text = strings.ReplaceAll(text, c.old, c.new)
			}
			if got := streamed(t, &clean, ids, skip); got != text {
				t.Fatalf("%s, cleaned: %v\n got %q\nwant %q", name, ids, got, text)
			}
		})
	}
}

func streamed(t *rapid.T, tok *Tokenizer, ids []int32, skip bool) string {
	d := tok.NewDecoder(skip)
	var b strings.Builder
	for _, id := range ids {
		part := d.Push(id)
		if !utf8.ValidString(part) {
			t.Fatalf("Push(%d) in %v gives %q", id, ids, part)
		}
		b.WriteString(part)
	}
	return b.String() + d.Flush()
}

// cleanup holds back no more than it must, and undoes the spaces that the whole text would lose.
func TestCleanupAgainstWholeText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOfN(rapid.SampledFrom([]string{" ", "'", "n", "'t", "s", "m", "v", "e", "r", ".", ",", "?", "!", "x", "n't ", " ' "}), 0, 30).Draw(t, "parts")
		d := &Decoder{stages: []stage{cleanupStep{}.start()}}
		for _, p := range parts {
			d.pass(0, p)
		}
		d.flush()
		want := strings.Join(parts, "")
		for _, c := range cleanups {
			want = strings.ReplaceAll(want, c.old, c.new)
		}
		if string(d.out) != want {
			t.Fatalf("%q: got %q, want %q", parts, d.out, want)
		}
	})
}

// Malformed stretches are replaced as a decoder without look-ahead would, and in parts as in one.
func TestAppendValidInParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.SampledFrom([]byte{'a', 0x7f, 0x80, 0x9f, 0xa0, 0xbf, 0xc0, 0xc3, 0xe0, 0xe4, 0xed, 0xef, 0xf0, 0xf1, 0xf4, 0xf5, 0xff}), 0, 20).Draw(t, "bytes")
		whole, _ := appendValid(nil, b, true)
		var parts, rest []byte
		for _, c := range b {
			parts, rest = appendValid(parts, append(rest, c), false)
			rest = slices.Clone(rest)
			if !utf8.Valid(parts) {
				t.Fatalf("%x: %q", b, parts)
			}
		}
		parts, _ = appendValid(parts, rest, true)
		if string(parts) != string(whole) {
			t.Fatalf("%x: in parts %q, whole %q", b, parts, whole)
		}
	})
}
