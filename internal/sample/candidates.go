// SPDX-License-Identifier: MIT OR Apache-2.0

package sample

import (
	"cmp"
	"math"
	"slices"
)

// candidates are the tokens that may still be drawn, in order of id.
type candidates struct {
	ids     []int32
	xs      []float32 // (logit - max) / temperature, in [cutoff, 0]
	ws      []float32 // exp(xs), after weigh
	blocks  []float64 // sums of blockSize ws
	total   float64   // sum of blocks
	members []int32   // indices of the tokens in one bucket
	bucket  [1 << 11]float64
}

// blockSize is how many weights pick skips at a time.
const blockSize = 64

// gather takes the tokens whose x is at least low.
func (c *candidates) gather(l []float32, top, scale, low float32) {
	if cap(c.ids) < len(l) {
		c.ids, c.xs, c.ws = make([]int32, len(l)), make([]float32, len(l)), make([]float32, len(l))
		c.blocks = make([]float64, 0, len(l)/blockSize+1)
	}
	ids, xs := c.ids[:len(l)], c.xs[:len(l)]
	n := 0
	pass := func(i int, v float32) {
		// Write first and count afterwards: which tokens pass may be hard to predict.
		x := (v - top) * scale
		ids[n], xs[n] = int32(i), x
		if x >= low {
			n++
		}
	}
	// Most rows have few tokens near the best: skip blocks that are clearly below. The margin is for rounding.
	floor := top + low/scale
	floor -= 1e-5 * (abs(floor) + abs(top))
	i := 0
	for ; i+8 <= len(l); i += 8 {
		v := l[i : i+8 : i+8]
		if v[0] < floor && v[1] < floor && v[2] < floor && v[3] < floor &&
			v[4] < floor && v[5] < floor && v[6] < floor && v[7] < floor {
			continue
		}
		for j, v := range v {
			pass(i+j, v)
		}
	}
	for ; i < len(l); i++ {
		pass(i, l[i])
	}
	c.ids, c.xs, c.ws = ids[:n], xs[:n], c.ws[:0]
}

func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// weigh computes the weights.
func (c *candidates) weigh() {
	c.ws = c.ws[:len(c.xs)]
	for i, x := range c.xs {
		c.ws[i] = float32(exp(x))
	}
	c.sum()
}

// sum adds up the weights.
func (c *candidates) sum() {
	c.blocks, c.total = c.blocks[:0], 0
	for ws := c.ws; len(ws) > 0; {
		block := ws[:min(blockSize, len(ws))]
		ws = ws[len(block):]
		var s [4]float64
		i := 0
		for ; i+4 <= len(block); i += 4 {
			b := block[i : i+4 : i+4]
			s[0] += float64(b[0])
			s[1] += float64(b[1])
			s[2] += float64(b[2])
			s[3] += float64(b[3])
		}
		for ; i < len(block); i++ {
			s[0] += float64(block[i])
		}
		all := s[0] + s[1] + (s[2] + s[3])
		c.blocks = append(c.blocks, all)
		c.total += all
	}
}

// pick is the first token at which the running sum of weights exceeds r.
func (c *candidates) pick(r float64) int32 {
	b := 0
	for b < len(c.blocks)-1 && c.blocks[b] <= r {
		r -= c.blocks[b]
		b++
	}
	for i := b * blockSize; i < len(c.ws); i++ {
		if r -= float64(c.ws[i]); r < 0 {
			return c.ids[i]
		}
	}
	return c.ids[len(c.ids)-1]
}

// keepCount keeps the first k in order.
func (c *candidates) keepCount(k int) { c.keep(c.boundary(float64(k), nil)) }

// keepMass keeps the shortest head in order that weighs at least mass, and at least one token.
func (c *candidates) keepMass(mass float64) {
	c.keep(c.boundary(mass, c.ws))
	c.sum()
}

// key rises as x falls.
func key(x float32) uint32 { return math.Float32bits(abs(x)) }

// fewMembers is how many tokens are sorted without a histogram first.
const fewMembers = 128

// boundary finds the shortest head in the order (x falling, id rising) that weighs at least goal; ws nil counts each token
// as 1. It gives the key of the head's last token and how many tokens of that key belong to it. Only the tokens of one
// bucket of a histogram over x, the one in which the head ends, are sorted.
func (c *candidates) boundary(goal float64, ws []float32) (last uint32, ties int) {
	c.members = c.members[:0]
	before := 0.0 // weight of what comes before the members
	if len(c.xs) <= fewMembers {
		for i := range c.xs {
			c.members = append(c.members, int32(i))
		}
	} else {
		before = c.crossing(goal, ws)
	}
	slices.SortFunc(c.members, func(a, b int32) int {
		return cmp.Compare(key(c.xs[a]), key(c.xs[b])) // equal ones weigh the same, and keep takes the first of them
	})
	for _, i := range c.members {
		if k := key(c.xs[i]); k == last {
			ties++
		} else {
			last, ties = k, 1
		}
		if before += weight(ws, i); before >= goal {
			break
		}
	}
	return last, ties
}

func weight(ws []float32, i int32) float64 {
	if ws == nil {
		return 1
	}
	return float64(ws[i])
}

// crossing makes members the tokens of the bucket in which the head ends, and gives the weight before it.
func (c *candidates) crossing(goal float64, ws []float32) float64 {
	least := float32(-1e-30)
	for _, x := range c.xs {
		if x < least {
			least = x
		}
	}
	scale := float32(len(c.bucket)-1) / least
	clear(c.bucket[:])
	for i, x := range c.xs {
		c.bucket[uint32(int32(x*scale))%uint32(len(c.bucket))] += weight(ws, int32(i))
	}
	// The last bucket with anything in it is the one when rounding leaves the sum below goal.
	at, before, filled := int32(0), 0.0, 0.0
	for b, w := range c.bucket {
		if w == 0 {
			continue
		}
		at, before, filled = int32(b), filled, filled+w
		if filled >= goal {
			break
		}
	}
	for i, x := range c.xs {
		if int32(x*scale) == at {
			c.members = append(c.members, int32(i))
		}
	}
	return before
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
