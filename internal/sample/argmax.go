// SPDX-License-Identifier: MIT OR Apache-2.0

package sample

import (
	"math"

	"github.com/metrale/metrale/internal/diag"
)

var negInf = float32(math.Inf(-1))

// argmax is the largest logit's lowest id, or an error when the row has a NaN or +Inf, or nothing above -Inf.
//
// !(v <= best) is true for a larger v and for a NaN, so one comparison per element finds both.
func argmax(l []float32) (int32, error) {
	best, at := negInf, -1
	i := 0
	for ; i+8 <= len(l); i += 8 {
		v := l[i : i+8 : i+8]
		if v[0] <= best && v[1] <= best && v[2] <= best && v[3] <= best &&
			v[4] <= best && v[5] <= best && v[6] <= best && v[7] <= best {
			continue
		}
		for j, x := range v {
			if !(x <= best) {
				if x != x {
					return 0, errNotFinite(x, i+j)
				}
				best, at = x, i+j
			}
		}
	}
	for ; i < len(l); i++ {
		if x := l[i]; !(x <= best) {
			if x != x {
				return 0, errNotFinite(x, i)
			}
			best, at = x, i
		}
	}
	switch {
	case at < 0:
		return 0, diag.Errorf(diag.Internal, "no token is allowed: every logit is -Inf")
	case math.IsInf(float64(best), 1):
		return 0, errNotFinite(best, at)
	}
	return int32(at), nil
}

func errNotFinite(v float32, id int) error {
	return diag.Errorf(diag.Internal, "the model computed %v as the logit of token %d", v, id)
}
