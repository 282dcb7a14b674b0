// SPDX-License-Identifier: MIT OR Apache-2.0

package engine

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/engine/script"
	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/sample"
	"github.com/metrale/metrale/internal/seq"
)

const oracleVocab = 40

// noise is a model whose logits are a hash of the history.
func noise(history []int32, logits []float32) {
	h := uint64(len(history))
	for _, t := range history {
		h = (h ^ uint64(t)) * 0x9E3779B97F4A7C15
		h ^= h >> 29
	}
	for i := range logits {
		x := (h ^ uint64(i)) * 0xBF58476D1CE4E5B9
		logits[i] = float32(x>>40) / (1 << 21) // 0 to 8
	}
}

// oracle answers a request alone, one token at a time, without any machinery.
func oracle(t testing.TB, r seq.Request) answer {
	t.Helper()
	a := answer{end: seq.Event{StopToken: -1, Finish: seq.Length}}
	row := make([]float32, oracleVocab)
	scored := func(history []int32, id int32) seq.Token {
		tok := seq.Token{ID: id}
		if r.Logprobs >= 0 {
			noise(history, row)
			var err error
			if tok.Logprob, tok.Top, err = sample.Logprobs(row, id, r.Logprobs, nil); err != nil {
				t.Fatal(err)
			}
		}
		return tok
	}
	if r.Echo {
		a.prompt = append(a.prompt, unscored(r.Prompt[0]))
		for i, id := range r.Prompt[1:] {
			tok := scored(r.Prompt[:i+1], id)
			if r.Logprobs < 0 {
				tok = unscored(id)
			}
			a.prompt = append(a.prompt, tok)
		}
	}
	var scratch sample.Scratch
	var s sample.Seq
	s.Reset(&r.Sampling, r.Prompt)
	history := slices.Clone(r.Prompt)
	for i := range r.MaxTokens {
		noise(history, row)
		in := sample.Row{Logits: row, Index: uint64(i)}
		if i < r.MinTokens {
			in.Banned = r.Stop
		}
		id, err := scratch.Sample(&s, in)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(r.Stop, id) {
			a.end = seq.Event{StopToken: id, Finish: seq.Stopped}
			break
		}
		a.tokens = append(a.tokens, scored(history, id))
		history = append(history, id)
		s.Accept(id)
	}
	return a
}

// diff says how an answer differs from the oracle's; a canceled one may be shorter.
func diff(got, want answer) error {
	same := func(a, b seq.Token) bool {
		return a.ID == b.ID && math.Float32bits(a.Logprob) == math.Float32bits(b.Logprob) && slices.Equal(a.Top, b.Top)
	}
	canceled := got.end.Finish == seq.Canceled
	if !canceled && (got.end.Finish != want.end.Finish || got.end.StopToken != want.end.StopToken) {
		return fmt.Errorf("ends by %+v, want %+v", got.end, want.end)
	}
	if canceled && len(got.tokens) <= len(want.tokens) {
		want.tokens = want.tokens[:len(got.tokens)]
		if len(got.prompt) == 0 {
			want.prompt = nil
		}
	}
	if !slices.EqualFunc(got.tokens, want.tokens, same) {
		return fmt.Errorf("tokens\n%v, want\n%v", got.tokens, want.tokens)
	}
	if !slices.EqualFunc(got.prompt, want.prompt, same) {
		return fmt.Errorf("prompt\n%v, want\n%v", got.prompt, want.prompt)
	}
	return nil
}

// randomRequest fits a context of that many tokens.
func randomRequest(r *rand.Rand, context int) seq.Request {
	q := ask(1+r.IntN(context/2), make([]int32, 1+r.IntN(context/2))...)
	for i := range q.Prompt {
		q.Prompt[i] = int32(r.IntN(oracleVocab))
	}
	if r.IntN(2) == 0 {
		q.Sampling = seq.Sampling{Temperature: 1, TopP: 0.9, TopK: 12, RepetitionPenalty: 1.2, PresencePenalty: 0.1, FrequencyPenalty: 0.2, Seed: r.Uint64(),
			LogitBias: []seq.Bias{{Token: int32(r.IntN(oracleVocab)), Value: float32(r.IntN(5))}}}
	}
	if r.IntN(2) == 0 {
		q.Stop = []int32{int32(r.IntN(oracleVocab)), int32(r.IntN(oracleVocab))}
		q.MinTokens = r.IntN(q.MaxTokens + 1)
	}
	if r.IntN(2) == 0 {
		q.Logprobs = r.IntN(4)
	}
	if q.Echo = r.IntN(3) == 0; q.Echo && r.IntN(2) == 0 {
		q.MaxTokens, q.MinTokens = 0, 0
	}
	return q
}

// TestRandomTrafficEqualsOneByOne sends random requests through random small engines, some of them canceled in several
// ways, and holds each text against the oracle's. The scripted model checks every step's memory.
func TestRandomTrafficEqualsOneByOne(t *testing.T) {
	preempted, canceled := int64(0), int64(0)
	eachRouting(t, func(t *testing.T, w routing) {
		p, c := randomTraffic(t, w)
		preempted, canceled = preempted+p, canceled+c
	})
	if preempted == 0 || canceled == 0 {
		t.Errorf("%d preemptions, %d canceled: this traffic proves little", preempted, canceled)
	}
}

// randomTraffic says how often something was preempted and canceled, which depends on when requests come: on a slow machine one after the other.
func randomTraffic(t *testing.T, w routing) (preempted, canceled int64) {
	for seed := range uint64(25) {
		r := rand.New(rand.NewPCG(seed, 9))
		limits := exec.Limits{
			Limits:   plan.Limits{Rows: int64(1 + r.IntN(12)), Seqs: int64(1 + r.IntN(6)), Outs: int64(1 + r.IntN(8)), PageSize: int64(1 + r.IntN(5)), Pages: 30},
			NumSlots: r.IntN(2) * (1 + r.IntN(6)),
		}
		context := 12 + r.IntN(20)
		limits.NumPages = context/int(limits.PageSize) + 1 + r.IntN(20)
		e, err := New(w.runner(script.Options{Vocab: oracleVocab, Limits: limits, Logits: noise}), Options{MaxQueue: 1000, Sync: w.sync})
		if err != nil {
			t.Fatal(err)
		}
		var readers sync.WaitGroup
		for range 30 {
			q, fate := randomRequest(r, e.Context()-1), r.IntN(4)
			patience := time.Duration(r.IntN(2000)) * time.Microsecond
			ctx, cancel := contextFor(fate, patience)
			s, err := e.Submit(ctx, q)
			if fate == 0 && diag.Is(err, diag.Canceled) {
				cancel()
				continue
			}
			if err != nil {
				t.Fatalf("seed %d: %+v: %v", seed, q, err)
			}
			if fate == 1 {
				time.AfterFunc(patience, s.Close)
			}
			readers.Go(func() {
				defer cancel()
				got := tolerant(s)
				if err := diff(got, oracle(t, q)); err != nil {
					t.Errorf("seed %d, %+v, request %+v: %v", seed, limits, q, err)
				}
			})
		}
		readers.Wait()
		preempted += e.Metrics().Preemptions.Load()
		canceled += e.Metrics().Finished[seq.Canceled].Load()
		if err := e.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		if st := e.Stats(); st.Running+st.Waiting+st.PagesUsed+st.SlotsUsed != 0 {
			t.Errorf("seed %d: %+v", seed, st)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return preempted, canceled
}

// contextFor is a context that ends after patience when fate is 0.
func contextFor(fate int, patience time.Duration) (context.Context, context.CancelFunc) {
	if fate == 0 {
		return context.WithTimeout(context.Background(), patience)
	}
	return context.WithCancel(context.Background())
}

// tolerant reads a stream that may be closed under it: then it ended as canceled.
func tolerant(s *Stream) (a answer) {
	for {
		ev, err := s.Next(context.Background())
		if err != nil {
			a.end.Finish = seq.Canceled
			return
		}
		a.prompt = append(a.prompt, ev.Prompt...)
		a.tokens = append(a.tokens, ev.Tokens...)
		if ev.Finish != seq.Running {
			a.end = ev
			return
		}
	}
}
