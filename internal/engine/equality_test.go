// SPDX-License-Identifier: MIT OR Apache-2.0

package engine

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/fixture"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/gpu/cpu"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/seq"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights"
	"github.com/metrale/metrale/kernels"
)

// TestHowTheEngineRunsChangesNoToken is rung 4 of the parity ladder on real (tiny) models: a request gives the same tokens
// and the same bits of log-probability alone, in a batch, in chunks, and preempted; greedy and drawn; with images and without.
// Images are encoded once, unless a sequence is put back.
func TestHowTheEngineRunsChangesNoToken(t *testing.T) {
	for _, family := range []string{"llama", "qwen3_moe", "qwen3_5_moe_text", "qwen3_vl", "qwen3_5"} {
		t.Run(family, func(t *testing.T) {
			dir := fixture.Unpack(t, fixture.Tiny(family), "ref.safetensors")
			vocab := 0
			var sees sight
			run := func(o Options, pages int, requests []seq.Request) (answers []answer, preempted, images int64) {
				m, eyes := load(t, dir, pages)
				e, err := New(m, o)
				if err != nil {
					t.Fatal(err)
				}
				defer e.Close()
				vocab, sees = e.cfg.Vocab, eyes
				var streams []*Stream
				for _, r := range requests {
					streams = append(streams, submit(t, e, r))
				}
				for _, s := range streams {
					answers = append(answers, collect(t, s))
				}
				return answers, e.Metrics().Preemptions.Load(), e.Metrics().Images.Load()
			}
			run(Options{}, 4, nil) // learn the vocabulary
			requests := traffic(vocab)
			different := sees.showImages(requests)
			want, _, _ := run(Options{MaxBatch: 1}, 16, requests)
			for _, mode := range []struct {
				name  string
				o     Options
				pages int
			}{
				{"batched", Options{}, 100},
				{"in chunks", Options{MaxPrefillTokens: 5}, 100},
				{"preempted", Options{MaxPrefillTokens: 11}, 10},
			} {
				got, preempted, images := run(mode.o, mode.pages, requests)
				if again := mode.name == "preempted" && different > 0; (images > different) != again || images < different {
					t.Errorf("%s: the tower ran %d times for %d images", mode.name, images, different)
				}
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

// sight is what a model with a tower needs to know of images; zero for one without.
type sight struct {
	token  int32 // of every place of an image
	merge  int32
	values int // of a patch
}

// showImages puts images into the prompts of a model that takes them, one of them into two, and gives their number.
func (s sight) showImages(requests []seq.Request) (n int64) {
	if s.token == 0 {
		return 0
	}
	r := rand.New(rand.NewPCG(7, 7))
	picture := func(rows, cols int32) *seq.Image {
		m := &seq.Image{Grid: [3]int32{1, rows * s.merge, cols * s.merge}, Merge: s.merge}
		m.Pixels = make([]float32, m.Patches()*s.values)
		for i := range m.Pixels {
			m.Pixels[i] = 2*r.Float32() - 1
		}
		n++
		return m
	}
	show := func(q *seq.Request, images ...*seq.Image) {
		for _, m := range images {
			q.Prompt = append(q.Prompt, 5, 6)
			m.First = len(q.Prompt)
			q.Prompt = append(q.Prompt, slices.Repeat([]int32{s.token}, m.Tokens())...)
			q.Prompt = append(q.Prompt, 7)
		}
		q.Images = images
	}
	show(&requests[1], picture(3, 4))
	show(&requests[4], picture(2, 2), picture(4, 1), picture(1, 1))
	show(&requests[8], picture(5, 3))
	requests[6].Prompt, requests[6].Images = requests[8].Prompt, requests[8].Images
	return n
}

// model closes its device too.
type model struct {
	*exec.Model
	device gpu.Device
}

func (m model) Close() error {
	m.Model.Close()
	return m.device.Close()
}

// load binds a checkpoint to the CPU, with few small pages, and with its tower if it has one.
func load(t *testing.T, dir string, pages int) (exec.Runner, sight) {
	t.Helper()
	dev, err := cpu.Open(cpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return loadOn(t, dev, dir, exec.Options{NumPages: pages}, 64)
}

// loadOn binds a checkpoint to a device, with plans of so many rows.
func loadOn(t *testing.T, dev gpu.Device, dir string, o exec.Options, buckets ...int64) (exec.Runner, sight) {
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
	in, err := circuit.Instantiate(lib, cfg, exec.Vision)
	if err != nil {
		t.Fatal(err)
	}
	lower := func(in *circuit.Instance, l plan.Limits) {
		p, err := in.Lower(lib, store, circuit.Options{Class: dev.Info().Class, Compute: circuit.Float32, KV: tensor.F32, Limits: l})
		if err != nil {
			t.Fatal(err)
		}
		o.Plans = append(o.Plans, p)
	}
	for _, rows := range buckets {
		lower(in, plan.Limits{Rows: rows, Seqs: min(8, rows), Outs: min(16, rows), PageSize: 16, Pages: 8})
	}
	var eyes sight
	if vision := in.InPart(exec.Vision); vision != nil {
		lower(vision, plan.Limits{Rows: 64, Seqs: 1, Outs: 16, PageSize: 16, Pages: 1})
		d := in.Dim
		eyes = sight{int32(d("image_token")), int32(d("vis_merge")), int(d("vis_channels") * d("vis_frames") * d("vis_patch") * d("vis_patch"))}
	}
	o.Device, o.Store, o.NumSlots = dev, store, 8
	m, err := exec.Load(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return model{m, dev}, eyes
}
