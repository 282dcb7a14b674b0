// SPDX-License-Identifier: MIT OR Apache-2.0

package vec

// Delta runs one token of the gated delta rule on columns of a state, for package recur: with S = s, rows stride apart, one row
// per element of k and as many columns as v has,
//
//	S *= decay;  d = beta*(v - Sᵀk);  S += k dᵀ;  y = Sᵀq
//
// decay has one value for all rows or one for each. Sums run over rows in order.
func (l Level) Delta(s []float32, stride int, y, q, k, v, decay []float32, beta float32) {
	l.linearStep(s, stride, y, q, k, v, decay, beta, true)
}

// Scan is Delta without what the state holds: d = beta*v.
func (l Level) Scan(s []float32, stride int, y, q, k, v, decay []float32, beta float32) {
	l.linearStep(s, stride, y, q, k, v, decay, beta, false)
}

// linearStep is Delta, or Scan where the state is not read before it is written.
func (l Level) linearStep(s []float32, stride int, y, q, k, v, decay []float32, beta float32, read bool) {
	if l != Go && len(v)%16 == 0 && len(k) > 0 {
		l.delta(s, stride, y, q, k, v, decay, beta, read)
		return
	}
	n, each := len(v), decay[0]
	clear(y)
	for i, x := range k {
		if len(decay) > 1 {
			each = decay[i]
		}
		row := s[i*stride:][:n]
		for j, e := range row {
			e *= each
			row[j] = e
			y[j] += float32(e * x)
		}
	}
	for j := range y { // y holds Sᵀk; a column needs only its own delta from here
		d := beta * v[j]
		if read {
			d = beta * (v[j] - y[j])
		}
		var o float32
		for i, x := range k {
			e := s[i*stride+j] + float32(x*d)
			s[i*stride+j] = e
			o += float32(e * q[i])
		}
		y[j] = o
	}
}
