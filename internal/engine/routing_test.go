// SPDX-License-Identifier: MIT OR Apache-2.0

package engine

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/engine/script"
	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/kv"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/seq"
	"github.com/metrale/metrale/internal/telemetry"
)

// routing is a way in which tokens are drawn and come back.
type routing struct {
	name   string
	device bool // the device draws
	sync   bool
}

var routings = []routing{{"host", false, true}, {"sync", true, true}, {"async", true, false}}

// eachRouting runs a test in all of them.
func eachRouting(t *testing.T, f func(t *testing.T, w routing)) {
	for _, w := range routings {
		t.Run(w.name, func(t *testing.T) { f(t, w) })
	}
}

// runner is a scripted model.
func (w routing) runner(so script.Options) exec.Runner {
	if w.device {
		return script.NewDrawer(so)
	}
	return script.New(so)
}

// engine is an engine over a scripted model, closed at the end of the test.
func (w routing) engine(t testing.TB, so script.Options, o Options) *Engine {
	t.Helper()
	o.Sync = w.sync
	e, err := New(w.runner(so), o)
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

// driven is a device thread that the test drives.
func (w routing) driven(t testing.TB, r exec.Runner, o Options) *device {
	t.Helper()
	cfg, err := config(r.Limits(), o).Fit()
	if err != nil {
		t.Fatal(err)
	}
	e := &Engine{cfg: cfg, runner: r, metrics: &telemetry.Engine{}, start: time.Now(), wake: make(chan struct{}, 1)}
	if w.device {
		e.drawer, e.cfg.Ahead = r.(exec.Drawer), !w.sync
	}
	d := newDevice(e)
	t.Cleanup(d.router.close)
	return d
}

// fill submits n long requests that nobody reads.
func (d *device) fill(t testing.TB, n, tokens int) {
	for range n {
		p := ask(tokens, 1, 2, 3)
		p.Sampling = seq.Sampling{Temperature: 1, TopP: 0.9, TopK: 20, RepetitionPenalty: 1.1}
		s := submit(t, d.Engine, p)
		s.ready.Tokens = make([]seq.Token, 0, tokens)
	}
}

func TestTurnDoesNotAllocate(t *testing.T) {
	if kv.Invariants {
		t.Skip("assertions allocate")
	}
	eachRouting(t, func(t *testing.T, w routing) {
		d := w.driven(t, w.runner(script.Options{Trust: true, Limits: exec.Limits{Limits: plan.Limits{Pages: 1000}}}), Options{})
		d.fill(t, 20, 10_000)
		for range 270 { // histories double at 256 tokens, and next at 512
			d.turn()
		}
		if n := testing.AllocsPerRun(100, func() { d.turn() }); n != 0 {
			t.Errorf("%v allocations per step", n)
		}
	})
}

// TestTheNextStepStartsBeforeTokensAreSeen: the host takes 0.4 s of every step and the device 1 s. They add up when tokens are
// awaited, and not when the next step is decided ahead.
func TestTheNextStepStartsBeforeTokensAreSeen(t *testing.T) {
	for _, c := range []struct {
		w    routing
		want time.Duration // of 10 tokens
	}{{routings[1], 14 * time.Second}, {routings[2], 10*time.Second + 400*time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			r := c.w.runner(script.Options{Delay: time.Second, Fault: func(int) error { time.Sleep(400 * time.Millisecond); return nil }}).(*script.Drawer)
			e, err := New(r, Options{Sync: c.w.sync})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			if a := collect(t, submit(t, e, ask(10, 1))); len(a.tokens) != 10 {
				t.Errorf("%s: %+v", c.w.name, a)
			}
			if took := time.Since(began); took != c.want {
				t.Errorf("%s: %v, want %v", c.w.name, took, c.want)
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			if fed := map[bool]int{true: 0, false: 9}[c.w.sync]; r.Fed != fed || r.Steps() != 10 {
				t.Errorf("%s: %d steps, %d rows were fed, want 10 and %d", c.w.name, r.Steps(), r.Fed, fed)
			}
		})
	}
}

// TestStopsAreSeenAStepLate: the row behind a stop token is computed for nothing, and its place is free afterwards.
func TestStopsAreSeenAStepLate(t *testing.T) {
	w := routings[2]
	r := w.runner(script.Options{}).(*script.Drawer)
	e, err := New(r, Options{MaxBatch: 1})
	if err != nil {
		t.Fatal(err)
	}
	stops, next := ask(50, 1), ask(3, 9)
	stops.Stop = []int32{5}
	a, b := submit(t, e, stops), submit(t, e, next)
	if got := collect(t, a); !slices.Equal(got.ids(), []int32{2, 3, 4}) || got.end.StopToken != 5 {
		t.Errorf("%+v", got)
	}
	if got := collect(t, b); !slices.Equal(got.ids(), []int32{10, 11, 12}) {
		t.Errorf("%+v", got)
	}
	nothingHeld(t, e)
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if r.Steps() != 5+3 || r.Deepest != 2 {
		t.Errorf("%d steps, want 4 to the stop, 1 for nothing, 3 of the other; at most %d were under way", r.Steps(), r.Deepest)
	}
}

// TestWhatADeviceCannotDrawIsRefused names the field. Stop tokens count where they are banned at first.
func TestWhatADeviceCannotDrawIsRefused(t *testing.T) {
	e := routings[2].engine(t, script.Options{Vocab: 5000}, Options{})
	request := func(logprobs, biases, stops, least int) seq.Request {
		r := ask(5, 1)
		r.Logprobs, r.MinTokens = logprobs, least
		for i := range biases {
			r.Sampling.LogitBias = append(r.Sampling.LogitBias, seq.Bias{Token: int32(i)})
		}
		for i := range stops {
			r.Stop = append(r.Stop, int32(i))
		}
		return r
	}
	const edits = exec.MaxEdits
	for _, c := range []struct {
		r     seq.Request
		param string // "": it is drawn
	}{
		{request(exec.MaxBest, edits, 0, 0), ""},
		{request(exec.MaxBest+1, 0, 0, 0), "logprobs"},
		{request(-1, edits+1, 0, 0), "logit_bias"},
		{request(-1, edits+1, 1, 1), "logit_bias"},
		{request(-1, edits, 0, 1), ""},
		{request(-1, edits, 1, 1), "stop"},
		{request(-1, 0, edits, 1), ""},
		{request(-1, 0, edits+1, 1), "stop"},
		{request(-1, edits, edits+1, 0), ""},
	} {
		err := e.Check(&c.r)
		if d, ok := diag.As(err); c.param == "" && err != nil || c.param != "" && (!ok || d.Code != diag.Invalid || d.Param != c.param) {
			t.Errorf("%d biases, %d stop tokens, min_tokens %d: %v, want a fault of %q", len(c.r.Sampling.LogitBias), len(c.r.Stop), c.r.MinTokens, err, c.param)
		}
		if c.param != "" {
			continue
		}
		s := submit(t, e, c.r) // and it has a seat
		if got := collect(t, s); got.end.Finish == seq.Failed {
			t.Errorf("%+v", got.end)
		}
	}
}
