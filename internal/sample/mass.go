// SPDX-License-Identifier: MIT OR Apache-2.0

package sample

import (
	"math/bits"
)

const (
	// cutoff is the x below which a token counts as impossible: 2^19 such tokens together are less likely than 1e-7.
	cutoff = -30
	// one is the mass of the likeliest token. The masses of maxVocab tokens add up below 2^64.
	one      = 1 << 44
	maxVocab = 1 << 19
)

// mass is e^x in units of 1/one for x in [cutoff, 0], with relative error below 3e-8 and an absolute one of a unit. After the
// conversion of x everything is integer arithmetic, so every machine gives the same.
//
//	n = -x, rounded down    in units of 2^-26
//	n*log2(e) = e.ir        in units of 2^-57: whole octaves e, 256ths i, the rest r in 24 bits
//	2^-i/256 from a table, 2^-r = 1 - z + z*z/2 with z = r*ln(2) in units of 2^-32
func mass(x float32) uint64 {
	const (
		log2e = 0xB8AA3B29 // in units of 2^-31
		ln2   = 0xB17217F8 // in units of 2^-32
	)
	p := uint64(int64(-x*(1<<26))) * log2e
	z := (p >> 25 & (1<<24 - 1)) * ln2 >> 32
	return uint64(powers[p>>49&255]) * (1<<32 - z + z*z>>33) >> ((p>>57 + 19) & 63)
}

// powers are 2^-i/256 in units of 2^-31, by a polynomial of degree 6 in units of 2^-32: integers again.
var powers = func() (p [256]uint32) {
	const c1, c2, c3, c4, c5, c6 = 0xB17215C4, 0x3D7F584E, 0x0E34AACE, 0x0273DA07, 0x00539DEB, 0x00072C34
	for i := range p {
		f := uint64(i) << 24
		t := c5 - f*c6>>32
		t = c4 - f*t>>32
		t = c3 - f*t>>32
		t = c2 - f*t>>32
		t = c1 - f*t>>32
		p[i] = uint32((1<<32 - f*t>>32) >> 1)
	}
	return
}()

// part is a share of a mass, at least one unit; the share is in units of 2^-64.
func part(of, share uint64) uint64 {
	hi, _ := bits.Mul64(of, share)
	return max(1, hi)
}
