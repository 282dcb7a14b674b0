// SPDX-License-Identifier: MIT OR Apache-2.0

package linear

import "sync/atomic"

// queue is the range of tasks [low, high) that one worker began a region with. The worker takes them from the front, so
// that it reads weights in one stream, which memory serves about twice as fast as pieces; who has none left takes from
// the back of others.
type queue struct {
	ends atomic.Uint64 // low in the upper half, high in the lower
	_    [56]byte
}

func (q *queue) set(low, high int) { q.ends.Store(uint64(low)<<32 | uint64(high)) }

// front takes the first task, back the last.
func (q *queue) front() (task int, ok bool) {
	for {
		e := q.ends.Load()
		low, high := e>>32, e&(1<<32-1)
		if low >= high {
			return 0, false
		}
		if q.ends.CompareAndSwap(e, (low+1)<<32|high) {
			return int(low), true
		}
	}
}

func (q *queue) back() (task int, ok bool) {
	for {
		e := q.ends.Load()
		low, high := e>>32, e&(1<<32-1)
		if low >= high {
			return 0, false
		}
		if q.ends.CompareAndSwap(e, low<<32|(high-1)) {
			return int(high - 1), true
		}
	}
}

// runTasks runs s.multiply for each of n tasks.
func (s *Scratch) runTasks(p Pool, n int) {
	count := min(n, len(s.workers))
	for i := range s.workers {
		low, high := 0, 0
		if i < count {
			low, high = i*n/count, (i+1)*n/count
		}
		s.workers[i].queue.set(low, high)
	}
	p.Run(count, s.drainTask)
}

// drain empties queue i, then the others.
func (s *Scratch) drain(i, worker int) {
	for task, ok := s.workers[i].queue.front(); ok; task, ok = s.workers[i].queue.front() {
		s.multiply(task, worker)
	}
	for j := range s.workers {
		q := &s.workers[(i+j)%len(s.workers)].queue
		for task, ok := q.back(); ok; task, ok = q.back() {
			s.multiply(task, worker)
		}
	}
}
