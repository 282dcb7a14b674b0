// SPDX-License-Identifier: MIT OR Apache-2.0

package vision

import "math"

// RGB is a picture of 8 bits a channel, row after row.
type RGB struct {
	Width, Height int
	Pix           []byte // [height][width][3]
}

func newRGB(width, height int) *RGB {
	return &RGB{width, height, make([]byte, 3*width*height)}
}

// Resize scales a picture by the bicubic filter with a = -1/2, widened where it shrinks: along rows and along columns, with 8 bits
// a channel in between. These are the bytes of Pillow 13's Image.resize with BICUBIC; older releases go along rows first always,
// which differs by a level here and there.
func Resize(m *RGB, width, height int) *RGB {
	if lost := m.Height - height; lost > 0 && lost > 2*(m.Width-width) {
		return alongRows(alongColumns(m, height), width)
	}
	return alongColumns(alongRows(m, width), height)
}

func alongRows(m *RGB, width int) *RGB {
	if width == m.Width {
		return m
	}
	out := newRGB(width, m.Height)
	taps := tapsOf(m.Width, width)
	for y := range m.Height {
		src, dst := m.Pix[3*y*m.Width:], out.Pix[3*y*width:]
		for x := range taps {
			t := &taps[x]
			sum := [3]int32{half, half, half}
			for i, k := range t.weights {
				p := src[3*(t.first+i):][:3]
				sum[0] += int32(p[0]) * k
				sum[1] += int32(p[1]) * k
				sum[2] += int32(p[2]) * k
			}
			d := dst[3*x:][:3]
			d[0], d[1], d[2] = clip(sum[0]), clip(sum[1]), clip(sum[2])
		}
	}
	return out
}

func alongColumns(m *RGB, height int) *RGB {
	if height == m.Height {
		return m
	}
	out := newRGB(m.Width, height)
	stride := 3 * m.Width
	sums := make([]int32, stride)
	for y, t := range tapsOf(m.Height, height) {
		for i := range sums {
			sums[i] = half
		}
		for i, k := range t.weights {
			for j, v := range m.Pix[(t.first+i)*stride:][:stride] {
				sums[j] += int32(v) * k
			}
		}
		dst := out.Pix[y*stride:][:stride]
		for j, s := range sums {
			dst[j] = clip(s)
		}
	}
	return out
}

// Weights are integers of this many fractional bits.
const (
	precision = 32 - 8 - 2
	half      = 1 << (precision - 1)
)

func clip(sum int32) byte { return byte(min(max(sum>>precision, 0), 255)) }

// taps are the weights of consecutive source pixels for one target pixel.
type taps struct {
	first   int
	weights []int32
}

// tapsOf computes the taps of every target pixel along one axis.
func tapsOf(from, to int) []taps {
	scale := float64(from) / float64(to)
	wide := max(scale, 1)
	support := 2 * wide
	out := make([]taps, to)
	var k []float64
	for x := range out {
		center := (float64(x) + 0.5) * scale
		first := max(int(center-support+0.5), 0)
		n := min(int(center+support+0.5), from) - first
		k = k[:0]
		sum := 0.0
		for i := range n {
			w := bicubic((float64(i+first) - center + 0.5) * (1 / wide))
			k = append(k, w)
			sum += w
		}
		out[x] = taps{first, make([]int32, n)}
		for i, w := range k {
			if sum != 0 {
				w /= sum
			}
			out[x].weights[i] = int32(math.Copysign(math.Floor(math.Abs(w*(1<<precision))+0.5), w))
		}
	}
	return out
}

// bicubic is Keys' filter with a = -1/2.
func bicubic(x float64) float64 {
	const a = -0.5
	switch x = math.Abs(x); {
	case x < 1:
		return float64(float64(float64((a+2)*x)-(a+3))*x)*x + 1
	case x < 2:
		return float64(float64(float64(float64(float64(x-5)*x)+8)*x)-4) * a
	}
	return 0
}
