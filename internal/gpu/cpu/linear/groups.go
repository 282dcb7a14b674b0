// SPDX-License-Identifier: MIT OR Apache-2.0

package linear

// Groups computes a block-diagonal product, in the order of Run: rows are sorted by group, multiplied and put back.
func Groups(p Pool, s *Scratch, c *GroupCall) {
	if c.Rows == 0 {
		return
	}
	m := &s.moe
	m.x, m.y, m.first = grow(m.x, c.Rows*c.Groups*c.W.K), grow(m.y, c.Rows*c.Groups*c.W.N), grow(m.first, c.Groups+1)
	for g := range m.first {
		m.first[g] = int32(g * c.Rows)
	}
	for r := range c.Rows {
		for g := range c.Groups {
			copy(m.x[(g*c.Rows+r)*c.W.K:][:c.W.K], c.X[(r*c.Groups+g)*c.W.K:])
		}
	}
	s.stacked(p, c.W, outputs{scale: c.Scale}, c.Groups, c.Compute, m.x, m.y)
	for r := range c.Rows {
		for g := range c.Groups {
			copy(c.Y[(r*c.Groups+g)*c.W.N:][:c.W.N], m.y[(g*c.Rows+r)*c.W.N:])
		}
	}
}
