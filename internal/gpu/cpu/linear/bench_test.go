// SPDX-License-Identifier: MIT OR Apache-2.0

package linear

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/metrale/metrale/internal/gpu/cpu/pool"
	"github.com/metrale/metrale/internal/gpu/cpu/vec"
	"github.com/metrale/metrale/internal/tensor"
)

// model is the linear part of SmolLM2-135M: 30 layers of width 576, and the tied output matrix.
type model struct {
	p     *pool.Pool
	s     *Scratch
	calls []Call // of one step
	bytes int    // of all weights
	ops   int    // of a row through the layers
}

const (
	width, inner, kv, layers, vocab = 576, 1536, 192, 30, 49152
)

func newModel(b *testing.B, d, head tensor.DType, compute Compute, rows int) *model {
	m := &model{p: pool.New(0)}
	b.Cleanup(m.p.Close)
	m.s = NewScratch(rows, inner, m.p.Workers())
	rng := rand.New(rand.NewPCG(1, 2))
	raw := map[[2]int][]byte{} // weights of a shape are alike
	arena := hugePages(b, 4*(layers*width*(2*width+2*kv+3*inner)+vocab*width))
	weight := func(d tensor.DType, n, k int) Weight {
		if raw[[2]int{n, k}] == nil {
			raw[[2]int{n, k}] = randomWeights(rng, d, n*k)
		}
		size, err := PackedSize(d, int64(n), int64(k))
		if err != nil {
			b.Fatal(err)
		}
		w := Weight{D: d, N: n, K: k, Data: arena[m.bytes:][:size]}
		if err := Pack(w.Data, d, int64(n), int64(k), 0, int64(n), raw[[2]int{n, k}]); err != nil {
			b.Fatal(err)
		}
		m.bytes += int(size)
		return w
	}
	x, h := randomFloats(rng, rows*width), randomFloats(rng, rows*inner)
	y := func(n int) []float32 { return make([]float32, rows*n) }
	call := func(c Call) {
		c.Rows, c.Compute = rows, compute
		for _, w := range c.W {
			m.ops += 2 * w.N * w.K
		}
		m.calls = append(m.calls, c)
	}
	q, k, v, o, up := y(width), y(kv), y(kv), y(width), y(inner)
	for range layers {
		call(Call{X: x, W: []Weight{weight(d, width, width), weight(d, kv, width), weight(d, kv, width)}, Y: [][]float32{q, k, v}})
		call(Call{X: x, W: []Weight{weight(d, width, width)}, Y: [][]float32{o}, Mode: Add})
		call(Call{X: x, W: []Weight{weight(d, inner, width), weight(d, inner, width)}, Y: [][]float32{up}, Glu: vec.Silu})
		call(Call{X: h, W: []Weight{weight(d, width, inner)}, Y: [][]float32{o}, Mode: Add})
	}
	m.calls = append(m.calls, Call{X: x[:width], Rows: 1, W: []Weight{weight(head, vocab, width)}, Y: [][]float32{make([]float32, vocab)}, Compute: compute})
	return m
}

func (m *model) step() {
	for i := range m.calls {
		Run(m.p, m.s, &m.calls[i])
	}
}

// times runs f over and over for a while and gives the best and the median time.
func times(b *testing.B, f func()) (best, median time.Duration) {
	f()
	var t []time.Duration
	for b.Loop() {
		start := time.Now()
		f()
		t = append(t, time.Since(start))
	}
	slices.Sort(t)
	return t[0], t[len(t)/2]
}

// sweep reads memory with all workers, as fast as it goes: what decoding could reach.
func sweep(b *testing.B, p *pool.Pool) (best, median float64) {
	const task, n = 1 << 20, 128
	data := view[float32](hugePages(b, n*task))
	for i := range data {
		data[i] = 1
	}
	sums := make([]float32, n)
	read := func(i, _ int) { sums[i] = vec.Best().SumSq(data[i*task/4:][:task/4]) }
	var t []time.Duration
	for range 40 {
		start := time.Now()
		p.Run(n, read)
		t = append(t, time.Since(start))
	}
	slices.Sort(t)
	return n * task / 1e9 / t[0].Seconds(), n * task / 1e9 / t[len(t)/2].Seconds()
}

// BenchmarkDecode multiplies one row with all of a model. It reports the memory it reads in a second, alone and as a share
// of a read sweep in the same run, and how many tokens a second that is without the other kernels.
func BenchmarkDecode(b *testing.B) {
	for _, c := range []struct {
		d, head tensor.DType
		compute Compute
	}{
		{tensor.Q4_1, tensor.Q8_0, Q8}, {tensor.Q4_0, tensor.Q8_0, Q8}, {tensor.Q5_1, tensor.Q8_0, Q8}, {tensor.Q8_0, tensor.Q8_0, Q8},
		{tensor.IQ4_NL, tensor.Q8_0, Q8}, {tensor.MXFP4, tensor.Q8_0, Q8},
		{tensor.F16, tensor.F16, F32}, {tensor.BF16, tensor.BF16, F32}, {tensor.F32, tensor.F32, F32},
	} {
		b.Run(c.d.String(), func(b *testing.B) {
			m := newModel(b, c.d, c.head, c.compute, 1)
			sweepBest, sweepMedian := sweep(b, m.p)
			best, median := times(b, m.step)
			rate := func(t time.Duration) float64 { return float64(m.bytes) / 1e9 / t.Seconds() }
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(rate(best), "GB/s-best")
			b.ReportMetric(rate(median), "GB/s-median")
			b.ReportMetric(sweepBest, "sweep-GB/s-best")
			b.ReportMetric(rate(best)/sweepBest, "share-best")
			b.ReportMetric(rate(median)/sweepMedian, "share-median")
			b.ReportMetric(1/best.Seconds(), "tok/s-best")
			b.ReportMetric(1/median.Seconds(), "tok/s-median")
		})
	}
}

// BenchmarkPrefill multiplies 512 rows with all of a model.
func BenchmarkPrefill(b *testing.B) {
	const rows = 512
	for _, c := range []struct {
		d       tensor.DType
		compute Compute
	}{{tensor.Q4_1, Q8}, {tensor.Q8_0, Q8}, {tensor.Q5_0, Q8}, {tensor.BF16, F32}, {tensor.F32, F32}, {tensor.Q4_1, F32}} {
		b.Run(fmt.Sprintf("%v/compute%d", c.d, c.compute), func(b *testing.B) {
			m := newModel(b, c.d, c.d, c.compute, rows)
			best, median := times(b, m.step)
			ops := float64(m.ops) * rows
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(ops/1e9/best.Seconds(), "GFLOP/s-best")
			b.ReportMetric(ops/1e9/median.Seconds(), "GFLOP/s-median")
			b.ReportMetric(rows/best.Seconds(), "tok/s-best")
			b.ReportMetric(rows/median.Seconds(), "tok/s-median")
		})
	}
}
