// SPDX-License-Identifier: MIT OR Apache-2.0

package pool

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Every task runs once, under a worker number that nobody else uses at that time, whatever sizes follow each other and
// whether workers spin, sleep, or have no processor.
func TestRun(t *testing.T) {
	for _, c := range []struct {
		name             string
		workers, procs   int
		pause            time.Duration
		regions, maxSize int
	}{
		{"hot", 4, 2, 0, 2000, 40},
		{"asleep", 3, 2, 2 * warmSpin, 20, 9},
		{"one processor", 3, 1, 0, 300, 20},
		{"one worker", 1, 2, 0, 50, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(c.procs))
			p := New(c.workers)
			defer p.Close()
			ran := make([]atomic.Int32, c.maxSize)
			busy := make([]atomic.Bool, p.Workers())
			var clash atomic.Bool
			task := func(i, w int) {
				if busy[w].Swap(true) {
					clash.Store(true)
				}
				ran[i].Add(1)
				busy[w].Store(false)
			}
			for r := range c.regions {
				n := r % (c.maxSize + 1)
				p.Run(n, task)
				for i := range ran {
					want := int32(0)
					if i < n {
						want = 1
					}
					if got := ran[i].Swap(0); got != want {
						t.Fatalf("region %d of %d tasks: task %d ran %d times", r, n, i, got)
					}
				}
				time.Sleep(c.pause)
			}
			if clash.Load() {
				t.Error("two tasks ran at once under one worker number")
			}
		})
	}
}

// All workers take part when there is work for them.
func TestRunSpreads(t *testing.T) {
	if runtime.GOMAXPROCS(0) < 2 {
		t.Skip("one processor")
	}
	p := New(2)
	defer p.Close()
	var met atomic.Int32
	deadline := time.Now().Add(time.Minute)
	p.Run(2, func(int, int) { // each waits for the other, which only works side by side
		met.Add(1)
		for met.Load() < 2 && time.Now().Before(deadline) {
			runtime.Gosched()
		}
	})
	if time.Now().After(deadline) {
		t.Error("the second worker never came")
	}
}

func TestPanic(t *testing.T) {
	for _, workers := range []int{2, 3} {
		p := New(workers)
		var ran atomic.Int32
		err := func() (err error) {
			defer func() { err, _ = recover().(error) }()
			p.Run(10, func(i, _ int) {
				ran.Add(1)
				if i == 3 {
					panic("index out of range")
				}
			})
			return nil
		}()
		var f *Panic
		if !errors.As(err, &f) || f.Error() != "index out of range" || !strings.Contains(string(f.Stack), "TestPanic") {
			t.Errorf("got %v, want the task's panic with its stack", err)
		}
		if ran.Load() != 10 {
			t.Errorf("%d tasks ran, want all 10", ran.Load())
		}
		p.Run(4, func(int, int) {}) // still usable
		p.Close()
		p.Close()
	}
}

func TestRunDoesNotAllocate(t *testing.T) {
	p := New(2)
	defer p.Close()
	task := func(int, int) {}
	if n := testing.AllocsPerRun(100, func() { p.Run(8, task) }); n != 0 {
		t.Errorf("%v allocations per region", n)
	}
}

// An idle pool sleeps.
func TestIdle(t *testing.T) {
	p := New(3)
	defer p.Close()
	p.Run(3, func(int, int) {})
	deadline := time.Now().Add(time.Minute)
	for i := range p.sleepers {
		for !p.sleepers[i].asleep.Load() {
			if time.Now().After(deadline) {
				t.Fatalf("worker %d is still awake", i+1)
			}
			time.Sleep(time.Millisecond)
		}
	}
}

// What a region costs beyond its work: n tasks of a microsecond each on two workers, against the same work on one.
func BenchmarkBarrier(b *testing.B) {
	var sink atomic.Int64
	work := func(int, int) {
		x := int64(1)
		for range 1000 { // about a nanosecond each
			x = x*6364136223846793005 + 1
		}
		if x == 0 {
			sink.Add(1)
		}
	}
	for _, n := range []int{1, 2, 8} {
		b.Run(fmt.Sprintf("tasks=%d/workers=1", n), func(b *testing.B) {
			for b.Loop() {
				for i := range n {
					work(i, 0)
				}
			}
		})
		b.Run(fmt.Sprintf("tasks=%d/workers=2", n), func(b *testing.B) {
			p := New(2)
			defer p.Close()
			for b.Loop() {
				p.Run(n, work)
			}
		})
	}
}
