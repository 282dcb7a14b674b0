// SPDX-License-Identifier: MIT OR Apache-2.0

package pool

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

const (
	hotSpin  = 30 * time.Microsecond  // a worker's pure spinning after a region
	warmSpin = 300 * time.Microsecond // then spinning that yields to other goroutines, until it sleeps
	waitSpin = 100 * time.Microsecond // the caller's pure spinning at the barrier; then it yields
	pauses   = 32                     // pause instructions between two looks at the clock
)

// Pool is a set of workers.
type Pool struct {
	left  atomic.Int64 // tasks that nobody owns yet; ≤ 0 between regions
	_     [56]byte
	done  atomic.Int64 // tasks that have returned
	_     [56]byte
	task  func(i, worker int)
	n     int64
	fault atomic.Pointer[Panic]

	sleepers []sleeper // of workers 1…
	closed   atomic.Bool
	ended    sync.WaitGroup
}

// sleeper is where one worker sleeps.
type sleeper struct {
	asleep atomic.Bool
	wake   chan struct{}
	_      [48]byte
}

// Panic is a panic that left a task.
type Panic struct {
	Value any
	Stack []byte
}

// Error is the panic's value.
func (p *Panic) Error() string { return fmt.Sprint(p.Value) }

// New starts workers-1 goroutines; workers ≤ 0 means one per processor that Go may use.
func New(workers int) *Pool {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	p := &Pool{sleepers: make([]sleeper, workers-1)}
	for i := range p.sleepers {
		p.sleepers[i].wake = make(chan struct{}, 1)
		p.ended.Add(1)
		go p.work(i + 1)
	}
	return p
}

// Workers is the number of workers, the caller included.
func (p *Pool) Workers() int { return len(p.sleepers) + 1 }

// Close ends the workers.
func (p *Pool) Close() {
	if p.closed.Swap(true) {
		return
	}
	for i := range p.sleepers {
		p.sleepers[i].rouse()
	}
	p.ended.Wait()
}

// Run runs a region of n tasks.
func (p *Pool) Run(n int, task func(i, worker int)) {
	if n <= 0 {
		return
	}
	if n == 1 || len(p.sleepers) == 0 {
		for i := range n {
			task(i, 0)
		}
		return
	}
	p.task, p.n = task, int64(n)
	p.done.Store(0)
	p.left.Store(int64(n))
	for i := range p.sleepers[:min(n-1, len(p.sleepers))] {
		p.sleepers[i].rouse()
	}
	p.take(0)
	p.wait()
	p.task = nil
	if f := p.fault.Swap(nil); f != nil {
		panic(f)
	}
}

// take runs tasks until none is left.
func (p *Pool) take(worker int) {
	for {
		left := p.left.Add(-1)
		if left < 0 {
			return
		}
		p.call(p.task, int(p.n-1-left), worker)
		p.done.Add(1)
	}
}

// call runs one task and keeps its first panic.
func (p *Pool) call(task func(i, worker int), i, worker int) {
	defer func() {
		if v := recover(); v != nil {
			p.fault.CompareAndSwap(nil, &Panic{Value: v, Stack: debug.Stack()})
		}
	}()
	task(i, worker)
}

// wait spins until the region's tasks have returned, and yields when a worker seems to have lost its processor.
func (p *Pool) wait() {
	for range 8 * pauses {
		if p.done.Load() == p.n {
			return
		}
		pause(1)
	}
	start := time.Now()
	for p.done.Load() < p.n {
		pause(pauses)
		if time.Since(start) > waitSpin {
			runtime.Gosched()
		}
	}
}

// work is a worker's life.
func (p *Pool) work(worker int) {
	defer p.ended.Done()
	s := &p.sleepers[worker-1]
	for !p.closed.Load() {
		if p.spin() {
			p.take(worker)
			continue
		}
		s.asleep.Store(true)
		// A region or Close that began before the flag was seen is noticed here; otherwise whoever comes rouses us.
		if p.left.Load() > 0 || p.closed.Load() {
			if !s.asleep.CompareAndSwap(true, false) {
				<-s.wake
			}
			continue
		}
		<-s.wake
	}
}

// spin waits for a region and says whether there is one.
func (p *Pool) spin() bool {
	start := time.Now()
	for {
		for range pauses {
			if p.left.Load() > 0 {
				return true
			}
			pause(1)
		}
		switch t := time.Since(start); {
		case t > warmSpin || p.closed.Load():
			return false
		case t > hotSpin:
			runtime.Gosched()
		}
	}
}

// rouse wakes the worker if it sleeps.
func (s *sleeper) rouse() {
	if s.asleep.Load() && s.asleep.CompareAndSwap(true, false) {
		s.wake <- struct{}{}
	}
}
