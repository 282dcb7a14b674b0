// SPDX-License-Identifier: MIT OR Apache-2.0

package sched

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/kv"
	"github.com/metrale/metrale/internal/seq"
)

// chooser gives a number in [0, n).
type chooser func(n int) int

// TestRandomHistories lets chance submit, cancel, fail and draw, against an obvious account of what each sequence is owed.
func TestRandomHistories(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		play(t.Fatalf, func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "choice") })
	})
}

// TestManyHistories plays more of them, without shrinking.
func TestManyHistories(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 0))
		play(func(format string, args ...any) {
			t.Helper()
			t.Fatalf("seed %d: "+format, append([]any{seed}, args...)...)
		}, r.IntN)
	}
}

func FuzzStep(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{3, 2, 9, 1, 0, 4, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 1, 1, 1, 0, 0, 2, 0, 3})
	f.Add([]byte("the quick brown fox jumps over the lazy dog, many times, and over small pools"))
	f.Fuzz(func(t *testing.T, data []byte) {
		play(t.Fatalf, func(n int) int {
			if len(data) == 0 {
				return 0
			}
			b := data[0]
			data = data[1:]
			return int(b) % n
		})
	})
}

// account is what the world knows of a sequence.
type account struct {
	req     *seq.Request
	history []int32
	known   int // tokens of history that the scheduler was told
	done    int // rows computed since the last start
	echoed  int // prompt rows whose logits came
	ends    int
	end     seq.Finish
	gone    bool // canceled or failed by the world
	started bool
}

type world struct {
	fatalf    func(string, ...any)
	pick      chooser
	cfg       Config
	s         *Scheduler
	events    []Event
	late      []Event // tokens of the step under way
	seqs      map[seq.ID]*account
	lastID    seq.ID
	lastStart seq.ID
}

func play(fatalf func(string, ...any), pick chooser) {
	cfg := Config{
		PageSize: 1 + pick(4), Pages: 1 + pick(12), Slots: pick(2) * (1 + pick(4)), Rows: 1 + pick(10), Outs: 1 + pick(6),
		Prefill: 1 + pick(10), Batch: 1 + pick(5), Queue: pick(5), Context: 1 + pick(40), Vocab: 10, Ahead: pick(2) == 0,
	}
	cfg, err := cfg.Fit()
	if err != nil {
		fatalf("%v", err)
	}
	w := &world{fatalf: fatalf, pick: pick, cfg: cfg, s: New(cfg), seqs: map[seq.ID]*account{}}
	for range 5 + pick(40) {
		for range pick(3) {
			w.submit()
		}
		if pick(6) == 0 && w.lastID > 0 {
			w.kill()
		}
		w.step()
	}
	// Everything ends: no sequence has more rows to compute than this, however often it was preempted.
	for n := 0; w.left() > 0; n++ {
		if n > 100*(cfg.Batch+cfg.Queue)*(cfg.Context+1) {
			fatalf("%d sequences do not end with %+v", w.left(), cfg)
		}
		w.step()
	}
	if u := w.s.Usage(); u != (Usage{}) {
		fatalf("at the end %+v", u)
	}
}

func (w *world) left() (n int) {
	for _, a := range w.seqs {
		if a.ends == 0 {
			n++
		}
	}
	return
}

func (w *world) submit() {
	r := &seq.Request{Logprobs: -1}
	for range w.pick(w.cfg.Context + 2) {
		r.Prompt = append(r.Prompt, int32(w.pick(10)))
	}
	r.MaxTokens = w.pick(8)
	r.MinTokens = w.pick(3)
	if w.pick(3) == 0 {
		r.Stop = []int32{int32(w.pick(10)), int32(w.pick(10))}
	}
	if w.pick(3) == 0 {
		r.Echo, r.Logprobs = true, w.pick(2)-1
	}
	w.lastID++
	w.seqs[w.lastID] = &account{req: r, history: slices.Clone(r.Prompt), known: len(r.Prompt)}
	w.events = append(w.events, Event{Kind: Submit, ID: w.lastID, Request: r})
}

// kill cancels or fails any sequence, ended or not.
func (w *world) kill() {
	id := seq.ID(1 + w.pick(int(w.lastID)))
	e := Event{Kind: Cancel, ID: id}
	if w.pick(2) == 0 {
		e = Event{Kind: Fail, ID: id, Err: errors.New("fault")}
	}
	w.seqs[id].gone = true
	w.events = append(w.events, e)
}

func (w *world) step() {
	for _, e := range w.events {
		if e.Kind == Token {
			w.seqs[e.ID].known++
		}
	}
	d := w.s.Step(0, w.events)
	w.events = append(w.events[:0], w.late...)
	w.late = w.late[:0]
	if err := w.s.verify(); err != nil {
		w.fatalf("%v", err)
	}
	for _, e := range d.Ends {
		w.ended(e)
	}
	for _, id := range d.Preempted {
		w.seqs[id].done = 0
	}
	for _, st := range d.Started {
		if len(d.Preempted) > 0 {
			w.fatalf("%d starts while %v are put back", st.ID, d.Preempted)
		}
		if a := w.seqs[st.ID]; st.ID <= w.lastStart || a.started || a.ends > 0 {
			w.fatalf("%d starts after %d", st.ID, w.lastStart)
		}
		w.seqs[st.ID].started, w.lastStart = true, st.ID
	}
	w.work(d)
}

func (w *world) ended(e End) {
	a := w.seqs[e.ID]
	if a.ends++; a.ends > 1 {
		w.fatalf("%d ends again: %+v", e.ID, e)
	}
	a.end = e.Finish
	a.history = a.history[:a.known] // what was drawn after a stop token is for nothing
	text := len(a.history) - len(a.req.Prompt)
	switch e.Finish {
	case seq.Canceled:
		if !a.gone {
			w.fatalf("%d was not canceled", e.ID)
		}
	case seq.Failed:
		refused := diag.Is(e.Err, diag.Overloaded) || w.cfg.Check(a.req) != nil
		if a.gone == refused && !a.gone {
			w.fatalf("%d failed: %v", e.ID, e.Err)
		}
	case seq.Length:
		if text != a.req.MaxTokens {
			w.fatalf("%d ends with %d tokens of %d", e.ID, text, a.req.MaxTokens)
		}
	case seq.Stopped:
		last := a.history[len(a.history)-1]
		if e.StopToken != last || !slices.Contains(a.req.Stop, last) || text-1 < a.req.MinTokens {
			w.fatalf("%d stopped by %d, its last token is %d of %d, %+v", e.ID, e.StopToken, last, text, a.req.Limits)
		}
	}
	if e.Finish == seq.Length && a.req.Echo && a.req.Logprobs >= 0 && a.echoed != len(a.req.Prompt)-1 {
		w.fatalf("%d ends with %d rows echoed of %d", e.ID, a.echoed, len(a.req.Prompt)-1)
	}
}

// work checks the rows of a step and draws their tokens.
func (w *world) work(d *Decision) {
	rows, chunks, outs := 0, 0, 0
	pages := map[kv.Page]seq.ID{}
	slots := map[int32]seq.ID{}
	for i, k := range d.Work {
		a := w.seqs[k.ID]
		n := len(k.Tokens)
		rows, outs = rows+n, outs+k.Outs
		if n > 1 || len(a.history) == len(a.req.Prompt) {
			chunks += n
		}
		end := k.First + n
		switch {
		case a.ends > 0 || !a.started:
			w.fatalf("work for %d, which does not run", k.ID)
		case slices.ContainsFunc(d.Work[:i], func(o Work) bool { return o.ID == k.ID }):
			w.fatalf("%d has work twice", k.ID)
		case n == 0 || k.First != a.done || end > len(a.history) || !slices.Equal(k.Tokens, a.told()[k.First:end]):
			w.fatalf("%d: rows %d..%d %v, %d are done of %v", k.ID, k.First, end, k.Tokens, a.done, a.history)
		case k.Fresh != (a.done == 0) || (k.Slot != kv.NoSlot) != (w.cfg.Slots > 0):
			w.fatalf("%d: fresh %v after %d rows, slot %d", k.ID, k.Fresh, a.done, k.Slot)
		case len(k.Pages)*w.cfg.PageSize < end:
			w.fatalf("%d: %d rows in %d pages", k.ID, end, len(k.Pages))
		case k.Sample != (end == len(a.history)):
			w.fatalf("%d: sample %v at %d of %d", k.ID, k.Sample, end, len(a.history))
		}
		for _, p := range k.Pages {
			if by, ok := pages[p]; ok {
				w.fatalf("page %d of %d and %d", p, by, k.ID)
			}
			pages[p] = k.ID
		}
		if by, ok := slots[k.Slot]; ok && k.Slot != kv.NoSlot {
			w.fatalf("slot %d of %d and %d", k.Slot, by, k.ID)
		}
		slots[k.Slot] = k.ID
		a.done = end
		if err := a.outs(k); err != nil {
			w.fatalf("%d: %v", k.ID, err)
		}
		if k.Sample {
			t := int32(w.pick(10))
			a.history = append(a.history, t)
			e := Event{Kind: Token, ID: k.ID, Token: t}
			if w.cfg.Ahead {
				w.late = append(w.late, e)
			} else {
				w.events = append(w.events, e)
			}
		}
	}
	if rows > w.cfg.Rows || outs > w.cfg.Outs || chunks > w.cfg.Prefill || len(d.Work) > w.cfg.Batch {
		w.fatalf("%d rows, %d of chunks, %d outs, %d sequences; %+v", rows, chunks, outs, len(d.Work), w.cfg)
	}
	if oldest := w.oldest(); oldest > 0 && !w.waitsForTokens(oldest) && !slices.ContainsFunc(d.Work, func(k Work) bool { return k.ID == oldest }) {
		w.fatalf("the oldest, %d, has no work", oldest)
	}
}

// told is the history as the scheduler knows it.
func (a *account) told() []int32 {
	h := slices.Clone(a.history)
	for i := a.known; i < len(h); i++ {
		h[i] = Unknown
	}
	return h
}

// waitsForTokens says that a sequence has nothing to compute until the step under way is over.
func (w *world) waitsForTokens(id seq.ID) bool {
	a := w.seqs[id]
	last := len(a.history)-len(a.req.Prompt) >= a.req.MaxTokens
	return w.cfg.Ahead && (a.known < len(a.history) && last || a.req.MaxTokens == 0)
}

// outs follows which rows gave logits.
func (a *account) outs(k Work) error {
	first := k.First + len(k.Tokens) - k.Outs
	want := 0
	if k.Sample {
		want = 1
	}
	if last := len(a.req.Prompt) - 1; a.req.Echo && a.req.Logprobs >= 0 && a.echoed < last && a.done > a.echoed {
		if first != max(k.First, a.echoed) {
			return fmt.Errorf("logits from row %d, %d were echoed", first, a.echoed)
		}
		a.echoed = min(last, a.done)
		return nil
	}
	if k.Outs != want {
		return fmt.Errorf("%d outs, want %d", k.Outs, want)
	}
	return nil
}

// oldest is the first sequence that has not ended.
func (w *world) oldest() seq.ID {
	for id := seq.ID(1); id <= w.lastID; id++ {
		if a := w.seqs[id]; a.ends == 0 && !slices.ContainsFunc(w.events, func(e Event) bool { return e.Kind == Submit && e.ID == id }) {
			return id
		}
	}
	return 0
}
