// SPDX-License-Identifier: MIT OR Apache-2.0

package vec

import "math"

// The inner steps of attention, for package attn. Keys come in blocks [dim][16] (vector j of dimension d is keys 0…15), values
// in blocks [16][dim]. A step's rows of scores are stride elements apart.

// KeyBlock is the number of keys in a block.
const KeyBlock = 16

// Scores computes s[r*stride + b*16 + j] = q[r]·k[b][j] for every query and block. A row of s has room for one block more
// than there are, which may be overwritten; with three queries (or 4n+3), so may the row after the last.
func (l Level) Scores(s []float32, stride int, q [][]float32, k [][]float32) {
	if l != Go && len(k) > 0 {
		l.scores(s, stride, q, k)
		return
	}
	for r, q := range q {
		for b, k := range k {
			row := s[r*stride+b*KeyBlock:][:KeyBlock]
			clear(row)
			for d, x := range q {
				for j, y := range k[d*KeyBlock:][:KeyBlock] {
					row[j] += float32(x * y)
				}
			}
		}
	}
}

// Weigh turns scores into weights of an online softmax and moves its sum:
//
//	newTop = max(top, max(s)*scale);  s = exp(s*scale - newTop);  alpha = exp(top - newTop);  sum = sum*alpha + s, by key mod 16
//
// len(s) is a multiple of 16, scale is positive, some score is finite. Scores of -Inf get weight 0.
func (l Level) Weigh(s []float32, scale, top float32, sum *[KeyBlock]float32) (newTop, alpha float32) {
	if l != Go {
		return l.weigh(s, scale, top, sum)
	}
	newTop = float32(math.Inf(-1))
	for _, x := range s {
		newTop = max(newTop, x)
	}
	newTop = max(top, newTop*scale)
	alpha = exp32(top - newTop)
	for j := range sum {
		sum[j] *= alpha
	}
	for i, x := range s {
		s[i] = exp32(float32(x*scale) - newTop)
		sum[i%KeyBlock] += s[i]
	}
	return newTop, alpha
}

// Weighted computes o[r] = o[r]*alpha[r] + Σ_j p[r*stride+j] v[j] for len(alpha) rows o [rows][dim] and the first keys of the
// blocks v, key by key. With 4n+3 rows, the row after the last may be overwritten in o, and one more alpha is read.
func (l Level) Weighted(o []float32, dim int, p []float32, stride int, alpha []float32, v [][]float32, keys int) {
	if l != Go && dim%16 == 0 && keys > 0 {
		l.weighted(o, dim, p, stride, alpha, v, keys)
		return
	}
	for r, a := range alpha {
		o := o[r*dim : (r+1)*dim]
		for i := range o {
			o[i] *= a
		}
		for j, w := range p[r*stride:][:keys] {
			for i, x := range v[j/KeyBlock][j%KeyBlock*dim:][:dim] {
				o[i] += float32(w * x)
			}
		}
	}
}
