// SPDX-License-Identifier: MIT OR Apache-2.0

package attn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/metrale/metrale/internal/gpu/cpu/vec"
	"github.com/metrale/metrale/internal/tensor"
)

// step is rows of one sequence whose pages lie in order.
func step(cfg Config, d tensor.DType, past, rows int) *Call {
	cfg.PageSize = Block
	pages := (past + rows + Block - 1) / Block
	c := &Call{Config: cfg, TableStride: pages, Q: make([]float32, rows*cfg.Heads*cfg.HeadDim), Y: make([]float32, rows*cfg.Heads*cfg.VDim)}
	pool := func(dim int) Pool {
		p := Pool{D: d, KVHeads: cfg.KVHeads, Dim: dim}
		if n := pages * Block * cfg.KVHeads * dim; d == tensor.F32 {
			p.F32 = make([]float32, n)
		} else {
			p.Bits = make([]uint16, n)
		}
		return p
	}
	c.K, c.V = pool(cfg.HeadDim), pool(cfg.VDim)
	rng := rand.New(rand.NewPCG(1, 2))
	random := func(v []float32) []float32 {
		for i := range v {
			v[i] = float32(rng.NormFloat64())
		}
		return v
	}
	random(c.Q)
	k, v := make([]float32, cfg.KVHeads*cfg.HeadDim), make([]float32, cfg.KVHeads*cfg.VDim)
	for i := range past + rows {
		c.K.AppendK(cfg.Level, int32(i), random(k))
		c.V.AppendV(cfg.Level, int32(i), random(v))
	}
	for i := range pages {
		c.Table = append(c.Table, int32(i))
	}
	for i := range rows {
		c.Positions, c.RowSeq = append(c.Positions, int32(past+i)), append(c.RowSeq, 0)
	}
	return c
}

// run computes the whole step with tasks cut for that many workers.
func (c *Call) run(w *Scratch, workers int) {
	for i := range c.Plan(len(c.Positions), workers) {
		c.Run(i, w)
	}
	c.Finish()
}

func small(l vec.Level) Config {
	return Config{Heads: 9, KVHeads: 3, HeadDim: 64, VDim: 64, Scale: 0.125, Level: l}
}

// The vector paths agree bit for bit: they add in the same order.
func TestPathsAgree(t *testing.T) {
	if vec.Best() < vec.AVX512 {
		t.Skip("one vector path")
	}
	for _, d := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16} {
		var ys [2][]float32
		for i, l := range []vec.Level{vec.AVX2, vec.AVX512} {
			c := step(small(l), d, 70, 45)
			var w Scratch
			w.Grow(&c.Config)
			c.run(&w, 1)
			ys[i] = c.Y
		}
		for i := range ys[0] {
			if math.Float32bits(ys[0][i]) != math.Float32bits(ys[1][i]) {
				t.Fatalf("%v: element %d: %v and %v", d, i, ys[0][i], ys[1][i])
			}
		}
	}
}

// A long context gives the same bits whether its segments are one task, many, or shared with other rows of a tile.
func TestCutting(t *testing.T) {
	for l := vec.Go; l <= vec.Best(); l++ {
		for _, window := range []int{0, 700} {
			cfg := Config{Heads: 4, KVHeads: 2, HeadDim: 16, VDim: 16, Scale: 0.25, Window: window, Level: l}
			whole := step(cfg, tensor.BF16, 1530, 20)
			var w Scratch
			w.Grow(&whole.Config)
			whole.run(&w, 1)
			for row := range 20 {
				for _, workers := range []int{1, 8} {
					c := *whole
					width := cfg.Heads * cfg.VDim
					c.plan, c.Y = plan{}, make([]float32, width)
					c.Q, c.Positions, c.RowSeq = whole.Q[row*width:(row+1)*width], whole.Positions[row:row+1], whole.RowSeq[row:row+1]
					c.run(&w, workers)
					if want := workers > 1; c.cut != want {
						t.Fatalf("%d workers: cut is %v", workers, c.cut)
					}
					for i, y := range c.Y {
						if want := whole.Y[row*width+i]; math.Float32bits(y) != math.Float32bits(want) {
							t.Fatalf("%v, window %d, row %d, %d workers: element %d is %v, want the bits of %v", l, window, row, workers, i, y, want)
						}
					}
				}
			}
		}
	}
}

// Large scores neither overflow nor lose the small ones: the maximum moves from chunk to chunk.
func TestLargeScores(t *testing.T) {
	for l := vec.Go; l <= vec.Best(); l++ {
		cfg := Config{Heads: 1, KVHeads: 1, HeadDim: 16, VDim: 16, Scale: 1, Level: l}
		c := step(cfg, tensor.F32, 300, 1)
		c.Q = make([]float32, 16)
		c.Q[0] = 1
		for i := range 301 { // scores 0, 1, … 300: the last few keys have all the weight
			k, v := make([]float32, 16), make([]float32, 16)
			k[0], v[0] = float32(i), float32(i)
			c.K.AppendK(cfg.Level, int32(i), k)
			c.V.AppendV(cfg.Level, int32(i), v)
		}
		var w Scratch
		w.Grow(&c.Config)
		c.run(&w, 1)
		var want, sum float64
		for i := range 301 {
			e := math.Exp(float64(i - 300))
			want, sum = want+e*float64(i), sum+e
		}
		if want /= sum; math.Abs(float64(c.Y[0])-want) > 1e-4 {
			t.Errorf("%v: %v, want %v", l, c.Y[0], want)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	c := step(small(vec.Best()), tensor.BF16, 70, 45)
	var w Scratch
	w.Grow(&c.Config)
	c.run(&w, 1)
	if n := testing.AllocsPerRun(5, func() { c.run(&w, 1) }); n != 0 {
		t.Errorf("%v allocations per step", n)
	}
}

// One layer of a small model (9 heads, 3 KV heads of 64) on one worker.
func BenchmarkAttention(b *testing.B) {
	for _, s := range []struct{ past, rows int }{{127, 1}, {1023, 1}, {8191, 1}, {0, 512}} {
		for _, d := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16} {
			for l := max(vec.AVX2, vec.Go); l <= vec.Best(); l++ {
				b.Run(fmt.Sprintf("past=%d/rows=%d/%v/%v", s.past, s.rows, d, l), func(b *testing.B) {
					c := step(small(l), d, s.past, s.rows)
					var w Scratch
					w.Grow(&c.Config)
					for b.Loop() {
						c.run(&w, 1)
					}
					work := 0
					for _, p := range c.Positions {
						work += (int(p) + 1) * c.Heads * (c.HeadDim + c.VDim)
					}
					b.ReportMetric(2*float64(work)*float64(b.N)/1e9/b.Elapsed().Seconds(), "GFLOP/s")
				})
			}
		}
	}
}
