// SPDX-License-Identifier: MIT OR Apache-2.0

package vec

//go:noescape
func scores4AVX512(s *float32, stride int, q0, q1, q2, q3, k0, k1 *float32, dim int)

//go:noescape
func scores4AVX2(s *float32, stride int, q0, q1, q2, q3, k0, k1 *float32, dim int)

//go:noescape
func scores1AVX512(s, q, k0, k1, k2, k3 *float32, dim int)

//go:noescape
func scores1AVX2(s, q, k0, k1, k2, k3 *float32, dim int)

//go:noescape
func weighAVX512(s *float32, n int, scale, top float32, sum *float32) (newTop, alpha float32)

//go:noescape
func weighAVX2(s *float32, n int, scale, top float32, sum *float32) (newTop, alpha float32)

//go:noescape
func weighted4AVX512(o *float32, ostride int, p *float32, pstride int, alpha *float32, v *[]float32, keys, dim int)

//go:noescape
func weighted4AVX2(o *float32, ostride int, p *float32, pstride int, alpha *float32, v *[]float32, keys, dim int)

//go:noescape
func weighted1AVX512(o, p *float32, alpha float32, v *[]float32, keys, dim int)

//go:noescape
func weighted1AVX2(o, p *float32, alpha float32, v *[]float32, keys, dim int)

// quads says how many of n rows go through the four-row loops: three left over are four with a spare.
func quads(n int) int {
	if n%4 == 3 {
		return n + 1
	}
	return n &^ 3
}

func (l Level) scores(s []float32, stride int, q, k [][]float32) {
	n := quads(len(q))
	for r := 0; r < n; r += 4 {
		l.scoresOf4(s[r*stride:(r+4)*stride], stride, q[r], q[r+1], q[r+2], q[min(r+3, len(q)-1)], k)
	}
	for r := n; r < len(q); r++ {
		l.scoresOf1(s[r*stride:(r+1)*stride], q[r], k)
	}
}

// scoresOf4 takes the blocks by twos; an odd one goes first, so that what it writes twice is written again.
func (l Level) scoresOf4(s []float32, stride int, q0, q1, q2, q3 []float32, k [][]float32) {
	dim := len(q0)
	if l == AVX2 {
		for b, k := range k {
			scores4AVX2(&s[b*KeyBlock], stride, &q0[0], &q1[0], &q2[0], &q3[0], &k[0], &k[8], dim)
		}
		return
	}
	b := len(k) & 1
	if b == 1 {
		scores4AVX512(&s[0], stride, &q0[0], &q1[0], &q2[0], &q3[0], &k[0][0], &k[0][0], dim)
	}
	for ; b < len(k); b += 2 {
		scores4AVX512(&s[b*KeyBlock], stride, &q0[0], &q1[0], &q2[0], &q3[0], &k[b][0], &k[b+1][0], dim)
	}
}

// scoresOf1 takes the blocks by four vectors; a last part goes through a copy.
func (l Level) scoresOf1(s, q []float32, k [][]float32) {
	var t [4 * KeyBlock]float32
	if l == AVX2 {
		for b := 0; b < len(k); b += 2 {
			k0, k1 := k[b], k[min(b+1, len(k)-1)]
			scores1AVX2(&t[0], &q[0], &k0[0], &k0[8], &k1[0], &k1[8], len(q))
			copy(s[b*KeyBlock:len(k)*KeyBlock], t[:2*KeyBlock])
		}
		return
	}
	for b := 0; b < len(k); b += 4 {
		at := func(i int) *float32 { return &k[min(b+i, len(k)-1)][0] }
		scores1AVX512(&t[0], &q[0], at(0), at(1), at(2), at(3), len(q))
		copy(s[b*KeyBlock:len(k)*KeyBlock], t[:])
	}
}

func (l Level) weigh(s []float32, scale, top float32, sum *[KeyBlock]float32) (newTop, alpha float32) {
	if l == AVX2 {
		return weighAVX2(&s[0], len(s), scale, top, &sum[0])
	}
	return weighAVX512(&s[0], len(s), scale, top, &sum[0])
}

func (l Level) weighted(o []float32, dim int, p []float32, stride int, alpha []float32, v [][]float32, keys int) {
	_ = v[(keys-1)/KeyBlock]
	rows := len(alpha)
	n := quads(rows)
	alpha = alpha[:max(n, rows)]
	_, _ = o[:max(n, rows)*dim], p[:max(n, rows)*stride]
	for r := 0; r < n; r += 4 {
		if l == AVX2 {
			weighted4AVX2(&o[r*dim], dim, &p[r*stride], stride, &alpha[r], &v[0], keys, dim)
		} else {
			weighted4AVX512(&o[r*dim], dim, &p[r*stride], stride, &alpha[r], &v[0], keys, dim)
		}
	}
	for r := n; r < rows; r++ {
		if l == AVX2 {
			weighted1AVX2(&o[r*dim], &p[r*stride], alpha[r], &v[0], keys, dim)
		} else {
			weighted1AVX512(&o[r*dim], &p[r*stride], alpha[r], &v[0], keys, dim)
		}
	}
}
