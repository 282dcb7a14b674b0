// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights"
)

// TestWindowsCoverTheirWeights: whatever weights are loaded, and into windows of whatever size, each has its bytes, and memory of the
// others stays as it is.
func TestWindowsCoverTheirWeights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list []tensor.Info
		p := &plan.Plan{}
		for i := range rapid.IntRange(1, 12).Draw(t, "weights") {
			rows, k := rapid.Int64Range(1, 900).Draw(t, "rows"), rapid.Int64Range(1, 3000).Draw(t, "k")
			name := fmt.Sprint("w", i)
			list = append(list, tensor.Info{Name: name, DType: tensor.BF16, Shape: tensor.Shape{rows, k}})
			p.Weights = append(p.Weights, plan.Weight{Name: name, DType: tensor.BF16, Axes: plan.Axes{{Name: "n", Size: rows}, {Name: "k", Size: k}}, Sources: []string{name}})
		}
		store, err := weights.Dummy(list)
		if err != nil {
			t.Fatal(err)
		}
		dev := &own{}
		b := &binder{model: &Model{}, opts: Options{Device: dev, Store: store}, weights: map[string]*loadJob{}}
		jobs, _, err := b.placeWeights([]*plan.Plan{p})
		if err != nil {
			t.Fatal(err)
		}
		memory := jobs[0].dst.(*ownBuffer).data
		copy(memory, bytes.Repeat([]byte{0x5a}, len(memory)))
		var tasks []*task
		chosen := map[*loadJob]bool{}
		for _, j := range jobs {
			if rapid.Bool().Draw(t, "chosen") {
				own, err := j.tasks()
				if err != nil {
					t.Fatal(err)
				}
				chosen[j], tasks = true, append(tasks, own...)
			}
		}
		r := newRing(dev, dev, tasks, rapid.Int64Range(1, 8<<20).Draw(t, "window"))
		r.begin()
		w := &stagedWorker{ring: r}
		for _, x := range tasks {
			if err := w.load(context.Background(), x, store); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.end(); err != nil || dev.live.Load() != 1 {
			t.Fatalf("%v, %d things are left", err, dev.live.Load())
		}
		for _, j := range jobs {
			want := bytes.Repeat([]byte{0x5a}, int(j.size))
			if chosen[j] {
				if err := store.Read(j.w.Name, 0, want); err != nil {
					t.Fatal(err)
				}
			}
			if !bytes.Equal(memory[j.off:j.off+j.size], want) {
				t.Fatalf("%s, chosen %v, differs", j.w.Name, chosen[j])
			}
		}
	})
}

// failingStore fails in the midst.
type failingStore struct {
	weights.Store
	reads atomic.Int64
}

func (s *failingStore) Read(name string, off int64, dst []byte) error {
	if s.reads.Add(1) == 150 {
		return diag.Errorf(diag.IO, "the disk is gone")
	}
	return s.Store.Read(name, off, dst)
}

// TestLoadingStopsAtAFault: goroutines that wait for the window of one that failed end too, and the stages are freed.
func TestLoadingStopsAtAFault(t *testing.T) {
	info := tensor.Info{Name: "w", DType: tensor.BF16, Shape: tensor.Shape{1 << 12, 1 << 15}}
	store, err := weights.Dummy([]tensor.Info{info})
	if err != nil {
		t.Fatal(err)
	}
	p := &plan.Plan{Weights: []plan.Weight{{Name: "w", DType: tensor.BF16, Axes: plan.Axes{{Name: "n", Size: 1 << 12}, {Name: "k", Size: 1 << 15}}, Sources: []string{"w"}}}}
	for _, c := range []struct {
		store Store
		dev   *own
		want  diag.Code
	}{
		{&failingStore{Store: store}, &own{}, diag.IO},
		{store, &own{fail: map[string]bool{"loading": true}}, diag.Unsupported}, // stages
	} {
		b := &binder{model: &Model{}, opts: Options{Device: c.dev, Store: c.store}, weights: map[string]*loadJob{}}
		jobs, stored, err := b.placeWeights([]*plan.Plan{p})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.runJobs(context.Background(), jobs, 0, stored); !diag.Is(err, c.want) || c.dev.live.Load() != 1 {
			t.Errorf("%v, want %s; %d things are left", err, c.want, c.dev.live.Load())
		}
	}
}

// TestReadersLeaveWhenTheyWait: down to as many as the copies need, and none where reading or packing is what takes long.
func TestReadersLeaveWhenTheyWait(t *testing.T) {
	for _, c := range []struct {
		cores  int
		waited time.Duration // of four seconds
		left   int64
	}{{32, 2 * time.Second, fewReaders}, {32, time.Second / 2, 24}, {16, 2 * time.Second, 12}, {4, 4 * time.Second, 3}, {1, 4 * time.Second, 1}} {
		r := &ring{}
		for range r.staff(c.cores) {
			w := &stagedWorker{ring: r, began: time.Now().Add(-4 * time.Second), waited: c.waited}
			w.spare()
		}
		if n := r.readers.Load(); n != c.left {
			t.Errorf("%d cores, %v waited: %d readers are left, want %d", c.cores, c.waited, n, c.left)
		}
	}
}

// slowStore takes time to read from.
type slowStore struct {
	weights.Store
	time time.Duration
}

func (s *slowStore) Read(string, int64, []byte) error {
	time.Sleep(s.time)
	return nil
}

// slowCopies is a device that takes time to copy a stage.
type slowCopies struct {
	own
	time time.Duration
}

func (d *slowCopies) Stage(_ string, n int64) (gpu.Stage, error) {
	return &slowStage{ownStage{d: &d.own, data: make([]byte, n)}, d.time}, nil
}

type slowStage struct {
	ownStage
	time time.Duration
}

func (s *slowStage) Send(gpu.Buffer, int64, int64) error { return nil }
func (s *slowStage) Free()                               {}
func (s *slowStage) Wait() error {
	time.Sleep(s.time)
	return nil
}

// TestManyCores: of 24 readers of 32 cores, 12 are left when copies take long, and all when reading does. Only reads and copies take time here.
func TestManyCores(t *testing.T) {
	synctest.Test(t, manyCores)
}

func manyCores(t *testing.T) {
	p := &plan.Plan{Weights: []plan.Weight{{Name: "w", DType: tensor.BF16, Axes: plan.Axes{{Name: "n", Size: 1 << 13}, {Name: "k", Size: 1 << 15}}, Sources: []string{"w"}}}}
	store, err := weights.Dummy([]tensor.Info{{Name: "w", DType: tensor.BF16, Shape: tensor.Shape{1 << 13, 1 << 15}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		read, copy time.Duration
		left       int64
	}{{0, 3 * time.Millisecond, fewReaders}, {3 * time.Millisecond, 0, 24}} {
		dev := &slowCopies{time: c.copy}
		b := &binder{model: &Model{}, opts: Options{Device: dev, Store: &slowStore{store, c.read}}, weights: map[string]*loadJob{}}
		jobs, stored, err := b.placeWeights([]*plan.Plan{p})
		if err != nil {
			t.Fatal(err)
		}
		tasks, err := jobs[0].tasks()
		if err != nil {
			t.Fatal(err)
		}
		r := newRing(dev, dev, tasks, windowBytes)
		r.begin()
		workers := r.staff(32)
		if err := b.runTasks(context.Background(), tasks, workers, func() worker { return &stagedWorker{ring: r} }, b.progress(0, stored)); err != nil {
			t.Fatal(err)
		}
		if err := r.end(); err != nil {
			t.Fatal(err)
		}
		if n := r.readers.Load(); n != c.left {
			t.Errorf("copies of %v, reads of %v: %d readers are left, want %d", c.copy, c.read, n, c.left)
		}
	}
}
