// SPDX-License-Identifier: MIT OR Apache-2.0

package sched

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/seq"
)

var update = flag.Bool("update", false, "rewrite the decisions in testdata")

// TestStories plays testdata/*.txtar. A file is a title line "-- title --" per story and then its lines: what happens, and
// after "> " what the scheduler says, rewritten by -update.
//
//	config page_size=4 pages=8 ... ahead    sizes; defaults are in story.config. ahead: tokens come a step late
//	submit 1 prompt=10 max=2 stop=7 echo    queued for the next step
//	cancel 1 | fail 1
//	token 1 7                               what 1 draws in the next step instead of 50
//	step [n]                                n steps, the last one's decision is printed
//	end                                     steps until nothing is left
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var got strings.Builder
		var s *story
		for n, line := range strings.Split(strings.TrimSuffix(string(src), "\n"), "\n") {
			if strings.HasPrefix(line, "> ") {
				continue
			}
			got.WriteString(line + "\n")
			if strings.HasPrefix(line, "-- ") {
				s = newStory()
				continue
			}
			if line == "" || strings.HasPrefix(line, "#") {
				continue
			}
			if err := s.do(strings.Fields(line)); err != nil {
				t.Fatalf("%s:%d: %v", file, n+1, err)
			}
			if out := strings.TrimSuffix(s.out.String(), "\n"); out != "" {
				got.WriteString("> " + strings.ReplaceAll(out, "\n", "\n> ") + "\n")
			}
			s.out.Reset()
		}
		if *update {
			if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want := strings.Split(string(src), "\n")
		for i, line := range strings.Split(got.String(), "\n") {
			if i >= len(want) || line != want[i] {
				t.Errorf("%s:%d: %s", file, i+1, line)
				break
			}
		}
	}
}

type story struct {
	cfg    Config
	s      *Scheduler
	clock  int64
	events []Event
	late   []Event // with ahead: tokens of the step under way
	tokens map[seq.ID]int32
	out    strings.Builder
}

func newStory() *story {
	return &story{
		cfg:    Config{PageSize: 4, Pages: 16, Rows: 8, Outs: 8, Prefill: 8, Batch: 4, Queue: 4, Context: 64, Vocab: 1000},
		tokens: map[seq.ID]int32{},
	}
}

func (s *story) do(words []string) error {
	id := seq.ID(0)
	if len(words) > 1 {
		n, _ := strconv.Atoi(words[1])
		id = seq.ID(n)
	}
	switch words[0] {
	case "config":
		return s.config(words[1:])
	case "submit":
		r, err := request(words[2:])
		s.events = append(s.events, Event{Kind: Submit, ID: id, At: s.clock + 1, Request: r})
		return err
	case "cancel":
		s.events = append(s.events, Event{Kind: Cancel, ID: id})
	case "fail":
		s.events = append(s.events, Event{Kind: Fail, ID: id, Err: errors.New("it broke")})
	case "token":
		n, err := strconv.Atoi(words[2])
		s.tokens[id] = int32(n)
		return err
	case "step":
		for range max(1, int(id)) {
			s.out.Reset()
			if err := s.step(); err != nil {
				return err
			}
		}
	case "end":
		for steps := 0; ; steps++ {
			if err := s.step(); err != nil {
				return err
			}
			if u := s.s.Usage(); u.Running+u.Waiting == 0 {
				return nil
			}
			if steps > 1000 {
				return errors.New("it does not end")
			}
		}
	default:
		return fmt.Errorf("unknown command %q", words[0])
	}
	return nil
}

func (s *story) config(words []string) error {
	fields := map[string]*int{"page_size": &s.cfg.PageSize, "pages": &s.cfg.Pages, "slots": &s.cfg.Slots, "rows": &s.cfg.Rows,
		"outs": &s.cfg.Outs, "prefill": &s.cfg.Prefill, "batch": &s.cfg.Batch, "queue": &s.cfg.Queue, "context": &s.cfg.Context}
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		n, err := strconv.Atoi(v)
		if w == "ahead" {
			s.cfg.Ahead = true
			continue
		}
		if err != nil || fields[k] == nil {
			return fmt.Errorf("%q", w)
		}
		*fields[k] = n
	}
	return nil
}

// request reads the words of a submit.
func request(words []string) (*seq.Request, error) {
	r := &seq.Request{Limits: seq.Limits{MaxTokens: 4}, Logprobs: -1, Sampling: seq.Greedy()}
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		n, err := strconv.Atoi(v)
		switch {
		case k == "echo":
			r.Echo, r.Logprobs = true, 0
		case err != nil:
			return nil, fmt.Errorf("%q", w)
		case k == "prompt":
			for i := range n {
				r.Prompt = append(r.Prompt, int32(i))
			}
		case k == "max":
			r.MaxTokens = n
		case k == "min":
			r.MinTokens = n
		case k == "stop":
			r.Stop = append(r.Stop, int32(n))
		default:
			return nil, fmt.Errorf("%q", w)
		}
	}
	return r, nil
}

// step takes a step, prints it and queues its tokens.
func (s *story) step() error {
	if s.s == nil {
		cfg, err := s.cfg.Fit()
		if err != nil {
			return err
		}
		s.s = New(cfg)
	}
	s.clock++
	d := s.s.Step(s.clock, s.events)
	s.events = append(s.events[:0], s.late...)
	s.late = s.late[:0]
	for _, e := range d.Ends {
		fmt.Fprintf(&s.out, "end %d %v", e.ID, e.Finish)
		if e.StopToken >= 0 {
			fmt.Fprintf(&s.out, " by token %d", e.StopToken)
		}
		if e.Err != nil {
			fmt.Fprintf(&s.out, " %v: %v", diag.CodeOf(e.Err), e.Err)
		}
		s.out.WriteString("\n")
	}
	for _, id := range d.Preempted {
		fmt.Fprintf(&s.out, "preempt %d\n", id)
	}
	for _, st := range d.Started {
		fmt.Fprintf(&s.out, "start %d after %d\n", st.ID, st.Waited)
	}
	for _, w := range d.Work {
		fmt.Fprintf(&s.out, "work %d rows %d..%d outs %d pages %v", w.ID, w.First, w.First+len(w.Tokens)-1, w.Outs, w.Pages)
		if w.Slot >= 0 {
			fmt.Fprintf(&s.out, " slot %d", w.Slot)
		}
		if w.Fresh {
			s.out.WriteString(" fresh")
		}
		if w.Tokens[len(w.Tokens)-1] == Unknown {
			s.out.WriteString(" fed")
		}
		if w.Sample {
			t, ok := s.tokens[w.ID]
			if !ok {
				t = 50
			}
			delete(s.tokens, w.ID)
			fmt.Fprintf(&s.out, " -> %d", t)
			if e := (Event{Kind: Token, ID: w.ID, Token: t}); s.cfg.Ahead {
				s.late = append(s.late, e)
			} else {
				s.events = append(s.events, e)
			}
		}
		s.out.WriteString("\n")
	}
	u := s.s.Usage()
	fmt.Fprintf(&s.out, "used %d running, %d waiting, %d pages, %d slots\n", u.Running, u.Waiting, u.Pages, u.Slots)
	return s.s.verify()
}
