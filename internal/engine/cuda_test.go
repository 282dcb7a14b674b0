// SPDX-License-Identifier: MIT OR Apache-2.0

package engine

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/fixture"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/gpu/cudatest"
	"github.com/metrale/metrale/internal/seq"
	"github.com/metrale/metrale/kernels"
)

// TestDrawingOnTheDeviceChangesNoToken (package cudatest says on which device): tokens and bits of log-probabilities are those that the host draws from the device's logits,
// when they are awaited and when they come a step late, with batches that change, in chunks, and preempted; greedy ones are those
// of the CPU.
func TestDrawingOnTheDeviceChangesNoToken(t *testing.T) {
	type way struct {
		name  string
		o     Options
		pages int
	}
	ways := []way{
		{"sync", Options{Sync: true}, 40},
		{"async", Options{}, 40},
		{"async, in chunks", Options{MaxPrefillTokens: 7, MaxBatch: 3}, 40},
		{"async, preempted", Options{}, 4},
	}
	for _, c := range []struct {
		family string
		ways   []way
	}{{"llama", ways}, {"qwen3_5_moe_text", ways[3:]}} {
		t.Run(c.family, func(t *testing.T) {
			dir := fixture.Unpack(t, fixture.Tiny(c.family), "ref.safetensors")
			vocab := 0
			run := func(dev gpu.Device, o Options, pages int, draws bool, requests []seq.Request) (answers []answer, preempted int64) {
				x := exec.Options{NumPages: pages}
				if draws {
					x.Sampling = &exec.Sampling{Vocab: vocab, Seats: 8}
				}
				m, _ := loadOn(t, dev, dir, x, 1, 4, 64)
				e, err := New(m, o)
				if err != nil {
					t.Fatal(err)
				}
				defer e.Close()
				vocab = e.cfg.Vocab
				var streams []*Stream
				for _, r := range requests {
					streams = append(streams, submit(t, e, r))
				}
				for _, s := range streams {
					answers = append(answers, collect(t, s))
				}
				return answers, e.Metrics().Preemptions.Load()
			}
			run(cudatest.Open(t, kernels.FS).Device, Options{}, 4, false, nil) // learn the vocabulary
			requests := deviceTraffic(vocab)
			want, _ := run(cudatest.Open(t, kernels.FS).Device, Options{}, 40, false, requests)
			for _, w := range c.ways {
				got, preempted := run(cudatest.Open(t, kernels.FS).Device, w.o, w.pages, true, requests)
				if (w.pages == 4) != (preempted > 0) {
					t.Errorf("%s: %d preemptions", w.name, preempted)
				}
				for i := range got {
					if err := diff(got[i], want[i]); err != nil {
						t.Errorf("%s, request %d: %v", w.name, i, err)
					}
				}
			}
			m, _ := load(t, dir, 40)
			e, err := New(m, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			for i, r := range requests {
				if r.Sampling.Temperature > 0 {
					continue
				}
				if got := collect(t, submit(t, e, r)); !slices.Equal(got.ids(), want[i].ids()) {
					t.Errorf("request %d: the CPU says %v, the device %v", i, got.ids(), want[i].ids())
				}
			}
		})
	}
}

// deviceTraffic is a few requests with all that a sampler knows.
func deviceTraffic(vocab int) []seq.Request {
	r := rand.New(rand.NewPCG(8, 8))
	prompt := func(n int) (p []int32) {
		for range n {
			p = append(p, int32(r.IntN(vocab)))
		}
		return
	}
	greedy, echo, drawn, penalized := ask(14, prompt(9)...), ask(3, prompt(5)...), ask(24, prompt(14)...), ask(24, prompt(13)...)
	greedy.Stop, greedy.MinTokens = []int32{3, 1000}, 2
	echo.Echo, echo.Logprobs = true, 3
	drawn.Sampling = seq.Sampling{Temperature: 1.2, TopP: 0.95, TopK: 50, RepetitionPenalty: 1, Seed: 5}
	drawn.Logprobs = 2
	penalized.Sampling = seq.Sampling{Temperature: 0.8, TopP: 0.9, MinP: 0.01, TopNSigma: 3, RepetitionPenalty: 1.2, PresencePenalty: 0.3, FrequencyPenalty: 0.1,
		LogitBias: []seq.Bias{{Token: 3, Value: 2}}, Seed: 6}
	again := drawn // the same question twice: n = 2
	again.Sampling.Seed++
	return []seq.Request{greedy, echo, drawn, penalized, again}
}
