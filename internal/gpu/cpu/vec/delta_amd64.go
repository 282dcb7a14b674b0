// SPDX-License-Identifier: MIT OR Apache-2.0

package vec

//go:noescape
func deltaAVX512(s *float32, stride int, y, q, k, v *float32, rows, cols int, decay, beta float32)

//go:noescape
func deltaAVX2(s *float32, stride int, y, q, k, v *float32, rows, cols int, decay, beta float32)

func (l Level) delta(s []float32, stride int, y, q, k, v []float32, decay, beta float32) {
	rows, cols := len(k), len(v)
	if cols == 0 {
		return
	}
	_, _, _ = s[(rows-1)*stride+cols-1], y[cols-1], q[rows-1]
	if l == AVX512 {
		deltaAVX512(&s[0], stride, &y[0], &q[0], &k[0], &v[0], rows, cols, decay, beta)
	} else {
		deltaAVX2(&s[0], stride, &y[0], &q[0], &k[0], &v[0], rows, cols, decay, beta)
	}
}
