// SPDX-License-Identifier: MIT OR Apache-2.0

package engine

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/metrale/metrale/internal/engine/script"
	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/seq"
)

// BenchmarkToken is the cost of one token of one stream, from the scheduler to the reader, with a model that costs nothing:
// so many streams with a reader each, 512 tokens a request. One op is one token.
func BenchmarkToken(b *testing.B) {
	for _, n := range []int{1, 8, 64, 256} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			limits := exec.Limits{Limits: plan.Limits{Rows: 512, Seqs: int64(n), PageSize: 16, Pages: 64}}
			e := newEngine(b, script.Options{Limits: limits, Trust: true}, Options{MaxQueue: 1024})
			r := ask(512, 1, 2, 3)
			var left atomic.Int64
			left.Store(int64(b.N))
			var wg sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			for range n {
				wg.Go(func() {
					for left.Load() > 0 {
						left.Add(-int64(read(b, e, r)))
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			st := e.Stats()
			b.ReportMetric(float64(b.Elapsed())/float64(st.TextTokens), "ns/token")
			b.ReportMetric(float64(st.TextTokens)/float64(st.Steps), "tokens/step")
		})
	}
}

// BenchmarkTurn is what a step of so many decoding sequences costs the host above exec, with a model that costs nothing: deciding,
// publishing, building the step, and bringing its tokens back. It includes sampling from 256 logits a row, of the host or of the scripted device, and one start in
// 4000 tokens.
func BenchmarkTurn(b *testing.B) {
	for _, w := range routings {
		for _, n := range []int{1, 8, 64, 256} {
			b.Run(fmt.Sprintf("%s/%d", w.name, n), func(b *testing.B) {
				limits := exec.Limits{Limits: plan.Limits{Rows: 256, Seqs: 256, Pages: 256}}
				d := w.driven(b, w.runner(script.Options{Trust: true, Limits: limits}), Options{})
				turn := func() {
					for int(d.live) < n {
						s := submit(b, d.Engine, ask(4000, 1, 2, 3))
						s.ready.Tokens = make([]seq.Token, 0, 4000)
					}
					d.turn()
				}
				for range 1100 {
					turn()
				}
				b.ReportAllocs()
				for b.Loop() {
					turn()
				}
			})
		}
	}
}

// read runs a request and gives how many tokens came.
func read(t testing.TB, e *Engine, r seq.Request) (n int) {
	s, err := e.Submit(context.Background(), r)
	if err != nil {
		t.Error(err)
		return 1 << 30
	}
	for {
		ev, err := s.Next(context.Background())
		if err != nil {
			t.Error(err)
			return 1 << 30
		}
		n += len(ev.Tokens)
		if ev.Finish != seq.Running {
			return n
		}
	}
}
