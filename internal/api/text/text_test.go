// SPDX-License-Identifier: MIT OR Apache-2.0

package text

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/metrale/metrale/internal/seq"
)

// vocabulary is a toy tokenizer: token i is the bytes of vocabulary[i].
type vocabulary []string

// decoder holds bytes back until they make whole characters.
type decoder struct {
	v    *vocabulary
	rest string
}

func (d *decoder) Push(id int32) string {
	d.rest += (*d.v)[id]
	cut := len(d.rest)
	for back := 1; back <= min(3, len(d.rest)); back++ {
		if i := len(d.rest) - back; utf8.RuneStart(d.rest[i]) {
			if !utf8.FullRuneInString(d.rest[i:]) {
				cut = i
			}
			break
		}
	}
	out := strings.ToValidUTF8(d.rest[:cut], "\uFFFD")
	d.rest = d.rest[cut:]
	return out
}

func (d *decoder) Flush() string {
	out := strings.ToValidUTF8(d.rest, "\uFFFD")
	d.rest = ""
	return out
}

// result is what a whole text came to.
type result struct {
	text    string
	pieces  []string
	tokens  string // each token's own text, joined by |
	offsets []int
	stop    string
}

// play pushes tokens one by one, as Stream's users do.
func play(v vocabulary, tokens []string, o Options) result {
	o.Decoder = &decoder{v: &v}
	s := New(o)
	var r result
	var names []string
	take := func(p Piece) {
		if p.Text != "" {
			r.pieces = append(r.pieces, p.Text)
		}
		r.text += p.Text
		for _, t := range p.Tokens {
			names = append(names, v[t.ID])
			r.offsets = append(r.offsets, t.Offset)
		}
	}
	for _, t := range tokens {
		p, stopped := s.Push(seq.Token{ID: v.id(t)})
		take(p)
		if stopped {
			break
		}
	}
	p, _ := s.End()
	take(p)
	r.tokens = strings.Join(names, "|")
	r.stop, _ = s.Stopped()
	return r
}

func (v *vocabulary) id(t string) int32 {
	for i, w := range *v {
		if w == t {
			return int32(i)
		}
	}
	*v = append(*v, t)
	return int32(len(*v) - 1)
}

func TestTexts(t *testing.T) {
	for _, c := range []struct {
		name, tokens string // separated by |
		o            Options
		pieces       string // separated by |
		kept         string // tokens that left; "" means all
		stop         string
	}{
		{name: "no stop strings", tokens: "Hel|lo| wor|ld", pieces: "Hel|lo| wor|ld"},
		{name: "empty", tokens: "", pieces: ""},
		{name: "character of three tokens", tokens: "a|\xf0\x9f|\x98|\x80|b", pieces: "a|😀|b"},
		{name: "text ends within a character", tokens: "a|\xf0\x9f", pieces: "a|\uFFFD"},
		{name: "stop in one token", tokens: "one| two| three", o: Options{Stop: NewStops([]string{"two"})}, pieces: "one| ", kept: "one| two", stop: "two"},
		{name: "stop across tokens", tokens: "alpha |be|ta g|amma", o: Options{Stop: NewStops([]string{"beta g"})}, pieces: "alpha ", kept: "alpha ", stop: "beta g"},
		{name: "what may become a stop string is held", tokens: "x|be|ta|max", o: Options{Stop: NewStops([]string{"betam!"})}, pieces: "x|betamax"},
		{name: "held to the end", tokens: "x|be|ta", o: Options{Stop: NewStops([]string{"betam!"})}, pieces: "x|beta"},
		{name: "a text before the stop leaves whole", tokens: "?|\n", o: Options{Stop: NewStops([]string{"\n"})}, pieces: "?", kept: "?", stop: "\n"},
		{name: "first complete stop wins", tokens: "abcdef", o: Options{Stop: NewStops([]string{"abcdefg", "cd"})}, pieces: "ab", stop: "cd"},
		{name: "longest of those that end together", tokens: "abcd", o: Options{Stop: NewStops([]string{"cd", "bcd", "d"})}, pieces: "a", stop: "bcd"},
		{name: "overlapping prefix", tokens: "a|a|a|b", o: Options{Stop: NewStops([]string{"aab"})}, pieces: "a", kept: "a", stop: "aab"},
		{name: "included", tokens: "one| tw|o three", o: Options{Stop: NewStops([]string{"two"}), IncludeStop: true}, pieces: "one| |two", stop: "two"},
		{name: "not before min tokens", tokens: "a|b|a|b|a|c", o: Options{Stop: NewStops([]string{"b"}), MinTokens: 2}, pieces: "a|b|a", kept: "a|b|a", stop: "b"},
		{name: "stop string in a character of many tokens", tokens: "a|\xf0\x9f|\x98|\x80|b", o: Options{Stop: NewStops([]string{"😀"})}, pieces: "a", kept: "a", stop: "😀"},
		{name: "a like character is no stop string", tokens: "\xc3|\xa8|x", o: Options{Stop: NewStops([]string{"é"})}, pieces: "è|x"},
		{name: "stop made by the broken end", tokens: "a|\xf0\x9f", o: Options{Stop: NewStops([]string{"\uFFFD"})}, pieces: "a", kept: "a", stop: "\uFFFD"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var tokens []string
			if c.tokens != "" {
				tokens = strings.Split(c.tokens, "|")
			}
			r := play(nil, tokens, c.o)
			if got := strings.Join(r.pieces, "|"); got != c.pieces {
				t.Errorf("pieces %q, want %q", got, c.pieces)
			}
			want := c.kept
			if want == "" {
				want = c.tokens
			}
			if r.tokens != want {
				t.Errorf("tokens %q, want %q", r.tokens, want)
			}
			if r.stop != c.stop {
				t.Errorf("stopped by %q, want %q", r.stop, c.stop)
			}
		})
	}
}

func TestOffsetsCountCharacters(t *testing.T) {
	r := play(nil, []string{"é", "\xf0\x9f", "\x98\x80", "日本", "x"}, Options{})
	if want := []int{0, 1, 1, 2, 4}; len(r.offsets) != len(want) || r.offsets[1] != 1 || r.offsets[3] != 2 || r.offsets[4] != 4 {
		t.Errorf("offsets %v, want %v", r.offsets, want)
	}
}

// stopsAt is the obvious twin of the matcher: where a text with these stop strings ends.
func stopsAt(text string, stops []string) (cut int, word string) {
	for end := 1; end <= len(text); end++ {
		for _, w := range stops {
			if strings.HasSuffix(text[:end], w) && len(w) > len(word) {
				cut, word = end-len(w), w
			}
		}
		if word != "" {
			return cut, word
		}
	}
	return len(text), ""
}

// TestChunksDoNotMatter splits random texts into random tokens, also within characters.
func TestChunksDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		letters := rapid.SampledFrom([]string{"a", "b", "é", "è", "😀", "😁", "\n"})
		whole := strings.Join(rapid.SliceOfN(letters, 0, 30).Draw(t, "text"), "")
		var stops []string
		for range rapid.IntRange(0, 4).Draw(t, "stops") {
			stops = append(stops, strings.Join(rapid.SliceOfN(letters, 1, 4).Draw(t, "stop"), ""))
		}
		var tokens []string
		for rest := whole; rest != ""; {
			n := rapid.IntRange(1, min(6, len(rest))).Draw(t, "token")
			tokens = append(tokens, rest[:n])
			rest = rest[n:]
		}
		r := play(nil, tokens, Options{Stop: NewStops(stops)})
		cut, word := stopsAt(whole, stops)
		if r.text != whole[:cut] || r.stop != word {
			t.Fatalf("text %q stopped by %q, want %q by %q", r.text, r.stop, whole[:cut], word)
		}
		for _, p := range r.pieces {
			if !utf8.ValidString(p) {
				t.Fatalf("piece %q is not UTF-8", p)
			}
		}
		joined := strings.ReplaceAll(r.tokens, "|", "")
		if word == "" && joined != whole || !strings.HasPrefix(whole, joined) || len(joined) < cut {
			t.Fatalf("tokens %q of the text %q", r.tokens, whole[:cut])
		}
	})
}

func BenchmarkPush(b *testing.B) {
	d := fixed(" word")
	s := New(Options{Decoder: d, Stop: NewStops([]string{"\n\nUser:", "<end>"})})
	b.ReportAllocs()
	for b.Loop() {
		s.Push(seq.Token{})
	}
}

type fixed string

func (f fixed) Push(int32) string { return string(f) }
func (fixed) Flush() string       { return "" }
