// SPDX-License-Identifier: MIT OR Apache-2.0

package vec

// GluLimited is Glu with the gate limited from above to limit and up to ±limit; 0 is no limit. Forms of the activation:
//
//	SiluThenLimit  min(silu(g), limit) * clamp(u)
//	SwigluOAI      x*sigmoid(1.702x) * (clamp(u) + 1) with x = min(g, limit)
//	others         act(min(g, limit)) * clamp(u)
//
// Each element's result depends on that element only.
func (l Level) GluLimited(a Act, limit float32, dst, g, u []float32) {
	if limit == 0 && a != SiluThenLimit && a != SwigluOAI {
		l.Glu(a, dst, g, u)
		return
	}
	var buf [3][64]float32
	for at := 0; at < len(g); at += len(buf[0]) {
		n := min(len(buf[0]), len(g)-at)
		x, y, out := buf[0][:n], buf[1][:n], dst[at:at+n]
		copy(x, g[at:])
		copy(y, u[at:])
		if limit != 0 {
			clamp(y, -limit, limit)
		}
		if limit != 0 && a != SiluThenLimit {
			atMost(x, limit)
		}
		switch a {
		case SiluThenLimit:
			l.Apply(Silu, x, x)
			if limit != 0 {
				atMost(x, limit)
			}
			l.Mul(out, x, y)
		case SwigluOAI:
			s := buf[2][:n]
			l.Scale(s, x, 1.702)
			l.Apply(Sigmoid, s, s)
			l.Mul(x, x, s)
			for i := range y {
				y[i]++
			}
			l.Mul(out, x, y)
		default:
			l.Glu(a, out, x, y)
		}
	}
}

func atMost(x []float32, limit float32) {
	for i, v := range x {
		x[i] = min(v, limit)
	}
}

func clamp(x []float32, lo, hi float32) {
	for i, v := range x {
		x[i] = min(max(v, lo), hi)
	}
}
