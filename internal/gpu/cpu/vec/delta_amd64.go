// SPDX-License-Identifier: MIT OR Apache-2.0

package vec

//go:noescape
func deltaAVX512(s *float32, stride int, y, q, k, v, decay *float32, step, rows, cols, read int, beta float32)

//go:noescape
func deltaAVX2(s *float32, stride int, y, q, k, v, decay *float32, step, rows, cols, read int, beta float32)

func (l Level) delta(s []float32, stride int, y, q, k, v, decay []float32, beta float32, read bool) {
	rows, cols, step, reads := len(k), len(v), 0, 0
	if cols == 0 {
		return
	}
	if len(decay) > 1 {
		step = 1
	}
	if read {
		reads = 1
	}
	_, _, _, _ = s[(rows-1)*stride+cols-1], y[cols-1], q[rows-1], decay[step*(rows-1)]
	if l == AVX512 {
		deltaAVX512(&s[0], stride, &y[0], &q[0], &k[0], &v[0], &decay[0], step, rows, cols, reads, beta)
	} else {
		deltaAVX2(&s[0], stride, &y[0], &q[0], &k[0], &v[0], &decay[0], step, rows, cols, reads, beta)
	}
}
