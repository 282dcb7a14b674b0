// SPDX-License-Identifier: MIT OR Apache-2.0

package recur

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/metrale/metrale/internal/gpu/cpu/vec"
)

func random(rng *rand.Rand, n int, scale float64) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(rng.NormFloat64() * scale)
	}
	return v
}

func delta(l vec.Level, rows, kh, vh, kd, vd int) *Delta {
	rng := rand.New(rand.NewPCG(1, 2))
	c := &Delta{Level: l, KHeads: kh, VHeads: vh, KDim: kd, VDim: vd, GDim: 1}
	c.Q, c.K = random(rng, rows*kh*kd, 0.1), random(rng, rows*kh*kd, 0.1)
	c.V, c.Y = random(rng, rows*vh*vd, 1), make([]float32, rows*vh*vd)
	c.G, c.Beta = random(rng, rows*vh, 1), random(rng, rows*vh, 1)
	for i, g := range c.G {
		c.G[i], c.Beta[i] = -g*g, float32(1/(1+math.Exp(-float64(c.Beta[i]))))
	}
	return c
}

func same(t *testing.T, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s[%d] = %v, want the bits of %v", what, i, got[i], want[i])
		}
	}
}

// The vector paths agree bit for bit, in whole tiles of columns and in what is left of them.
func TestDeltaPathsAgree(t *testing.T) {
	if vec.Best() < vec.AVX512 {
		t.Skip("one vector path")
	}
	for _, vd := range []int{16, 48, 64, 80, 128, 144} {
		for _, channels := range []int{1, 40} {
			var y, state [2][]float32
			for i, l := range []vec.Level{vec.AVX2, vec.AVX512} {
				c := delta(l, 9, 1, 1, 40, vd)
				if channels > 1 {
					c.GDim, c.G = channels, random(rand.New(rand.NewPCG(3, 4)), 9*channels, 1)
				}
				state[i] = make([]float32, 40*vd)
				c.Head(new(Scratch), state[i], 0, 0, 9)
				y[i] = c.Y
			}
			same(t, fmt.Sprint("y of ", vd, channels), y[0], y[1])
			same(t, fmt.Sprint("state of ", vd, channels), state[0], state[1])
		}
	}
}

// A key that is written with beta 1 and no decay reads back its value, whatever lay there before.
func TestDeltaWritesAndReads(t *testing.T) {
	for l := vec.Go; l <= vec.Best(); l++ {
		c := delta(l, 2, 1, 1, 16, 32)
		clear(c.K)
		c.K[3], c.K[16+3] = 1, 1
		copy(c.Q, c.K)
		c.G[0], c.G[1], c.Beta[0], c.Beta[1] = 0, 0, 1, 1
		state := random(rand.New(rand.NewPCG(5, 6)), 16*32, 1)
		c.Head(new(Scratch), state, 0, 0, 2)
		for i, v := range c.V {
			if math.Abs(float64(c.Y[i]-v)) > 1e-6*(1+math.Abs(float64(v))) {
				t.Fatalf("%v: wrote %v, read %v", l, v, c.Y[i])
			}
		}
	}
}

// Channels may be divided anywhere.
func TestConvChannels(t *testing.T) {
	const channels, taps, rows = 70, 4, 6
	for l := vec.Go; l <= vec.Best(); l++ {
		rng := rand.New(rand.NewPCG(1, 2))
		c := Conv{Level: l, Act: vec.Silu, C: channels, K: taps, W: random(rng, channels*taps, 1), X: random(rng, channels*rows, 1), Y: make([]float32, channels*rows)}
		past := random(rng, channels*(taps-1), 1)
		run := func(cuts ...int) (y, state []float32) {
			c.Y, state = make([]float32, channels*rows), append([]float32(nil), past...)
			var w Scratch
			for i := 1; i < len(cuts); i++ {
				lo, hi := cuts[i-1], cuts[i]
				c.Channels(&w, state, 0, rows, lo, hi)
			}
			return c.Y, state
		}
		y, state := run(0, channels)
		gotY, gotState := run(0, 1, 17, 50, channels)
		same(t, l.String()+": y", gotY, y)
		same(t, l.String()+": state", gotState, state)
	}
}

// One head of 128 × 128, and 256 channels, on one worker.
func BenchmarkRecurrence(b *testing.B) {
	for _, rows := range []int{1, 64} {
		for l := vec.Go; l <= vec.Best(); l++ {
			b.Run(fmt.Sprintf("delta/rows=%d/%v", rows, l), func(b *testing.B) {
				c := delta(l, rows, 1, 1, 128, 128)
				state := make([]float32, 128*128)
				for b.Loop() {
					c.Head(new(Scratch), state, 0, 0, rows)
				}
			})
			b.Run(fmt.Sprintf("conv/rows=%d/%v", rows, l), func(b *testing.B) {
				c := Conv{Level: l, Act: vec.Silu, C: 256, K: 4, W: make([]float32, 1024), X: make([]float32, 256*rows), Y: make([]float32, 256*rows)}
				state := make([]float32, 256*3)
				var w Scratch
				for b.Loop() {
					c.Channels(&w, state, 0, rows, 0, 256)
				}
			})
		}
	}
}
