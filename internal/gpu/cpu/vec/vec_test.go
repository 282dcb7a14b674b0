// SPDX-License-Identifier: MIT OR Apache-2.0

package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// levels are the paths of this processor.
func levels() (ls []Level) {
	for l := Go; l <= Best(); l++ {
		ls = append(ls, l)
	}
	return ls
}

func TestParse(t *testing.T) {
	for _, l := range levels() {
		if got, err := Parse(l.String()); got != l || err != nil {
			t.Errorf("%v: %v, %v", l, got, err)
		}
	}
	if got, err := Parse(""); got != Best() || err != nil {
		t.Errorf("empty: %v, %v", got, err)
	}
	for _, name := range []string{"sse", "AVX2", "avx512 "} {
		if _, err := Parse(name); err == nil {
			t.Errorf("%q was taken", name)
		}
	}
	if Best() < AVX512 {
		if _, err := Parse("avx512"); err == nil {
			t.Error("a path that the processor lacks was taken")
		}
	}
}

// ulps is the distance of got from the real value want, in units of the float32 spacing at want.
func ulps(got float32, want float64) float64 {
	w := float32(want)
	if got == w {
		return 0 // covers infinities and zeros
	}
	_, e := math.Frexp(want)
	return math.Abs(float64(got)-want) / math.Ldexp(1, max(e-24, -149))
}

// samples are every 997th float32 of both signs, so all exponents and fractions of every kind.
func samples() (v []float32) {
	for b := uint32(0); b < 0x7f800000; b += 997 * 3 {
		v = append(v, math.Float32frombits(b), math.Float32frombits(b|1<<31))
	}
	return v
}

func TestExpAccuracy(t *testing.T) {
	x := samples()
	y := make([]float32, len(x))
	for _, l := range levels() {
		l.Exp(y, x)
		worst, at := 0.0, float32(0)
		for i, v := range x {
			want := math.Exp(float64(v))
			if want > 0 && want < 0x1p-126 { // subnormal results: half a spacing for each of two roundings
				if u := ulps(y[i], want); u > 1.01 {
					t.Fatalf("%v: exp(%v) = %v, want %v (%.2f ulp)", l, v, y[i], want, u)
				}
				continue
			}
			if u := ulps(y[i], want); u > worst {
				worst, at = u, v
			}
		}
		t.Logf("%v: exp is within %.3f ulp, worst at %v", l, worst, at)
		if worst > 1 {
			t.Errorf("%v: exp(%v) is off by %.3f ulp", l, at, worst)
		}
	}
}

func TestExpSpecial(t *testing.T) {
	inf := float32(math.Inf(1))
	nan := float32(math.NaN())
	x := []float32{inf, -inf, nan, 0, float32(math.Copysign(0, -1)), 89, 88.72, 88.73, -104, -103, -1e30, 1e30}
	for _, l := range levels() {
		y := make([]float32, len(x))
		l.Exp(y, x)
		for i, v := range x {
			want := float32(math.Exp(float64(v)))
			if v <= -103.98 {
				want = 0
			}
			if !(math.Abs(float64(y[i]-want)) <= 1e-7*math.Abs(float64(want)) || y[i] == want || want != want && y[i] != y[i]) {
				t.Errorf("%v: exp(%v) = %v, want %v", l, v, y[i], want)
			}
		}
	}
}

// Activations through exp err by at most 4 ulp of the result; gelu_tanh, whose exp has an argument that is itself rounded,
// by 4 ulp of x.
func TestActAccuracy(t *testing.T) {
	exact := map[Act]func(x float64) float64{
		Sigmoid:  func(x float64) float64 { return 1 / (1 + math.Exp(-x)) },
		Silu:     func(x float64) float64 { return x / (1 + math.Exp(-x)) },
		Softplus: func(x float64) float64 { return max(x, 0) + math.Log1p(math.Exp(-math.Abs(x))) },
		GeluTanh: func(x float64) float64 {
			return x / (1 + math.Exp(-2*math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
		},
	}
	rng := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, 100_000)
	for i := range x {
		x[i] = float32(rng.NormFloat64() * 5)
	}
	y := make([]float32, len(x))
	for _, l := range levels() {
		for act, f := range exact {
			l.Apply(act, y, x)
			worst, at := 0.0, float32(0)
			for i, v := range x {
				want := f(float64(v))
				u := ulps(y[i], want)
				if act == GeluTanh {
					u = math.Abs(float64(y[i])-want) / math.Abs(float64(v)) * 0x1p24
				}
				if u > worst {
					worst, at = u, v
				}
			}
			t.Logf("%v: %v is within %.2f ulp, worst at %v", l, act, worst, at)
			if worst > 4 {
				t.Errorf("%v: %v(%v) is off by %.2f ulp", l, act, at, worst)
			}
		}
	}
}

// loop is an elementwise function on (dst, x, y).
var loops = map[string]func(l Level, dst, x, y []float32){
	"add":       func(l Level, dst, x, y []float32) { l.Add(dst, x) },
	"scale":     func(l Level, dst, x, y []float32) { l.Scale(dst, x, 1.7) },
	"scale mul": func(l Level, dst, x, y []float32) { l.ScaleMul(dst, x, y, 0.3, 1) },
	"mul":       func(l Level, dst, x, y []float32) { l.Mul(dst, x, y) },
	"mul add":   func(l Level, dst, x, y []float32) { l.MulAdd(dst, x, y) },
	"exp":       func(l Level, dst, x, y []float32) { l.Exp(dst, x) },
	"silu":      func(l Level, dst, x, y []float32) { l.Glu(Silu, dst, x, y) },
	"sigmoid":   func(l Level, dst, x, y []float32) { l.Glu(Sigmoid, dst, x, y) },
	"gelu":      func(l Level, dst, x, y []float32) { l.Glu(GeluTanh, dst, x, y) },
	"softplus":  func(l Level, dst, x, y []float32) { l.Apply(Softplus, dst, x) },
	"none":      func(l Level, dst, x, y []float32) { l.Glu(None, dst, x, y) },
	"rotate":    func(l Level, dst, x, y []float32) { l.Rotate(dst, x, y, y) },
	"bf16":      func(l Level, dst, x, y []float32) { l.FromBF16(dst, halves(x)) },
	"f16":       func(l Level, dst, x, y []float32) { l.FromF16(dst, halves(x)) },
}

// halves are 16 bits of each value, no NaN or infinity of either half format.
func halves(x []float32) []uint16 {
	h := make([]uint16, len(x))
	for i, v := range x {
		h[i] = uint16(math.Float32bits(v)>>8) & 0xbbff
	}
	return h
}

// An element's bits depend on nothing but its inputs: not on where it lies, nor on what is beside it; nothing outside the
// slices is touched; the two vector paths agree bit for bit, plain Go within a few ulp.
func TestElementwise(t *testing.T) {
	const total = 200
	rng := rand.New(rand.NewPCG(3, 4))
	random := func() []float32 {
		v := make([]float32, total)
		for i := range v {
			v[i] = float32(rng.NormFloat64())
		}
		return v
	}
	dst, x, y := random(), random(), random()
	for name, f := range loops {
		var first []float32
		for _, l := range levels() {
			whole := append([]float32(nil), dst...)
			wx := append([]float32(nil), x...)
			f(l, whole, wx, y)
			for _, cut := range [][2]int{{0, 1}, {3, 20}, {16, 32}, {5, 100}, {199, 200}, {17, 17}} {
				got := append([]float32(nil), dst...)
				gx := append([]float32(nil), x...)
				f(l, got[cut[0]:cut[1]], gx[cut[0]:cut[1]], y[cut[0]:cut[1]])
				for i := range got {
					want := dst[i]
					if i >= cut[0] && i < cut[1] {
						want = whole[i]
					}
					if math.Float32bits(got[i]) != math.Float32bits(want) {
						t.Fatalf("%s, %v, elements %v: element %d is %v, want the bits of %v", name, l, cut, i, got[i], want)
					}
				}
			}
			if first == nil {
				first = whole
			}
			for i := range whole {
				tol := 0.0
				if l == Best() && l > AVX2 && math.Float32bits(whole[i]) != math.Float32bits(pathOf(AVX2, f, dst, x, y)[i]) {
					t.Fatalf("%s: the vector paths differ at %d", name, i)
				}
				if tol = 2e-6 * (1 + math.Abs(float64(first[i]))); !(math.Abs(float64(whole[i]-first[i])) <= tol) {
					t.Fatalf("%s, %v: element %d is %v, plain Go has %v", name, l, i, whole[i], first[i])
				}
			}
		}
	}
}

func pathOf(l Level, f func(l Level, dst, x, y []float32), dst, x, y []float32) []float32 {
	got := append([]float32(nil), dst...)
	f(l, got, append([]float32(nil), x...), y)
	return got
}

// Halves come out of the vector unit as package tensor defines them.
func TestToF16(t *testing.T) {
	x := samples()
	want, got := make([]uint16, len(x)), make([]uint16, len(x))
	Go.ToF16(want, x)
	for _, l := range levels() {
		clear(got)
		l.ToF16(got, x)
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("%v: %v becomes %#x, want %#x", l, x[i], got[i], want[i])
			}
		}
	}
}

func TestNoAllocation(t *testing.T) {
	dst, x, y := make([]float32, 100), make([]float32, 100), make([]float32, 100)
	for name, f := range loops {
		if name == "bf16" || name == "f16" { // halves allocates
			continue
		}
		for _, l := range levels() {
			if n := testing.AllocsPerRun(10, func() { f(l, dst, x, y) }); n != 0 {
				t.Errorf("%s, %v: %v allocations", name, l, n)
			}
		}
	}
}

func BenchmarkLoops(b *testing.B) {
	const n = 4096
	dst, x, y := make([]float32, n), make([]float32, n), make([]float32, n)
	for _, name := range []string{"add", "scale mul", "exp", "silu", "gelu"} {
		for _, l := range levels() {
			b.Run(fmt.Sprint(name, "/", l), func(b *testing.B) {
				b.SetBytes(4 * n)
				for b.Loop() {
					loops[name](l, dst, x, y)
				}
			})
		}
	}
}
