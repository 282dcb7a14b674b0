// SPDX-License-Identifier: MIT OR Apache-2.0

package engine

import (
	"context"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/metrale/metrale/internal/engine/script"
	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/seq"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newEngine is an engine over a scripted model, closed at the end of the test.
func newEngine(t testing.TB, so script.Options, o Options) *Engine {
	t.Helper()
	e, err := New(script.New(so), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// ask is a greedy request.
func ask(max int, prompt ...int32) seq.Request {
	return seq.Request{Prompt: prompt, Limits: seq.Limits{MaxTokens: max}, Sampling: seq.Greedy(), Logprobs: -1}
}

// answer is everything that a stream gives.
type answer struct {
	ids    []int32
	tokens []seq.Token
	prompt []seq.Token
	end    seq.Event
}

// collect reads a stream to its end.
func collect(t testing.TB, s *Stream) answer {
	t.Helper()
	var a answer
	for {
		ev, err := s.Next(context.Background())
		if err != nil {
			t.Fatalf("sequence %d: %v", s.ID(), err)
		}
		a.prompt = append(a.prompt, ev.Prompt...)
		for _, tok := range ev.Tokens {
			a.ids = append(a.ids, tok.ID)
			a.tokens = append(a.tokens, tok)
		}
		if ev.Finish != seq.Running {
			a.end = ev
			if _, err := s.Next(context.Background()); err != io.EOF {
				t.Fatalf("after the end: %v", err)
			}
			return a
		}
	}
}

func submit(t testing.TB, e *Engine, r seq.Request) *Stream {
	t.Helper()
	s, err := e.Submit(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestCountsToTheLimit(t *testing.T) {
	e := newEngine(t, script.Options{}, Options{})
	a := collect(t, submit(t, e, ask(5, 10, 11, 12)))
	if !slices.Equal(a.ids, []int32{13, 14, 15, 16, 17}) || a.end.Finish != seq.Length || a.end.StopToken != -1 {
		t.Fatalf("%v %+v", a.ids, a.end)
	}
}

func TestPoolTooSmallForAllStillGivesEveryoneTheirText(t *testing.T) {
	limits := exec.Limits{Limits: plan.Limits{Rows: 7, Seqs: 5, PageSize: 4, Pages: 10}, NumPages: 12, NumSlots: 5}
	e := newEngine(t, script.Options{Limits: limits}, Options{})
	var streams []*Stream
	for i := range int32(20) {
		streams = append(streams, submit(t, e, ask(20, i, i+1, i+2)))
	}
	for i, s := range streams {
		a := collect(t, s)
		for j, id := range a.ids {
			if id != int32(i+3+j) {
				t.Fatalf("sequence %d: %v", i, a.ids)
			}
		}
		if len(a.ids) != 20 || a.end.Finish != seq.Length {
			t.Fatalf("sequence %d: %v %+v", i, a.ids, a.end)
		}
	}
	if e.Metrics().Preemptions.Load() == 0 {
		t.Error("this test needs preemption")
	}
	if st := e.Stats(); st.PagesUsed != 0 || st.SlotsUsed != 0 || st.Running != 0 || st.Waiting != 0 {
		t.Errorf("%+v", st)
	}
}

func TestCancelFreesEverythingWithinTwoSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, script.Options{Delay: time.Second}, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := e.Submit(ctx, ask(1000, 1, 2, 3)); err != nil {
			t.Fatal(err)
		}
		closed := submit(t, e, ask(1000, 1, 2, 3))
		time.Sleep(3500 * time.Millisecond)
		if st := e.Stats(); st.Running != 2 || st.PagesUsed != 2 {
			t.Fatalf("%+v", st)
		}
		cancel()
		closed.Close()
		before := e.Stats().Steps
		time.Sleep(10 * time.Second)
		if st := e.Stats(); st.Running != 0 || st.PagesUsed != 0 || st.Steps > before+2 {
			t.Fatalf("%+v, %d steps before", st, before)
		}
	})
}
