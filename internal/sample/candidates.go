// SPDX-License-Identifier: MIT OR Apache-2.0

package sample

import "math"

// candidates are the tokens that may still be drawn, in order of id.
type candidates struct {
	ids    []int32
	xs     []float32 // (logit - max) / temperature, in [cutoff, 0]
	ws     []float32 // exp(xs), after weigh
	total  float64   // sum of ws
	bucket [1 << 11]float64
}

// gather takes the tokens whose x is at least low.
func (c *candidates) gather(l []float32, top, scale, low float32) {
	if cap(c.ids) < len(l) {
		c.ids, c.xs, c.ws = make([]int32, len(l)), make([]float32, len(l)), make([]float32, len(l))
	}
	ids, xs := c.ids[:len(l)], c.xs[:len(l)]
	n := 0
	for i, v := range l {
		if x := (v - top) * scale; x >= low {
			ids[n], xs[n] = int32(i), x
			n++
		}
	}
	c.ids, c.xs, c.ws = ids[:n], xs[:n], c.ws[:0]
}

// weigh computes the weights.
func (c *candidates) weigh() {
	c.ws = c.ws[:len(c.xs)]
	c.total = 0
	for i, x := range c.xs {
		w := exp(x)
		c.ws[i] = w
		c.total += float64(w)
	}
}

// pick is the first token whose running sum of weights exceeds r.
func (c *candidates) pick(r float64) int32 {
	sum := 0.0
	for i, w := range c.ws {
		if sum += float64(w); sum > r {
			return c.ids[i]
		}
	}
	return c.ids[len(c.ids)-1]
}

// The order (x falling, id rising) is found by a radix select: key(x) rises as x falls, and each round histograms one
// digit of the keys that share the boundary's higher digits.
var digits = [3]struct{ shift, bits int }{{20, 11}, {9, 11}, {0, 9}}

// key is the bits of |x|; for x <= 0 they rise as x falls.
func key(x float32) uint32 { return math.Float32bits(x) &^ (1 << 31) }

// keepCount keeps the first k in order.
func (c *candidates) keepCount(k int) {
	last, ties := c.boundary(float64(k), nil)
	c.keep(last, ties)
}

// keepMass keeps the shortest head in order that weighs at least mass, and at least one token.
func (c *candidates) keepMass(mass float64) {
	last, ties := c.boundary(mass, c.ws)
	c.keep(last, ties)
	c.total = 0
	for _, w := range c.ws {
		c.total += float64(w)
	}
}

// boundary finds the shortest head in order that weighs at least goal; ws nil counts each token as 1. It gives the key of
// the head's last token and how many tokens of that key belong to it.
func (c *candidates) boundary(goal float64, ws []float32) (last uint32, ties int) {
	before := 0.0 // weight of the keys below the prefix
	var prefix uint32
	for _, d := range digits {
		clear(c.bucket[:])
		high := prefix >> (d.shift + d.bits)
		for i, x := range c.xs {
			k := key(x)
			if k>>(d.shift+d.bits) != high {
				continue
			}
			w := 1.0
			if ws != nil {
				w = float64(ws[i])
			}
			c.bucket[k>>d.shift&(1<<d.bits-1)] += w
		}
		// The last bucket that has anything ends the search even when rounding left the sum below the goal.
		digit, filled := 0, before
		for b, w := range c.bucket {
			if w == 0 {
				continue
			}
			before, filled, digit = filled, filled+w, b
			if filled >= goal {
				break
			}
		}
		prefix |= uint32(digit) << d.shift
	}
	for i, x := range c.xs {
		if key(x) == prefix && (before < goal || ties == 0) {
			ties++
			if ws == nil {
				before++
			} else {
				before += float64(ws[i])
			}
		}
	}
	return prefix, ties
}

// keep drops the tokens whose key is beyond last, and those of that key beyond the first so many.
func (c *candidates) keep(last uint32, ties int) {
	n := 0
	weighed := len(c.ws) == len(c.xs)
	for i, x := range c.xs {
		k := key(x)
		if k > last {
			continue
		}
		if k == last {
			if ties == 0 {
				continue
			}
			ties--
		}
		c.ids[n], c.xs[n] = c.ids[i], x
		if weighed {
			c.ws[n] = c.ws[i]
		}
		n++
	}
	c.ids, c.xs = c.ids[:n], c.xs[:n]
	if weighed {
		c.ws = c.ws[:n]
	}
}
