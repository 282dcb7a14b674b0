// SPDX-License-Identifier: MIT OR Apache-2.0

package engine

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/fixture"
	"github.com/metrale/metrale/internal/gpu/cpu"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/seq"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights"
	"github.com/metrale/metrale/kernels"
)

// TestHowTheEngineRunsChangesNoToken is rung 4 of the parity ladder on real (tiny) models: a request gives the same tokens
// and the same bits of log-probability alone, in a batch, in chunks, and preempted; greedy and drawn.
func TestHowTheEngineRunsChangesNoToken(t *testing.T) {
	for _, family := range []string{"llama", "qwen3_moe", "qwen3_5_moe_text"} {
		t.Run(family, func(t *testing.T) {
			dir := fixture.Unpack(t, fixture.Tiny(family), "ref.safetensors")
			vocab := 0
			run := func(o Options, pages int, requests []seq.Request) (answers []answer, preempted int64) {
				e, err := New(load(t, dir, pages), o)
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
			run(Options{}, 4, nil) // learn the vocabulary
			requests := traffic(vocab)
			want, _ := run(Options{MaxBatch: 1}, 16, requests)
			for _, mode := range []struct {
				name  string
				o     Options
				pages int
			}{
				{"batched", Options{}, 100},
				{"in chunks", Options{MaxPrefillTokens: 5}, 100},
				{"preempted", Options{MaxPrefillTokens: 11}, 13},
			} {
				got, preempted := run(mode.o, mode.pages, requests)
				if (mode.name == "preempted") != (preempted > 0) {
					t.Errorf("%s: %d preemptions", mode.name, preempted)
				}
				for i := range got {
					if err := diff(got[i], want[i]); err != nil {
						t.Errorf("%s, request %d: %v", mode.name, i, err)
					}
				}
			}
		})
	}
}

// traffic is requests of mixed lengths, half of them greedy.
func traffic(vocab int) (requests []seq.Request) {
	r := rand.New(rand.NewPCG(5, 5))
	for i := range 10 {
		q := ask(5+r.IntN(30), make([]int32, 1+r.IntN(60))...)
		for j := range q.Prompt {
			q.Prompt[j] = int32(r.IntN(vocab))
		}
		q.Logprobs, q.Echo = 2, i%3 == 0
		if i%2 == 0 {
			q.Sampling = seq.Sampling{Temperature: 1.2, TopP: 0.95, TopK: 50, RepetitionPenalty: 1.1, Seed: uint64(i)}
		}
		requests = append(requests, q)
	}
	return
}

// model closes its device too.
type model struct {
	*exec.Model
	device *cpu.Device
}

func (m model) Close() error {
	m.Model.Close()
	return m.device.Close()
}

// load binds a checkpoint to the CPU, with few small pages.
func load(t *testing.T, dir string, pages int) exec.Runner {
	t.Helper()
	store, files, err := weights.Open(dir, weights.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	cfg, err := modelconf.Read(files.Side)
	if err != nil {
		t.Fatal(err)
	}
	lib, err := circuit.LoadLibrary(kernels.FS)
	if err != nil {
		t.Fatal(err)
	}
	in, err := circuit.Instantiate(lib, cfg)
	if err != nil {
		t.Fatal(err)
	}
	p, err := in.Lower(lib, store, circuit.Options{Class: "cpu", Compute: circuit.Float32, KV: tensor.F32,
		Limits: plan.Limits{Rows: 64, Seqs: 8, Outs: 16, PageSize: 16, Pages: 8}})
	if err != nil {
		t.Fatal(err)
	}
	dev, err := cpu.Open(cpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := exec.Load(context.Background(), exec.Options{Device: dev, Plans: []*plan.Plan{p}, Store: store, NumPages: pages, NumSlots: 8})
	if err != nil {
		t.Fatal(err)
	}
	return model{m, dev}
}
