// SPDX-License-Identifier: MIT OR Apache-2.0

package sample

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/seq"
)

var inf = float32(math.Inf(1))
var nan = float32(math.NaN())

// once draws one token after the given prompt and text.
func once(t testing.TB, p seq.Sampling, prompt, text []int32, r Row) (int32, error) {
	t.Helper()
	var w Scratch
	var s Seq
	s.Reset(&p, prompt)
	for _, tok := range text {
		s.Accept(tok)
	}
	before := slices.Clone(r.Logits)
	id, err := w.Sample(&s, r)
	for i, v := range r.Logits {
		if math.Float32bits(v) != math.Float32bits(before[i]) {
			t.Fatalf("logit %d was changed from %v to %v", i, before[i], v)
		}
	}
	return id, err
}

func TestGreedy(t *testing.T) {
	greedy := seq.Greedy()
	with := func(change func(*seq.Sampling)) seq.Sampling {
		p := seq.Greedy()
		change(&p)
		return p
	}
	long := make([]float32, 1003)
	long[1001] = 2
	for _, c := range []struct {
		name         string
		p            seq.Sampling
		prompt, text []int32
		r            Row
		want         int32
	}{
		{"the largest", greedy, nil, nil, Row{Logits: []float32{-3, -1, -2}}, 1},
		{"the lowest id of equal ones", greedy, nil, nil, Row{Logits: []float32{1, 3, 2, 3, 3, 0, 0, 0, 0, 3}}, 1},
		{"beyond the unrolled part", greedy, nil, nil, Row{Logits: long}, 1001},
		{"-Inf is only impossible", greedy, nil, nil, Row{Logits: []float32{negInf, -1e30, negInf}}, 1},
		{"minus zero equals zero", greedy, nil, nil, Row{Logits: []float32{float32(math.Copysign(0, -1)), 0}}, 0},
		{"a tiny temperature is greedy", with(func(p *seq.Sampling) { p.Temperature = 1e-8 }), nil, nil, Row{Logits: []float32{1, 2}}, 1},
		{"filters do not matter", with(func(p *seq.Sampling) { p.TopK, p.TopP, p.MinP, p.TopNSigma = 1, 0.1, 1, 0.1 }), nil, nil, Row{Logits: []float32{1, 2}}, 1},
		{"mask", greedy, nil, nil, Row{Logits: []float32{9, 8, 7}, Allowed: []uint32{0b110}}, 1},
		{"tokens beyond the mask may not come", greedy, nil, nil, Row{Logits: long, Allowed: []uint32{1 << 31}}, 31},
		{"banned, some outside the vocabulary", greedy, nil, nil, Row{Logits: []float32{9, 8, 7}, Banned: []int32{0, -1, 3}}, 1},
		{"bias", with(func(p *seq.Sampling) { p.LogitBias = []seq.Bias{{Token: 0, Value: -100}, {Token: 2, Value: 3}} }), nil, nil, Row{Logits: []float32{9, 5, 4}}, 2},
		{"a bias does not lift the mask", with(func(p *seq.Sampling) { p.LogitBias = []seq.Bias{{Token: 0, Value: 100}} }), nil, nil, Row{Logits: []float32{9, 5}, Allowed: []uint32{2}}, 1},
		{"repetition divides positive ones, of the prompt too", with(func(p *seq.Sampling) { p.RepetitionPenalty = 2 }), []int32{0}, []int32{1}, Row{Logits: []float32{9, 8, 5}}, 2},
		{"repetition multiplies negative ones", with(func(p *seq.Sampling) { p.RepetitionPenalty = 2 }), []int32{0}, nil, Row{Logits: []float32{-3, -5}}, 1},
		{"presence counts once, in the text only", with(func(p *seq.Sampling) { p.PresencePenalty = 2 }), []int32{1}, []int32{0, 0, 0}, Row{Logits: []float32{9, 8, 0}}, 1},
		{"frequency counts each time", with(func(p *seq.Sampling) { p.FrequencyPenalty = 0.5 }), nil, []int32{0, 0, 0, 1}, Row{Logits: []float32{9, 8.2, 0}}, 1},
		{"repetition comes before the others", with(func(p *seq.Sampling) { p.RepetitionPenalty, p.PresencePenalty = 2, 2 }), nil, []int32{0}, Row{Logits: []float32{8, 1.5}}, 0},
		{"bias comes before repetition", with(func(p *seq.Sampling) {
			p.RepetitionPenalty, p.LogitBias = 2, []seq.Bias{{Token: 0, Value: 4}}
		}), []int32{0}, nil, Row{Logits: []float32{2, 4}}, 1},
		{"a tiny repetition penalty stays finite", with(func(p *seq.Sampling) { p.RepetitionPenalty = 1e-38 }), []int32{1}, nil, Row{Logits: []float32{2, 4}}, 1},
	} {
		if got, err := once(t, c.p, c.prompt, c.text, c.r); err != nil || got != c.want {
			t.Errorf("%s: got %d, %v; want %d", c.name, got, err, c.want)
		}
	}
}

func TestUnusableRowsAreErrors(t *testing.T) {
	random := seq.Greedy()
	random.Temperature = 1
	for _, p := range []seq.Sampling{seq.Greedy(), random} {
		for name, r := range map[string]Row{
			"NaN":                 {Logits: []float32{1, 2, nan, 3}},
			"NaN first":           {Logits: []float32{nan, 2}},
			"negative NaN last":   {Logits: []float32{1, 2, 1, 2, 1, 2, 1, 2, math.Float32frombits(0xFFC00000)}},
			"NaN in a block":      {Logits: []float32{1, 2, 1, nan, 1, 2, 1, 2, 1, 5}},
			"+Inf":                {Logits: []float32{1, inf}},
			"nothing allowed":     {Logits: []float32{1, 2}, Allowed: []uint32{0}},
			"nothing is possible": {Logits: []float32{negInf, negInf}},
			"no logits":           {},
		} {
			if id, err := once(t, p, nil, nil, r); !diag.Is(err, diag.Internal) {
				t.Errorf("%s at temperature %v: %d, %v", name, p.Temperature, id, err)
			}
		}
	}
}

// TestExtremesNeverBreak walks policies to their edges: the token is always a possible one.
func TestExtremesNeverBreak(t *testing.T) {
	logits := []float32{-1e38, 3, negInf, 3, 1e38, -3, 1e38, 0}
	for _, temp := range []float32{1e-5, 1e-4, 1, 1e30, math.MaxFloat32} {
		for _, topP := range []float32{math.SmallestNonzeroFloat32, 0.5, 1} {
			for _, minP := range []float32{0, math.SmallestNonzeroFloat32, 1} {
				for _, sigma := range []float32{0, math.SmallestNonzeroFloat32, 1, math.MaxFloat32} {
					for _, k := range []int{0, 1, 3, math.MaxInt} {
						p := seq.Sampling{Temperature: temp, TopP: topP, MinP: minP, TopNSigma: sigma, TopK: k, RepetitionPenalty: 1,
							LogitBias: []seq.Bias{{Token: 5, Value: -100}}}
						if err := Check(&p, len(logits)); err != nil {
							t.Fatal(err)
						}
						for i := range uint64(8) {
							got, err := once(t, p, nil, nil, Row{Logits: logits, Index: i})
							if err != nil || logits[got] == negInf {
								t.Fatalf("%+v: %d, %v", p, got, err)
							}
							if (k == 1 || topP < 0.1 || minP == 1 && temp < 1e30 || temp <= 1) && got != 4 && got != 6 {
								t.Fatalf("%+v: %d", p, got)
							}
						}
					}
				}
			}
		}
	}
}

func TestDrawsDependOnSeedAndIndexAlone(t *testing.T) {
	logits := make([]float32, 500)
	p := seq.Sampling{Temperature: 1, TopP: 1, RepetitionPenalty: 1, Seed: 7}
	draw := func() (out []int32) {
		var w Scratch
		var s Seq
		s.Reset(&p, nil)
		for i := range uint64(50) {
			id, err := w.Sample(&s, Row{Logits: logits, Index: i})
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, id)
		}
		return
	}
	a := draw()
	if b := draw(); !slices.Equal(a, b) {
		t.Errorf("%v\n%v", a, b)
	}
	p.Seed++
	if b := draw(); slices.Equal(a, b) {
		t.Error("another seed draws the same")
	}
}

// TestPhiloxKnownAnswers are the vectors that the authors of Random123 publish.
func TestPhiloxKnownAnswers(t *testing.T) {
	const f = 0xffffffff
	for _, c := range []struct {
		ctr  [4]uint32
		key  [2]uint32
		want [4]uint32
	}{
		{[4]uint32{}, [2]uint32{}, [4]uint32{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
		{[4]uint32{f, f, f, f}, [2]uint32{f, f}, [4]uint32{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
		{[4]uint32{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, [2]uint32{0xa4093822, 0x299f31d0}, [4]uint32{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
	} {
		if got := philox(c.ctr, c.key); got != c.want {
			t.Errorf("%x %x: %x, want %x", c.ctr, c.key, got, c.want)
		}
	}
	if r := Random(0, 0); r != 0x6627e8d5e169c58d {
		t.Errorf("%x", r)
	}
}

// uniform is Random as a number in [0, 1).
func uniform(seed, index uint64) float64 { return float64(Random(seed, index)>>11) * 0x1p-53 }

func TestUniformIsUniform(t *testing.T) {
	for name, u := range map[string]func(i uint64) float64{
		"by index": func(i uint64) float64 { return uniform(42, i) },
		"by seed":  func(i uint64) float64 { return uniform(i, 3) },
		"by high":  func(i uint64) float64 { return uniform(i<<32, i<<40) },
	} {
		counts := make([]float64, 100)
		for i := range uint64(100_000) {
			counts[int(u(i)*100)]++
		}
		expected := slices.Repeat([]float64{1000}, 100)
		if x := chiSquare(counts, expected); x > 165 { // p < 1e-5 for 99 degrees of freedom
			t.Errorf("%s: chi-square %v", name, x)
		}
	}
}

func chiSquare(got, want []float64) (x float64) {
	for i, w := range want {
		x += (got[i] - w) * (got[i] - w) / w
	}
	return
}

func TestMassIsClose(t *testing.T) {
	for x := float32(cutoff); x <= 0; x += 1e-4 {
		want := one * math.Exp(float64(x))
		if d := math.Abs(float64(mass(x)) - want); d > 1+3e-8*want {
			t.Fatalf("mass(%v) is %d, want %v", x, mass(x), want)
		}
	}
	if mass(0) != one || mass(float32(math.Copysign(0, -1))) != one || mass(-math.SmallestNonzeroFloat32) != one || mass(cutoff) < 1 {
		t.Errorf("%d %d", mass(0), mass(cutoff))
	}
}

func TestCountsAgainstMap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var c counts
	for range 3 {
		c.reset()
		want := map[int32]int32{}
		for range 5000 {
			tok := int32(r.IntN(2000)) * int32(1+r.IntN(3)*1000)
			c.at(tok).Text++
			want[tok]++
		}
		if len(c.entries) != len(want) {
			t.Fatalf("%d entries, want %d", len(c.entries), len(want))
		}
		for _, e := range c.entries {
			if e.Text != want[e.Token] {
				t.Fatalf("token %d: %d, want %d", e.Token, e.Text, want[e.Token])
			}
		}
	}
}

func TestCheckNamesTheField(t *testing.T) {
	ok := seq.Sampling{Temperature: 1, TopP: 0.5, MinP: 0.1, TopK: 5, RepetitionPenalty: 1.1, PresencePenalty: -2, FrequencyPenalty: 2,
		LogitBias: []seq.Bias{{Token: 1, Value: 100}, {Token: 9, Value: -100}}}
	if err := Check(&ok, 10); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		param  string
		change func(*seq.Sampling)
	}{
		{"temperature", func(p *seq.Sampling) { p.Temperature = -1 }},
		{"temperature", func(p *seq.Sampling) { p.Temperature = nan }},
		{"temperature", func(p *seq.Sampling) { p.Temperature = inf }},
		{"top_p", func(p *seq.Sampling) { p.TopP = 0 }},
		{"top_p", func(p *seq.Sampling) { p.TopP = 1.1 }},
		{"min_p", func(p *seq.Sampling) { p.MinP = nan }},
		{"min_p", func(p *seq.Sampling) { p.MinP = 2 }},
		{"top_n_sigma", func(p *seq.Sampling) { p.TopNSigma = -1 }},
		{"top_k", func(p *seq.Sampling) { p.TopK = -1 }},
		{"repetition_penalty", func(p *seq.Sampling) { p.RepetitionPenalty = 0 }},
		{"presence_penalty", func(p *seq.Sampling) { p.PresencePenalty = 2.5 }},
		{"frequency_penalty", func(p *seq.Sampling) { p.FrequencyPenalty = -inf }},
		{"logit_bias", func(p *seq.Sampling) { p.LogitBias = []seq.Bias{{Token: 10}} }},
		{"logit_bias", func(p *seq.Sampling) { p.LogitBias = []seq.Bias{{Token: 1, Value: nan}} }},
	} {
		p := ok
		c.change(&p)
		err := Check(&p, 10)
		if e, is := diag.As(err); !is || e.Code != diag.Invalid || e.Param != c.param {
			t.Errorf("%d %s: %v", i, c.param, err)
		}
	}
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	logits := randomLogits(10_000)
	var w Scratch
	var s Seq
	top := make([]seq.Logprob, 0, 20)
	for _, p := range benchPolicies {
		s.Reset(&p.Sampling, []int32{1, 2, 3, 4, 5})
		s.Accept(17)
		row := Row{Logits: logits, Banned: p.banned}
		round := func() {
			if _, err := w.Sample(&s, row); err != nil {
				t.Fatal(err)
			}
			if _, _, err := Logprobs(logits, 5, 20, top); err != nil {
				t.Fatal(err)
			}
			row.Index++
		}
		round()
		if n := testing.AllocsPerRun(20, round); n != 0 {
			t.Errorf("%s: %v allocations", p.name, n)
		}
	}
}

// randomLogits look like a model's: a normal bulk and some that stand out.
func randomLogits(n int) []float32 {
	r := rand.New(rand.NewPCG(3, 4))
	l := make([]float32, n)
	for i := range l {
		l[i] = float32(r.NormFloat64() * 2.5)
	}
	for i := range 30 {
		l[r.IntN(n)] = 18 - float32(i)/3
	}
	return l
}

var benchPolicies = []struct {
	name string
	seq.Sampling
	banned []int32
}{
	{"greedy", seq.Greedy(), nil},
	{"greedy-penalty", seq.Sampling{TopP: 1, RepetitionPenalty: 1.1}, nil},
	{"greedy-banned", seq.Greedy(), []int32{7}},
	{"temperature", seq.Sampling{Temperature: 1, TopP: 1, RepetitionPenalty: 1}, nil},
	{"topk20-topp0.95", seq.Sampling{Temperature: 0.6, TopK: 20, TopP: 0.95, RepetitionPenalty: 1}, nil},
	{"topp0.9", seq.Sampling{Temperature: 1, TopP: 0.9, RepetitionPenalty: 1}, nil},
	{"minp0.05", seq.Sampling{Temperature: 1, TopP: 1, MinP: 0.05, RepetitionPenalty: 1}, nil},
	{"topnsigma1", seq.Sampling{Temperature: 1, TopP: 1, TopNSigma: 1, RepetitionPenalty: 1}, nil},
	{"topk50-hot", seq.Sampling{Temperature: 2, TopK: 50, TopP: 1, RepetitionPenalty: 1}, nil},
	{"topp0.99-hot", seq.Sampling{Temperature: 3, TopP: 0.99, RepetitionPenalty: 1}, nil},
}

func BenchmarkSample(b *testing.B) {
	for _, vocab := range []int{49_152, 151_936} {
		logits := randomLogits(vocab)
		for _, p := range benchPolicies {
			b.Run(fmt.Sprintf("%s/%d", p.name, vocab), func(b *testing.B) {
				var w Scratch
				var s Seq
				s.Reset(&p.Sampling, []int32{1, 2, 3, 4, 5})
				row := Row{Logits: logits, Banned: p.banned}
				b.ReportAllocs()
				for b.Loop() {
					if _, err := w.Sample(&s, row); err != nil {
						b.Fatal(err)
					}
					row.Index++
				}
			})
		}
		b.Run(fmt.Sprintf("logprobs20/%d", vocab), func(b *testing.B) {
			top := make([]seq.Logprob, 0, 20)
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := Logprobs(logits, 5, 20, top); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
