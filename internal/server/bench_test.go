// SPDX-License-Identifier: MIT OR Apache-2.0

package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/metrale/metrale/internal/api/openai"
	"github.com/metrale/metrale/internal/engine"
	"github.com/metrale/metrale/internal/engine/script"
	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/seq"
)

// trusting is a model that costs next to nothing, with room for long sequences.
func trusting(streams int) rigOptions {
	return rigOptions{
		engine: engine.Options{MaxBatch: streams},
		script: script.Options{Trust: true, Limits: exec.Limits{Limits: plan.Limits{Rows: 512, Seqs: int64(streams), Outs: 512, Pages: 1 << 14}}},
	}
}

// stream reads streams of a model until their tokens are b.N.
func (r *rig) stream(b *testing.B, streams int) {
	const longest = 200_000
	for left := b.N; left > 0; left -= streams * longest {
		each := min(max(left/streams, 1), longest)
		var all sync.WaitGroup
		for range streams {
			all.Go(func() {
				body := fmt.Sprintf(`{"messages":[{"role":"user","content":"count"}],"temperature":0,"stream":true,"max_tokens":%d}`, each)
				resp, err := r.Client().Post(r.URL+chatPath, "application/json", strings.NewReader(body))
				if err != nil {
					b.Error(err)
					return
				}
				defer resp.Body.Close()
				if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != 200 {
					b.Error(resp.Status, err)
				}
			})
		}
		all.Wait()
	}
}

// BenchmarkStreamedToken is what everything above exec adds to a token when the model costs nothing: scheduler, sampler,
// engine, text, rendering, HTTP, and the client's end of the connection. Many tokens share a write.
func BenchmarkStreamedToken(b *testing.B) {
	for _, streams := range []int{1, 8} {
		b.Run(fmt.Sprintf("streams=%d", streams), func(b *testing.B) {
			r := newRig(b, trusting(streams))
			b.ReportAllocs()
			b.ResetTimer()
			r.stream(b, streams)
		})
	}
}

// BenchmarkFlushedToken is the server's part when each token is an event and a write to the connection of its own, as for
// a model that is slower than the network: text, rendering, HTTP, and the system call.
func BenchmarkFlushedToken(b *testing.B) {
	r := newRig(b, trusting(1))
	m := r.s.model.Load()
	handler := func(w http.ResponseWriter, req *http.Request) {
		x := &exchange{s: r.s, r: req, w: w, control: http.NewResponseController(w), begun: time.Now()}
		p := &openai.Params{N: 1, MaxTokens: 5, Stop: []string{"\nUser:"}, Logprobs: -1, PromptLogprobs: -1, Sampling: seq.Greedy(), Stream: true}
		j, err := x.newJob(m, p, 1, false)
		if err != nil {
			b.Error(err)
		}
		if err := j.add([]int32{1}, nil, "", "prompt"); err != nil {
			b.Error(err)
		}
		j.sink = x.newSink(openai.NewChatRenderer(x.answer(m, p, "chatcmpl-")), p, 1)
		ev := seq.Event{Tokens: []seq.Token{{ID: 'a'}}, StopToken: -1}
		b.ReportAllocs()
		for b.Loop() {
			if _, err := j.event(j.choices[0], &ev); err != nil {
				b.Error(err)
			}
		}
	}
	s := httptest.NewServer(http.HandlerFunc(handler))
	defer s.Close()
	resp, err := s.Client().Get(s.URL)
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkEngineToken is the same without the server: the difference is the server's.
func BenchmarkEngineToken(b *testing.B) {
	r := newRig(b, trusting(1))
	prompt := []int32{1, 2, 3}
	b.ReportAllocs()
	b.ResetTimer()
	for left := b.N; left > 0; left -= 200_000 {
		s, err := r.engine.Submit(context.Background(), seq.Request{Prompt: prompt, Limits: seq.Limits{MaxTokens: min(left, 200_000)}, Sampling: seq.Greedy(), Logprobs: -1})
		if err != nil {
			b.Fatal(err)
		}
		for {
			ev, err := s.Next(context.Background())
			if err != nil {
				b.Fatal(err)
			}
			if ev.Finish != seq.Running {
				break
			}
		}
	}
}
