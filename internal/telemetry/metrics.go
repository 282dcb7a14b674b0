// SPDX-License-Identifier: MIT OR Apache-2.0

package telemetry

import (
	"sync/atomic"
	"time"
)

// Counter only rises.
type Counter struct{ v atomic.Int64 }

// Add raises the counter by n.
func (c *Counter) Add(n int64) { c.v.Add(n) }

// Load is the count.
func (c *Counter) Load() int64 { return c.v.Load() }

// Gauge is a level.
type Gauge struct{ v atomic.Int64 }

// Set changes the level.
func (g *Gauge) Set(n int64) { g.v.Store(n) }

// Load is the level.
func (g *Gauge) Load() int64 { return g.v.Load() }

// Bounds are the upper bounds of every histogram's buckets but the last, which has none: 2^k * 100 µs.
var Bounds = func() (b [buckets - 1]time.Duration) {
	for i := range b {
		b[i] = 100 * time.Microsecond << i
	}
	return
}()

// buckets reach from 100 µs to 52 s.
const buckets = 21

// Histogram counts durations in buckets that double.
type Histogram struct {
	counts [buckets]atomic.Int64
	sum    atomic.Int64
}

// Observe counts one duration.
func (h *Histogram) Observe(d time.Duration) {
	i := 0
	for i < len(Bounds) && d > Bounds[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
}

// Snapshot is a histogram at one moment.
type Snapshot struct {
	Counts [buckets]int64 // not cumulative; Counts[i] is of durations in (Bounds[i-1], Bounds[i]]
	Count  int64
	Sum    time.Duration
}

// Snapshot reads the histogram.
func (h *Histogram) Snapshot() Snapshot {
	s := Snapshot{Sum: time.Duration(h.sum.Load())}
	for i := range h.counts {
		s.Counts[i] = h.counts[i].Load()
		s.Count += s.Counts[i]
	}
	return s
}
