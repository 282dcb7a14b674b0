// SPDX-License-Identifier: MIT OR Apache-2.0

package sample

import "math"

// cutoff is the x below which exp(x) counts as zero: 2^20 such tokens together are less likely than 1e-7.
const cutoff = -30

// exp is e^x for x in [cutoff, 0], with relative error below 1e-6: e^x = 2^n * e^r with |r| <= ln(2)/2, e^r by a
// polynomial (Cephes' expf).
func exp(x float32) float32 {
	const (
		log2e    = 1.44269504088896341
		ln2hi    = 0.693359375
		ln2lo    = -2.12194440e-4
		rounding = 3 << 22 // adding it rounds a small float32 to an integer in its low bits
	)
	t := float32(x*log2e) + rounding
	n := int32(math.Float32bits(t)) - int32(math.Float32bits(rounding))
	f := t - rounding
	r := float32(x-float32(f*ln2hi)) - float32(f*ln2lo)
	p := float32(1.9875691500e-4)
	p = float32(p*r) + 1.3981999507e-3
	p = float32(p*r) + 8.3334519073e-3
	p = float32(p*r) + 4.1665795894e-2
	p = float32(p*r) + 1.6666665459e-1
	p = float32(p*r) + 5.0000001201e-1
	y := float32(float32(p*r)*r) + r + 1
	return y * math.Float32frombits(uint32(n+127)<<23)
}
