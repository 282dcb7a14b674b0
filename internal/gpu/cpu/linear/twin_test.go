// SPDX-License-Identifier: MIT OR Apache-2.0

package linear

import (
	"fmt"
	"math"
)

// fma is the float32 a·b+c with one rounding: float64 holds the product exactly, and the sum rounded to odd.
func fma(a, b, c float32) float32 {
	p, q := float64(a)*float64(b), float64(c)
	s := p + q
	t := s - p
	rest := p - (s - t) + (q - t) // s + rest is the exact sum
	if rest != 0 && !math.IsInf(s, 0) && math.Float64bits(s)&1 == 0 {
		if (rest > 0) == (s > 0) {
			s = math.Float64frombits(math.Float64bits(s) + 1)
		} else {
			s = math.Float64frombits(math.Float64bits(s) - 1)
		}
	}
	return float32(s)
}

// twin is the obvious product of one row with a matrix, by the rules of doc.go. It also gives the sum of absolute terms.
func twin(m *matrix, x []float32, compute Compute) (y, size []float32) {
	y, size = make([]float32, m.N), make([]float32, m.N)
	f := formats[m.D]
	for n := range y {
		if compute == F32 || !f.quantised() {
			for k, v := range x {
				w := m.floats[n*m.K+k]
				y[n] = fma(v, w, y[n])
				size[n] += float32(math.Abs(float64(v * w)))
			}
			continue
		}
		first, second := twinDigit(m, f, n, x, size), twinDigit(m, f, n, twinRest(x), size)
		y[n] = first + second
	}
	return y, size
}

// twinRest is what the first digit leaves.
func twinRest(x []float32) []float32 {
	rest := make([]float32, len(x))
	for b := range len(x) / block {
		q, a := twinQuantize(x[b*block:][:block])
		for i := range q {
			rest[b*block+i] = x[b*block+i] - float32(a*float32(q[i]))
		}
	}
	return rest
}

// twinDigit is column n of the product of one digit of x.
func twinDigit(m *matrix, f *format, n int, x, size []float32) (y float32) {
	panel := m.Data[n/lanes*f.panelBytes(m.K):]
	for b := range m.K / block {
		q, a := twinQuantize(x[b*block:][:block])
		rec, i := f.record(panel, b)
		planes := rec[f.planes+i*f.planeBytes():]
		for g := range f.groups() {
			var dot, sum int
			for k := g * f.group; k < (g+1)*f.group; k++ {
				code := int(f.word(planes, k/4, n%lanes) >> (k % 4 * 8) & 255)
				dot += q[k] * (code - f.zero)
				sum += q[k]
			}
			s := f.scale(rec, i*f.groups()+g, n%lanes)
			y = fma(float32(dot), s*a, y)
			size[n] += float32(math.Abs(float64(float32(dot) * s * a)))
			if f.affine {
				low := f.min(rec, i*f.groups()+g, n%lanes)
				y = fma(low, a*float32(sum), y)
				size[n] += float32(math.Abs(float64(low * a * float32(sum))))
			}
		}
	}
	return y
}

func twinQuantize(x []float32) (q [block]int, scale float32) {
	var most float32
	for _, v := range x {
		most = max(most, float32(math.Abs(float64(v))))
	}
	if most == 0 {
		return q, 0
	}
	for i, v := range x {
		q[i] = int(math.RoundToEven(float64(v * (127 / most))))
	}
	return q, most / 127
}

// differs says where a row differs from the twin's: bit for bit, or on path "go", which rounds products and so errs by half
// an ulp of each term more, within what that makes at most.
func differs(path string, got, want, size []float32, terms int) string {
	for i := range want {
		if path != "go" && math.Float32bits(got[i]) == math.Float32bits(want[i]) {
			continue
		}
		tol := float64(size[i]) * float64(terms) * 0x1p-23
		if path != "go" || !(math.Abs(float64(got[i])-float64(want[i])) <= tol) {
			return fmt.Sprintf("column %d is %v (%x), want %v (%x) within %v", i, got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]), tol)
		}
	}
	return ""
}
