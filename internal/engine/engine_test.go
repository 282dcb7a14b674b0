// SPDX-License-Identifier: MIT OR Apache-2.0

package engine

import (
	"context"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/engine/script"
	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/seq"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newEngine is one whose host draws.
func newEngine(t testing.TB, so script.Options, o Options) *Engine {
	t.Helper()
	return routings[0].engine(t, so, o)
}

// ask is a greedy request.
func ask(max int, prompt ...int32) seq.Request {
	return seq.Request{Prompt: prompt, Limits: seq.Limits{MaxTokens: max}, Sampling: seq.Greedy(), Logprobs: -1}
}

// answer is everything that a stream gives.
type answer struct {
	tokens []seq.Token
	prompt []seq.Token
	end    seq.Event
}

func (a answer) ids() (ids []int32) {
	for _, t := range a.tokens {
		ids = append(ids, t.ID)
	}
	return
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
		a.tokens = append(a.tokens, ev.Tokens...)
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

// nothingHeld fails the test when anything is in use.
func nothingHeld(t *testing.T, e *Engine) {
	t.Helper()
	if st := e.Stats(); st.Running+st.Waiting+st.PagesUsed+st.SlotsUsed != 0 {
		t.Errorf("still in use: %+v", st)
	}
}

func TestHowSequencesEnd(t *testing.T) {
	eachRouting(t, func(t *testing.T, w routing) {
		e := w.engine(t, script.Options{}, Options{})
		stop := func(r seq.Request, min int, tokens ...int32) seq.Request {
			r.Stop, r.MinTokens = tokens, min
			return r
		}
		for _, c := range []struct {
			name string
			r    seq.Request
			want []int32
			end  seq.Finish
			by   int32
		}{
			{"by length", ask(5, 10, 11, 12), []int32{13, 14, 15, 16, 17}, seq.Length, -1},
			{"by a stop token, which is not part of the text", stop(ask(9, 1), 0, 7, 4), []int32{2, 3}, seq.Stopped, 4},
			{"by a stop token at once", stop(ask(9, 1), 0, 2), nil, seq.Stopped, 2},
			{"by a stop token in the last place", stop(ask(3, 1), 0, 4), []int32{2, 3}, seq.Stopped, 4},
			// The scripted model gives every other token the same logit, so 0 is what is left when 3 is banned.
			{"not by a stop token before min_tokens, which cannot be drawn", stop(ask(4, 1), 3, 3), []int32{2, 0, 1, 2}, seq.Length, -1},
		} {
			a := collect(t, submit(t, e, c.r))
			if !slices.Equal(a.ids(), c.want) || a.end.Finish != c.end || a.end.StopToken != c.by {
				t.Errorf("%s: %v %+v", c.name, a.ids(), a.end)
			}
		}
		nothingHeld(t, e)
	})
}

func TestEchoAndLogprobs(t *testing.T) {
	eachRouting(t, func(t *testing.T, w routing) {
		e := w.engine(t, script.Options{}, Options{})
		r := ask(2, 5, 6, 9)
		r.Echo, r.Logprobs = true, 2
		a := collect(t, submit(t, e, r))
		if len(a.prompt) != 3 || !math.IsNaN(float64(a.prompt[0].Logprob)) || a.prompt[0].Top != nil {
			t.Fatalf("%+v", a.prompt)
		}
		likely, unlikely := a.prompt[1], a.prompt[2] // 6 follows 5, 9 does not follow 6
		if likely.Top[0].Token != 6 || likely.Logprob != likely.Top[0].Value || likely.Logprob < -1e-3 || likely.Top[1].Token != 0 {
			t.Errorf("%+v", likely)
		}
		if unlikely.ID != 9 || unlikely.Top[0].Token != 7 || unlikely.Logprob > -19 {
			t.Errorf("%+v", unlikely)
		}
		if len(a.tokens) != 2 || a.tokens[0].ID != 10 || len(a.tokens[0].Top) != 2 || a.tokens[0].Logprob < -1e-3 {
			t.Errorf("%+v", a.tokens)
		}
		r.MaxTokens, r.Logprobs = 0, -1
		if a := collect(t, submit(t, e, r)); len(a.prompt) != 3 || len(a.tokens) != 0 || a.end.Finish != seq.Length {
			t.Errorf("%+v", a)
		}
	})
}

func TestRefusedBeforeAnyWork(t *testing.T) {
	eachRouting(t, func(t *testing.T, w routing) {
		e := w.engine(t, script.Options{Fault: func(int) error { t.Error("a step ran"); return nil }}, Options{MaxContext: 50, Vocab: 200})
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		hot := ask(5, 1)
		hot.Sampling.Temperature = -1
		for _, c := range []struct {
			name  string
			ctx   context.Context
			r     seq.Request
			code  diag.Code
			param string
		}{
			{"empty prompt", t.Context(), ask(5), diag.Invalid, "prompt"},
			{"no such token", t.Context(), ask(5, 1, 200), diag.Invalid, "prompt"},
			{"nothing to do", t.Context(), ask(0, 1), diag.Invalid, "max_tokens"},
			{"policy", t.Context(), hot, diag.Invalid, "temperature"},
			{"zero policy", t.Context(), seq.Request{Prompt: []int32{1}, Limits: seq.Limits{MaxTokens: 1}}, diag.Invalid, "top_p"},
			{"prompt fills the context", t.Context(), ask(1, make([]int32, 50)...), diag.TooLong, "prompt"},
			{"prompt and text exceed it", t.Context(), ask(11, make([]int32, 40)...), diag.TooLong, "max_tokens"},
			{"enormous", t.Context(), ask(math.MaxInt, 1), diag.TooLong, "max_tokens"},
			{"the caller is gone", gone, ask(5, 1), diag.Canceled, ""},
		} {
			_, err := e.Submit(c.ctx, c.r)
			if d, ok := diag.As(err); !ok || d.Code != c.code || d.Param != c.param {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		if e.Context() != 50 {
			t.Errorf("context %d", e.Context())
		}
	})
}

// TestContextIsWhatThePoolHolds: a prompt that could never get its pages is refused, though the model would take it, and
// does not stand in the way of others.
func TestContextIsWhatThePoolHolds(t *testing.T) {
	eachRouting(t, func(t *testing.T, w routing) {
		limits := exec.Limits{Limits: plan.Limits{PageSize: 16, Pages: 1000}, NumPages: 4}
		e := w.engine(t, script.Options{Limits: limits}, Options{})
		if _, err := e.Submit(t.Context(), ask(1, make([]int32, 64)...)); !diag.Is(err, diag.TooLong) {
			t.Error(err)
		}
		if a := collect(t, submit(t, e, ask(60, 1, 2, 3, 4))); len(a.tokens) != 60 {
			t.Error(a.end)
		}
	})
}

func TestOverloadIsTold(t *testing.T) {
	eachRouting(t, func(t *testing.T, w routing) {
		synctest.Test(t, func(t *testing.T) {
			e := w.engine(t, script.Options{Delay: time.Second}, Options{MaxBatch: 2, MaxQueue: 3})
			var streams []*Stream
			for range 5 {
				streams = append(streams, submit(t, e, ask(3, 1)))
			}
			if _, err := e.Submit(t.Context(), ask(3, 1)); !diag.Is(err, diag.Overloaded) {
				t.Fatal(err)
			}
			time.Sleep(1500 * time.Millisecond)
			if st := e.Stats(); st.Running != 2 || st.Waiting != 3 {
				t.Errorf("%+v", st)
			}
			collect(t, streams[0])
			streams = append(streams, submit(t, e, ask(3, 1))) // who reads an end finds its place free
			for _, s := range streams[1:] {
				collect(t, s)
			}
		})
	})
}

func TestCancelFreesEverythingWithinTwoSteps(t *testing.T) {
	eachRouting(t, func(t *testing.T, w routing) {
		synctest.Test(t, func(t *testing.T) {
			e := w.engine(t, script.Options{Delay: time.Second}, Options{})
			ctx, cancel := context.WithCancel(t.Context())
			canceled, err := e.Submit(ctx, ask(1000, 1, 2, 3))
			if err != nil {
				t.Fatal(err)
			}
			closed := submit(t, e, ask(1000, 1, 2, 3))
			time.Sleep(3500 * time.Millisecond)
			if st := e.Stats(); st.Running != 2 || st.PagesUsed != 2 {
				t.Fatalf("%+v", st)
			}
			cancel()
			closed.Close()
			closed.Close()
			before := e.Stats().Steps
			time.Sleep(10 * time.Second)
			nothingHeld(t, e)
			if st := e.Stats(); st.Steps > before+2 {
				t.Fatalf("%+v, %d steps before", st, before)
			}
			if a := collect(t, canceled); a.end.Finish != seq.Canceled || len(a.tokens) == 0 {
				t.Errorf("%+v", a)
			}
			if _, err := closed.Next(t.Context()); err != io.EOF {
				t.Error(err)
			}
		})
	})
}

// TestClosingAtRandomLeavesNothing closes many streams at random moments (prompt, text, queue, never read).
func TestClosingAtRandomLeavesNothing(t *testing.T) {
	eachRouting(t, func(t *testing.T, w routing) {
		synctest.Test(t, func(t *testing.T) {
			limits := exec.Limits{Limits: plan.Limits{Rows: 16, Seqs: 8, PageSize: 4, Pages: 20}, NumPages: 40, NumSlots: 8}
			e := w.engine(t, script.Options{Limits: limits, Delay: time.Millisecond}, Options{MaxQueue: 300})
			r := rand.New(rand.NewPCG(1, 1))
			for range 200 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+r.IntN(400))*time.Millisecond)
				defer cancel()
				s, err := e.Submit(ctx, ask(30, make([]int32, 1+r.IntN(40))...))
				if err != nil {
					t.Fatal(err)
				}
				if r.IntN(2) == 0 {
					time.AfterFunc(time.Duration(r.IntN(400))*time.Millisecond, s.Close)
				}
				time.Sleep(time.Duration(r.IntN(2000)) * time.Microsecond)
			}
			time.Sleep(time.Second)
			nothingHeld(t, e)
			steps := e.Stats().Steps
			time.Sleep(time.Second)
			if e.Stats().Steps != steps {
				t.Error("steps run for nobody")
			}
		})
	})
}

// TestNobodyReads: a stream without a reader holds no one up, and gives all at once afterwards.
func TestNobodyReads(t *testing.T) {
	eachRouting(t, func(t *testing.T, w routing) {
		synctest.Test(t, func(t *testing.T) {
			e := w.engine(t, script.Options{Delay: time.Millisecond}, Options{})
			lazy := submit(t, e, ask(500, 1))
			if a := collect(t, submit(t, e, ask(700, 2))); len(a.tokens) != 700 {
				t.Fatal(a.end)
			}
			nothingHeld(t, e)
			ev, err := lazy.Next(t.Context())
			if err != nil || len(ev.Tokens) != 500 || ev.Finish != seq.Length {
				t.Fatalf("%d tokens, %v, %v", len(ev.Tokens), ev.Finish, err)
			}
		})
	})
}

// TestEventStaysValidUntilTheNextCall keeps an event while more tokens come.
func TestEventStaysValidUntilTheNextCall(t *testing.T) {
	eachRouting(t, func(t *testing.T, w routing) {
		synctest.Test(t, func(t *testing.T) {
			e := w.engine(t, script.Options{Delay: time.Second}, Options{})
			s := submit(t, e, ask(20, 1))
			for next := int32(2); next < 22; {
				ev, err := s.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(3500 * time.Millisecond)
				for _, tok := range ev.Tokens {
					if tok.ID != next {
						t.Fatalf("%d became %d", next, tok.ID)
					}
					next++
				}
			}
		})
	})
}

// TestReadersComeBeforeTheNextStep: on one processor that is never idle, what step n gave is received before step n+2 begins.
func TestReadersComeBeforeTheNextStep(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const tokens = 2000
	var streams [3]*Stream
	var received [len(streams)]atomic.Int64
	late := 0
	d := routings[0].driven(t, script.New(script.Options{Limits: exec.Limits{Limits: plan.Limits{Pages: 256}}, Fault: func(int) error {
		for i, s := range streams {
			if int(received[i].Load()) < s.text-1 { // the newest is what the last step gave
				late++
			}
		}
		return nil
	}}), Options{})
	var all sync.WaitGroup
	for i := range streams {
		streams[i] = submit(t, d.Engine, ask(tokens, 1))
		all.Go(func() {
			for end := seq.Running; end == seq.Running; {
				ev, err := streams[i].Next(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				received[i].Add(int64(len(ev.Tokens)))
				end = ev.Finish
			}
		})
	}
	for d.turn() {
	}
	all.Wait()
	for i := range received {
		if n := received[i].Load(); n != tokens {
			t.Errorf("reader %d has %d tokens", i, n)
		}
	}
	if late > 0 {
		t.Errorf("%d times a step began before a reader had what the one before the last gave", late)
	}
}

func TestNextCanBeInterrupted(t *testing.T) {
	eachRouting(t, func(t *testing.T, w routing) {
		synctest.Test(t, func(t *testing.T) {
			e := w.engine(t, script.Options{Delay: time.Second}, Options{})
			s := submit(t, e, ask(3, 1))
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if _, err := s.Next(ctx); !diag.Is(err, diag.Canceled) || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			if a := collect(t, s); len(a.tokens) != 3 {
				t.Fatal(a)
			}
		})
	})
}

// TestIdleEngineSleeps: synctest.Wait returns only when the device thread is blocked for good.
func TestIdleEngineSleeps(t *testing.T) {
	eachRouting(t, func(t *testing.T, w routing) {
		synctest.Test(t, func(t *testing.T) {
			e := w.engine(t, script.Options{}, Options{})
			synctest.Wait()
			collect(t, submit(t, e, ask(3, 1)))
			synctest.Wait()
			if st := e.Stats(); st.Steps != 3 {
				t.Errorf("%+v", st)
			}
		})
	})
}

func TestDrainFinishesWhatRuns(t *testing.T) {
	eachRouting(t, func(t *testing.T, w routing) {
		synctest.Test(t, func(t *testing.T) {
			e := w.engine(t, script.Options{Delay: time.Second}, Options{})
			s := submit(t, e, ask(5, 1))
			short, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := e.Drain(short); !diag.Is(err, diag.Canceled) {
				t.Error(err)
			}
			if _, err := e.Submit(t.Context(), ask(5, 1)); !diag.Is(err, diag.Overloaded) {
				t.Error(err)
			}
			if err := e.Drain(t.Context()); err != nil {
				t.Error(err)
			}
			if a := collect(t, s); a.end.Finish != seq.Length || len(a.tokens) != 5 {
				t.Errorf("%+v", a)
			}
			if err := e.Drain(t.Context()); err != nil {
				t.Error(err)
			}
		})
	})
}

func TestCloseEndsWhatRuns(t *testing.T) {
	eachRouting(t, func(t *testing.T, w routing) {
		synctest.Test(t, func(t *testing.T) {
			e, err := New(w.runner(script.Options{Delay: time.Second}), Options{MaxBatch: 1, Sync: w.sync})
			if err != nil {
				t.Fatal(err)
			}
			running, waiting := submit(t, e, ask(50, 1)), submit(t, e, ask(50, 1))
			time.Sleep(2500 * time.Millisecond)
			for range 2 {
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			}
			for _, s := range []*Stream{running, waiting} {
				if a := collect(t, s); a.end.Finish != seq.Failed || !diag.Is(a.end.Err, diag.Overloaded) {
					t.Errorf("%+v", a.end)
				}
			}
			nothingHeld(t, e)
			if _, err := e.Submit(t.Context(), ask(5, 1)); !diag.Is(err, diag.Overloaded) {
				t.Error(err)
			}
		})
	})
}

// TestFaultOfOneStep: an error or a panic of a step fails its sequences; one that waits then runs as if nothing was.
func TestFaultOfOneStep(t *testing.T) {
	eachRouting(t, func(t *testing.T, w routing) {
		for name, fault := range map[string]func() error{
			"error": func() error { return diag.Errorf(diag.IO, "the link broke") },
			"panic": func() error { panic("index out of range") },
		} {
			e := w.engine(t, script.Options{Fault: func(step int) error {
				if step == 4 {
					return fault()
				}
				return nil
			}}, Options{MaxBatch: 1})
			hit, next := submit(t, e, ask(50, 1)), submit(t, e, ask(5, 1))
			a := collect(t, hit)
			if a.end.Finish != seq.Failed || a.end.Err == nil || len(a.tokens) != 4 {
				t.Errorf("%s: %+v", name, a)
			}
			if d, _ := diag.As(a.end.Err); name == "panic" && (d.Code != diag.Internal || strings.Contains(d.Error(), "index") || !strings.Contains(d.Detail(), "index")) {
				t.Errorf("%s: %v, %s", name, d, d.Detail())
			}
			if a := collect(t, next); a.end.Finish != seq.Length || !slices.Equal(a.ids(), []int32{2, 3, 4, 5, 6}) {
				t.Errorf("%s: %+v", name, a)
			}
			nothingHeld(t, e)
		}
	})
}

func TestLostDeviceIsForGood(t *testing.T) {
	eachRouting(t, func(t *testing.T, w routing) {
		e := w.engine(t, script.Options{Fault: func(step int) error {
			if step >= 2 {
				return diag.Errorf(diag.DeviceLost, "the device fell off the bus")
			}
			return nil
		}}, Options{MaxBatch: 1})
		for _, s := range []*Stream{submit(t, e, ask(50, 1)), submit(t, e, ask(50, 1))} {
			if a := collect(t, s); a.end.Finish != seq.Failed || !diag.Is(a.end.Err, diag.DeviceLost) {
				t.Errorf("%+v", a.end)
			}
		}
		select {
		case err := <-e.Lost():
			if !diag.Is(err, diag.DeviceLost) {
				t.Errorf("lost: %v", err)
			}
		default:
			t.Error("nobody is told that the device is lost")
		}
		if _, err := e.Submit(t.Context(), ask(5, 1)); !diag.Is(err, diag.DeviceLost) {
			t.Error(err)
		}
		if err := e.Drain(t.Context()); err != nil {
			t.Error(err)
		}
		nothingHeld(t, e)
	})
}

// TestBrokenRowFailsAlone: one sequence's logits have a NaN, its neighbours' have not.
func TestBrokenRowFailsAlone(t *testing.T) {
	eachRouting(t, func(t *testing.T, w routing) {
		e := w.engine(t, script.Options{Vocab: oracleVocab, Logits: func(h []int32, l []float32) {
			noise(h, l)
			if h[0] == 13 && len(h) == 5 {
				l[7] = float32(math.NaN())
			}
		}}, Options{})
		var streams []*Stream
		for i := range int32(20) {
			streams = append(streams, submit(t, e, ask(10, i)))
		}
		for i, s := range streams {
			a := collect(t, s)
			if i == 13 {
				if a.end.Finish != seq.Failed || !diag.Is(a.end.Err, diag.Internal) || len(a.tokens) != 4 {
					t.Errorf("%+v", a)
				}
				continue
			}
			if err := diff(a, oracle(t, ask(10, int32(i)))); err != nil {
				t.Error(i, err)
			}
		}
	})
}

// TestManyRowsAreSampledInParallel crosses the threshold from which workers sample too.
func TestManyRowsAreSampledInParallel(t *testing.T) {
	const vocab = 50_000
	e := newEngine(t, script.Options{Vocab: vocab}, Options{})
	var wg sync.WaitGroup
	for i := range int32(20) {
		s := submit(t, e, ask(20, vocab-10-i))
		wg.Go(func() {
			a := collect(t, s)
			for j, id := range a.ids() {
				if want := (vocab - 9 - i + int32(j)) % vocab; id != want {
					t.Errorf("%d: token %d is %d, want %d", i, j, id, want)
				}
			}
		})
	}
	wg.Wait()
}
