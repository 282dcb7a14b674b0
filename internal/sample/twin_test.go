// SPDX-License-Identifier: MIT OR Apache-2.0

package sample

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/metrale/metrale/internal/seq"
)

// candidate is a token of the twin.
type candidate struct {
	id int32
	l  float32
	x  float32
	w  float64
}

// twin is the package's doc written down in the obvious way: it sorts everything and computes in float64. eps moves every
// threshold a little, so that a test can tell a rounding at a threshold from a mistake. It gives what may be drawn, in
// order.
func twin(p *seq.Sampling, prompt, text []int32, r Row, eps float64) []candidate {
	l := slices.Clone(r.Logits)
	for i := range l {
		if r.Allowed != nil && (i/32 >= len(r.Allowed) || r.Allowed[i/32]&(1<<(i%32)) == 0) || slices.Contains(r.Banned, int32(i)) {
			l[i] = negInf
		}
		for _, b := range p.LogitBias {
			if int(b.Token) == i {
				l[i] += b.Value
			}
		}
		inText := float32(0)
		for _, t := range text {
			if int(t) == i {
				inText++
			}
		}
		if inText > 0 || slices.Contains(prompt, int32(i)) {
			if l[i] > 0 {
				l[i] /= p.RepetitionPenalty
			} else {
				l[i] *= p.RepetitionPenalty
			}
		}
		if inText > 0 {
			l[i] -= p.FrequencyPenalty * inText
			l[i] -= p.PresencePenalty
		}
	}
	top := slices.Max(l)
	var sum, squares, n float64
	for _, v := range l {
		if v > negInf {
			n++
			sum += float64(v)
		}
	}
	for _, v := range l {
		if v > negInf {
			squares += (float64(v) - sum/n) * (float64(v) - sum/n)
		}
	}
	sigma := math.Sqrt(squares / n)
	var all []candidate
	for i, v := range l {
		x := (v - top) * (1 / p.Temperature)
		w := math.Exp(float64(x))
		switch {
		case float64(x) < cutoff-eps,
			p.TopNSigma > 0 && float64(v) < float64(top)-float64(p.TopNSigma)*sigma-eps,
			w < float64(p.MinP)*(1-eps):
			continue
		}
		all = append(all, candidate{int32(i), v, x, w})
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Or(-cmp.Compare(a.l, b.l), cmp.Compare(a.id, b.id))
	})
	if p.TopK > 0 {
		all = all[:min(p.TopK, len(all))]
	}
	if p.TopP < 1 {
		total := massOf(all)
		for n, sum := 0, 0.0; n < len(all); n++ {
			if sum += all[n].w; sum >= (float64(p.TopP)+eps)*total {
				all = all[:n+1]
			}
		}
	}
	return all
}

func massOf(all []candidate) (sum float64) {
	for _, c := range all {
		sum += c.w
	}
	return
}

// randomCase is a row and a policy, with ties and impossible tokens.
func randomCase(r *rand.Rand) (p seq.Sampling, prompt, text []int32, row Row) {
	n := 1 + r.IntN(300)
	if r.IntN(20) == 0 {
		n = 1 + r.IntN(20_000)
	}
	spread := []float64{0.1, 1, 5, 30}[r.IntN(4)]
	row.Logits = make([]float32, n)
	for i := range row.Logits {
		switch r.IntN(12) {
		case 0:
			row.Logits[i] = negInf
		case 1, 2:
			row.Logits[i] = float32(r.IntN(5)) // ties
		default:
			row.Logits[i] = float32(r.NormFloat64() * spread)
		}
	}
	row.Logits[r.IntN(n)] = 1
	row.Index = r.Uint64()
	maybe := func(f func()) {
		if r.IntN(3) == 0 {
			f()
		}
	}
	p = seq.Sampling{Temperature: []float32{0.01, 0.3, 1, 1.5, 100}[r.IntN(5)], TopP: 1, RepetitionPenalty: 1, Seed: r.Uint64()}
	maybe(func() { p.TopK = 1 + r.IntN(n+3) })
	maybe(func() { p.TopP = float32(r.Float64()*0.999 + 0.001) })
	maybe(func() { p.MinP = float32(r.Float64() * 0.3) })
	maybe(func() { p.TopNSigma = float32(r.Float64() * 3) })
	maybe(func() { p.RepetitionPenalty = float32(0.5 + r.Float64()) })
	maybe(func() { p.PresencePenalty = float32(r.Float64()*4 - 2) })
	maybe(func() { p.FrequencyPenalty = float32(r.Float64()*4 - 2) })
	maybe(func() {
		for t := r.IntN(5); t < n; t += 1 + r.IntN(30) {
			p.LogitBias = append(p.LogitBias, seq.Bias{Token: int32(t), Value: float32(r.NormFloat64() * 10)})
		}
	})
	for range r.IntN(20) {
		prompt = append(prompt, int32(r.IntN(n)))
		text = append(text, int32(r.IntN(n)))
	}
	keep := int32(slices.Index(row.Logits, 1))
	maybe(func() {
		for range r.IntN(4) {
			if t := int32(r.IntN(n)); t != keep {
				row.Banned = append(row.Banned, t)
			}
		}
	})
	maybe(func() {
		row.Allowed = make([]uint32, (n+31)/32)
		for i := range row.Allowed {
			row.Allowed[i] = r.Uint32() | r.Uint32()
		}
		row.Allowed[keep/32] |= 1 << (keep % 32)
	})
	return
}

// TestAgainstTwin compares the draw.
func TestAgainstTwin(t *testing.T) {
	var w Scratch
	var s Seq
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 1))
		p, prompt, text, row := randomCase(r)
		s.Reset(&p, prompt)
		for _, tok := range text {
			s.Accept(tok)
		}
		id, err := w.Sample(&s, row)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		u := uniform(p.Seed, row.Index)
		if !slices.ContainsFunc([]float64{0, -1e-6, 1e-6}, func(eps float64) bool { return drawn(twin(&p, prompt, text, row, eps), u, id) }) {
			t.Fatalf("seed %d: policy %+v: drew %d, want one of %v by %v", seed, p, id, twin(&p, prompt, text, row, 0), u)
		}
	}
}

// drawn says whether u, give or take a rounding, draws id.
func drawn(all []candidate, u float64, id int32) bool {
	total, sum := massOf(all), 0.0
	for _, c := range all {
		if c.id == id {
			return u*total >= sum-1e-6*total && u*total <= sum+c.w+1e-6*total
		}
		sum += c.w
	}
	return false
}

// TestDistribution draws often and compares the frequencies with the twin's probabilities.
func TestDistribution(t *testing.T) {
	const draws = 20_000
	logits := []float32{2, 1.5, 1, 1, 0.5, 0, -0.5, -1, -2, -3, negInf, 1.2}
	for name, p := range map[string]seq.Sampling{
		"all":         {Temperature: 1, TopP: 1, RepetitionPenalty: 1, Seed: 1},
		"hot":         {Temperature: 3, TopP: 1, RepetitionPenalty: 1, Seed: 2},
		"cold":        {Temperature: 0.5, TopP: 1, RepetitionPenalty: 1, Seed: 3},
		"top-k":       {Temperature: 1, TopP: 1, TopK: 4, RepetitionPenalty: 1, Seed: 4},
		"top-p":       {Temperature: 1, TopP: 0.8, RepetitionPenalty: 1, Seed: 5},
		"min-p":       {Temperature: 1, TopP: 1, MinP: 0.2, RepetitionPenalty: 1, Seed: 6},
		"top-n-sigma": {Temperature: 1.5, TopP: 1, TopNSigma: 1.2, RepetitionPenalty: 1, Seed: 7},
		"everything": {Temperature: 2, TopP: 0.9, TopK: 9, MinP: 0.05, TopNSigma: 3, RepetitionPenalty: 1.3, PresencePenalty: 0.2,
			LogitBias: []seq.Bias{{Token: 8, Value: 3}}, Seed: 8},
	} {
		var w Scratch
		var s Seq
		prompt, text := []int32{0, 3}, []int32{4, 4}
		s.Reset(&p, prompt)
		s.Accept(4)
		s.Accept(4)
		want := twin(&p, prompt, text, Row{Logits: logits}, 0)
		got, expected := make([]float64, len(want)), make([]float64, len(want))
		for i, c := range want {
			expected[i] = draws * c.w / massOf(want)
		}
		for i := range uint64(draws) {
			id, err := w.Sample(&s, Row{Logits: logits, Index: i})
			at := slices.IndexFunc(want, func(c candidate) bool { return c.id == id })
			if err != nil || at < 0 {
				t.Fatalf("%s: %d, %v", name, id, err)
			}
			got[at]++
		}
		// p is below 1e-4 beyond mean + 5 standard deviations, for these few degrees of freedom.
		df := float64(len(want) - 1)
		if x := chiSquare(got, expected); x > df+5*math.Sqrt(2*df) {
			t.Errorf("%s: chi-square %.1f with %v degrees of freedom: %v, expected %v", name, x, df, got, expected)
		}
	}
}

func TestLogprobsAgainstTwin(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 2))
		_, _, _, row := randomCase(r)
		l := row.Logits
		n := r.IntN(len(l) + 2)
		token := int32(r.IntN(len(l)))
		got, top, err := Logprobs(l, token, n, []seq.Logprob{{Token: -1}})
		if err != nil || top[0].Token != -1 {
			t.Fatal(err)
		}
		top = top[1:]
		sum := 0.0
		var want []int32
		for i, v := range l {
			sum += math.Exp(float64(v))
			if v > negInf {
				want = append(want, int32(i))
			}
		}
		slices.SortStableFunc(want, func(a, b int32) int { return -cmp.Compare(l[a], l[b]) })
		want = want[:min(n, len(want))]
		value := func(id int32) float64 { return max(worst, float64(l[id])-math.Log(sum)) }
		if math.Abs(float64(got)-value(token)) > 1e-4 {
			t.Fatalf("seed %d: token %d: %v, want %v", seed, token, got, value(token))
		}
		if len(top) != len(want) {
			t.Fatalf("seed %d: %d on top, want %d", seed, len(top), len(want))
		}
		for i, id := range want {
			if top[i].Token != id || math.Abs(float64(top[i].Value)-value(id)) > 1e-4 {
				t.Fatalf("seed %d: place %d is %+v, want %d %v", seed, i, top[i], id, value(id))
			}
		}
	}
	if _, _, err := Logprobs([]float32{1, nan}, 0, 1, nil); err == nil {
		t.Error("NaN passes")
	}
}

// FuzzSample feeds any bits as logits and policy: a possible token or an error comes out, the twin's when it is defined.
func FuzzSample(f *testing.F) {
	f.Add(uint64(1), float32(1), float32(0.9), float32(0), float32(0), 5, []byte{0, 0, 128, 63, 0, 0, 0, 64})
	f.Add(uint64(2), float32(1e-5), float32(1), float32(1), float32(0.1), 0, []byte{0, 0, 192, 255, 0, 0, 128, 255})
	f.Fuzz(func(t *testing.T, seed uint64, temperature, topP, minP, sigma float32, topK int, bits []byte) {
		p := seq.Sampling{Temperature: temperature, TopP: topP, MinP: minP, TopNSigma: sigma, TopK: topK, RepetitionPenalty: 1, Seed: seed}
		l := make([]float32, len(bits)/4)
		for i := range l {
			l[i] = math.Float32frombits(uint32(bits[4*i]) | uint32(bits[4*i+1])<<8 | uint32(bits[4*i+2])<<16 | uint32(bits[4*i+3])<<24)
		}
		if Check(&p, len(l)) != nil {
			return
		}
		id, err := once(t, p, nil, nil, Row{Logits: l})
		bad := !slices.ContainsFunc(l, func(v float32) bool { return v > negInf }) ||
			slices.ContainsFunc(l, func(v float32) bool { return v != v || v == inf })
		if (err != nil) != bad {
			t.Fatalf("%v: %d, %v", l, id, err)
		}
		if err == nil && l[id] == negInf {
			t.Fatalf("%v: %d", l, id)
		}
	})
}
