// SPDX-License-Identifier: MIT OR Apache-2.0

package telemetry

import (
	"testing"
	"time"
)

func TestHistogramBucketsByUpperBound(t *testing.T) {
	var h Histogram
	for _, c := range []struct {
		d      time.Duration
		bucket int
	}{
		{0, 0}, {100 * time.Microsecond, 0}, {100*time.Microsecond + 1, 1}, {200 * time.Microsecond, 1},
		{Bounds[len(Bounds)-1], len(Bounds) - 1}, {Bounds[len(Bounds)-1] + 1, len(Bounds)}, {time.Hour, len(Bounds)},
	} {
		before := h.Snapshot()
		h.Observe(c.d)
		after := h.Snapshot()
		if after.Counts[c.bucket] != before.Counts[c.bucket]+1 || after.Count != before.Count+1 || after.Sum != before.Sum+c.d {
			t.Errorf("%v: %+v", c.d, after)
		}
	}
}

func TestWritingDoesNotAllocate(t *testing.T) {
	var e Engine
	if n := testing.AllocsPerRun(100, func() {
		e.Steps.Add(1)
		e.Running.Set(3)
		e.Step.Observe(time.Millisecond)
	}); n != 0 || e.Steps.Load() != 101 || e.Running.Load() != 3 {
		t.Errorf("%v allocations, %d, %d", n, e.Steps.Load(), e.Running.Load())
	}
}

func BenchmarkObserve(b *testing.B) {
	var h Histogram
	for b.Loop() {
		h.Observe(10 * time.Millisecond)
	}
}
