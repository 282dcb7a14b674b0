// SPDX-License-Identifier: MIT OR Apache-2.0

package sample

import "math"

// Sums over a row's logits are float64 in one tree, which a device follows:
//
//	8 logits that lie together   in order, from 0
//	32 eights                    halves onto halves: i + (i+16), then i + (i+8), …
//	16 of these: a tile          in order
//	tiles                        every 32nd in order, then halves onto halves
const (
	eight    = 8
	lanes    = 32
	warps    = 16
	tileSize = eight * lanes * warps
)

// deviation is the standard deviation of the logits above -Inf, of which there is at least one.
func deviation(l []float32) float64 {
	n := 0
	var sum, squares [lanes]float64
	for tile := 0; tile*tileSize < len(l); tile++ {
		rest := l[tile*tileSize:]
		var s, q float64
		for w := 0; w < warps && w*lanes*eight < len(rest); w++ {
			var ls, lq [lanes]float64
			for i := 0; i < lanes && (w*lanes+i)*eight < len(rest); i++ {
				at := (w*lanes + i) * eight
				for _, v := range rest[at:min(at+eight, len(rest))] {
					if v > negInf {
						n++
						ls[i] += float64(v)
						lq[i] += float64(v) * float64(v) // exact, so a fused addition is the same
					}
				}
			}
			s, q = s+fold(&ls), q+fold(&lq)
		}
		sum[tile%lanes] += s
		squares[tile%lanes] += q
	}
	mean := fold(&sum) / float64(n)
	return math.Sqrt(max(0, fold(&squares)/float64(n)-float64(mean*mean)))
}

// fold adds halves onto halves.
func fold(v *[lanes]float64) float64 {
	for d := lanes / 2; d > 0; d /= 2 {
		for i := range d {
			v[i] += v[i+d]
		}
	}
	return v[0]
}
