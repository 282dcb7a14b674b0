// SPDX-License-Identifier: MIT OR Apache-2.0

package engine

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/sample"
)

// parallelFrom is how many logits make it worth to wake other threads: about 50 µs of the cheapest sampling.
const parallelFrom = 1 << 18

// pool samples the sequences of a step on the device thread, and on its workers when there is much to do.
type pool struct {
	scratch []sample.Scratch // of the device thread, then of the workers
	start   chan int         // a worker's index
	jobs    []job
	next    atomic.Int64 // the first job that nobody took
	busy    sync.WaitGroup
}

func newPool() *pool {
	p := &pool{scratch: make([]sample.Scratch, runtime.GOMAXPROCS(0)), start: make(chan int)}
	for range p.scratch[1:] {
		go func() {
			for i := range p.start {
				p.work(i)
				p.busy.Done()
			}
		}()
	}
	return p
}

// run does the jobs.
func (p *pool) run(jobs []job) {
	p.jobs = jobs
	p.next.Store(0)
	logits := 0
	for i := range jobs {
		logits += len(jobs[i].rows) * jobs[i].vocab
	}
	if logits >= parallelFrom {
		helpers := min(len(jobs), len(p.scratch)) - 1
		p.busy.Add(helpers)
		for i := range helpers {
			p.start <- i + 1
		}
	}
	p.work(0)
	p.busy.Wait()
	p.jobs = nil
}

// work takes jobs until none is left.
func (p *pool) work(i int) {
	for {
		n := int(p.next.Add(1)) - 1
		if n >= len(p.jobs) {
			return
		}
		p.jobs[n].do(&p.scratch[i])
	}
}

// close ends the workers.
func (p *pool) close() { close(p.start) }

// panicError is a recovered panic, for the log.
type panicError struct {
	value any
	stack []byte
}

func (p *panicError) Error() string { return fmt.Sprintf("panic: %v\n%s", p.value, p.stack) }

// panicked is the error for a recovered panic: the client learns no more than that it is our fault.
func panicked(what string, value any) error {
	buf := make([]byte, 16<<10)
	return diag.Errorf(diag.Internal, "%s", what).Because(&panicError{value, buf[:runtime.Stack(buf, false)]})
}
