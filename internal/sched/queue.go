// SPDX-License-Identifier: MIT OR Apache-2.0

package sched

// queue is a ring of waiting sequences, oldest first.
type queue struct {
	ring  []*sequence // its length is a power of two
	head  int
	count int
}

func (q *queue) len() int { return q.count }

func (q *queue) at(i int) **sequence { return &q.ring[(q.head+i)&(len(q.ring)-1)] }

func (q *queue) front() *sequence { return *q.at(0) }

func (q *queue) pushBack(s *sequence) {
	q.room()
	*q.at(q.count) = s
	q.count++
}

func (q *queue) pushFront(s *sequence) {
	q.room()
	q.head = (q.head - 1) & (len(q.ring) - 1)
	*q.at(0) = s
	q.count++
}

func (q *queue) popFront() {
	*q.at(0) = nil
	q.head = (q.head + 1) & (len(q.ring) - 1)
	q.count--
}

// room doubles a full ring.
func (q *queue) room() {
	if q.count < len(q.ring) {
		return
	}
	ring := make([]*sequence, max(16, 2*len(q.ring)))
	for i := range q.count {
		ring[i] = *q.at(i)
	}
	q.ring, q.head = ring, 0
}

// dropEnded takes ended sequences out, keeps the order of the others, and appends those taken out to ended.
func (q *queue) dropEnded(ended []*sequence) []*sequence {
	kept := 0
	for i := range q.count {
		s := *q.at(i)
		if s.req == nil {
			ended = append(ended, s)
			continue
		}
		*q.at(kept) = s
		kept++
	}
	for i := kept; i < q.count; i++ {
		*q.at(i) = nil
	}
	q.count = kept
	return ended
}
