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

// model is the linear part of SmolLM2-135M: 30 layers of width 576 (768 for types with superblocks), and the tied output
// matrix.
type model struct {
	p     *pool.Pool
	s     *Scratch
	calls []Call // of one step
	bytes int    // of all weights
	ops   int    // of a row through the layers
}

const (
	inner, kv, layers, vocab = 1536, 192, 30, 49152
)

func newModel(b *testing.B, d, head tensor.DType, compute Compute, rows int) *model {
	m, width := &model{p: pool.New(0)}, 576
	if formats[d].super {
		width = 768
	}
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
func times(b *testing.B, f func()) [2]time.Duration {
	f()
	var t []time.Duration
	for b.Loop() {
		start := time.Now()
		f()
		t = append(t, time.Since(start))
	}
	slices.Sort(t)
	return [2]time.Duration{t[0], t[len(t)/2]}
}

// sweep reads memory with all workers, as fast as it goes: what decoding could reach.
func sweep(b *testing.B, p *pool.Pool) (best, median float64) {
	const task, n, chunk = 1 << 20, 128, 1 << 10 // a chunk's sums stay in the first cache
	data := view[float32](hugePages(b, n*task))
	for i := range data {
		data[i] = 1
	}
	sums := make([]float32, n*chunk)
	read := func(i, _ int) {
		for part := range slices.Chunk(data[i*task/4:][:task/4], chunk) {
			vec.Best().Add(sums[i*chunk:], part)
		}
	}
	var t []time.Duration
	for range 40 {
		start := time.Now()
		p.Run(n, read)
		t = append(t, time.Since(start))
	}
	slices.Sort(t)
	return n * task / 1e9 / t[0].Seconds(), n * task / 1e9 / t[len(t)/2].Seconds()
}

// report gives the best and the median of a measure over times.
func report(b *testing.B, unit string, times [2]time.Duration, measure func(seconds float64) float64) {
	for i, name := range []string{"best", "median"} {
		b.ReportMetric(measure(times[i].Seconds()), unit+"-"+name)
	}
}

// BenchmarkDecode multiplies one row, or the rows of a few sequences, with all of a model. It reports the memory it reads in
// a second, alone and as a share of a read sweep in the same run, and how many steps a second that is without the other
// kernels.
func BenchmarkDecode(b *testing.B) {
	for _, c := range []struct {
		d    tensor.DType
		rows int
	}{
		{tensor.Q4_1, 1}, {tensor.Q4_1, 2}, {tensor.Q4_1, 4}, {tensor.Q4_1, 8}, {tensor.Q8_0, 1}, {tensor.Q8_0, 4}, {tensor.Q4_0, 1},
		{tensor.Q5_1, 1}, {tensor.Q4_K, 1}, {tensor.Q4_K, 4}, {tensor.Q5_K, 1}, {tensor.Q6_K, 1}, {tensor.Q2_K, 1}, {tensor.IQ4_NL, 1},
		{tensor.MXFP4, 1}, {tensor.NVFP4, 1}, {tensor.NVFP4, 4}, {tensor.E4M3, 1}, {tensor.E4M3, 4}, {tensor.E4M3_B32, 1}, {tensor.F16, 1}, {tensor.BF16, 1}, {tensor.BF16, 4}, {tensor.F32, 1},
	} {
		b.Run(fmt.Sprintf("%v/%d", c.d, c.rows), func(b *testing.B) {
			head := c.d
			if formats[c.d].quantised() {
				head = tensor.Q8_0
			}
			m := newModel(b, c.d, head, Q16, c.rows)
			sweepBest, sweepMedian := sweep(b, m.p)
			t := times(b, m.step)
			b.ReportMetric(0, "ns/op")
			report(b, "GB/s", t, func(s float64) float64 { return float64(m.bytes) / 1e9 / s })
			b.ReportMetric(float64(m.bytes)/1e9/t[0].Seconds()/sweepBest, "sweeps-best")
			b.ReportMetric(float64(m.bytes)/1e9/t[1].Seconds()/sweepMedian, "sweeps-median")
			report(b, "steps/s", t, func(s float64) float64 { return 1 / s })
		})
	}
}

// BenchmarkPrefill multiplies 512 rows with all of a model.
func BenchmarkPrefill(b *testing.B) {
	const rows = 512
	for _, c := range []struct {
		d       tensor.DType
		compute Compute
	}{{tensor.Q4_1, Q16}, {tensor.Q8_0, Q16}, {tensor.Q5_0, Q16}, {tensor.Q4_K, Q16}, {tensor.Q6_K, Q16}, {tensor.BF16, F32}, {tensor.F32, F32}, {tensor.Q4_1, F32}} {
		b.Run(fmt.Sprintf("%v/%s", c.d, [...]string{F32: "f32", Q16: "q16"}[c.compute]), func(b *testing.B) {
			m := newModel(b, c.d, c.d, c.compute, rows)
			t := times(b, m.step)
			b.ReportMetric(0, "ns/op")
			report(b, "GFLOP/s", t, func(s float64) float64 { return float64(m.ops) * rows / 1e9 / s })
			report(b, "tok/s", t, func(s float64) float64 { return rows / s })
		})
	}
}
