// SPDX-License-Identifier: MIT OR Apache-2.0

package sample

import "math"

// cutoff is the x below which exp(x) counts as zero: 2^20 such tokens together are less likely than 1e-7.
const cutoff = -30

// powers are 2^(i/256).
var powers = func() (p [256]float64) {
	for i := range p {
		p[i] = math.Exp2(float64(i) / 256)
	}
	return
}()

// exp is e^x for x in [cutoff, 0], with relative error below 1e-9: e^x = 2^(n/256) * e^r with |r| <= ln(2)/512, the power
// from a table and e^r by three terms of its series.
func exp(x float32) float64 {
	const (
		scale    = 256 / math.Ln2
		rounding = 3 << 51 // adding it rounds a small float64 to an integer in its low bits
	)
	t := float64(float64(x)*scale) + rounding
	n := int64(math.Float64bits(t))
	r := float64(x) - float64((t-rounding)*(1/scale))
	power := math.Float64frombits(math.Float64bits(powers[uint8(n)]) + uint64(n>>8)<<52)
	return power + float64(power*float64(r*(1+float64(0.5*r))))
}
