// SPDX-License-Identifier: MIT OR Apache-2.0

package sample

import (
	"cmp"
	"math"
	"slices"
)

// candidates are the tokens that may still be drawn. They lie by id; their order is by logit falling, then by id rising.
type candidates struct {
	l       []float32 // the row
	ids     []int32
	xs      []float32 // (logit - max) * scale, at least low
	ws      []uint64  // masses, after weigh
	members []int32   // indices of the tokens among which a sum is reached, in order
	scale   float32   // from x to a bucket
	bucket  [1 << 11]uint64
}

// gather takes the tokens whose x is at least low.
func (c *candidates) gather(l []float32, top, scale, low float32) {
	if cap(c.ids) < len(l) {
		c.ids, c.xs, c.ws = make([]int32, len(l)), make([]float32, len(l)), make([]uint64, len(l))
	}
	c.l = l
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
	c.ids, c.xs = ids[:n], xs[:n]
}

func abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// keep keeps the first k in order.
func (c *candidates) keep(k uint64) {
	least := float32(0)
	for _, x := range c.xs {
		least = min(least, x)
	}
	c.order(nil, least)
	last, _ := c.reach(k, nil)
	v, id := c.l[c.ids[last]], c.ids[last]
	n := 0
	for i, at := range c.ids {
		if u := c.l[at]; u > v || u == v && at <= id {
			c.ids[n], c.xs[n] = at, c.xs[i]
			n++
		}
	}
	c.ids, c.xs = c.ids[:n], c.xs[:n]
}

// weigh computes the masses, prepares reach for them, and gives their sum.
func (c *candidates) weigh() (total uint64) {
	c.ws = c.ws[:len(c.xs)]
	least := float32(0)
	for i, x := range c.xs {
		if x < least {
			least = x
		}
		w := mass(x)
		c.ws[i] = w
		total += w
	}
	c.order(c.ws, least)
	return total
}

// fewMembers is how many tokens are sorted without a histogram first.
const fewMembers = 128

// order prepares reach: few candidates are sorted, many are added up in buckets over x, each of them once when ws is nil.
func (c *candidates) order(ws []uint64, least float32) {
	if len(c.xs) <= fewMembers {
		c.members = c.members[:0]
		for i := range c.xs {
			c.members = append(c.members, int32(i))
		}
		c.sort()
		return
	}
	c.scale = float32(len(c.bucket)-1) / min(least, -1e-30)
	clear(c.bucket[:])
	for i, x := range c.xs {
		c.bucket[uint32(c.bucketOf(x))%uint32(len(c.bucket))] += weight(ws, int32(i))
	}
}

func (c *candidates) bucketOf(x float32) int32 { return int32(x * c.scale) }

func weight(ws []uint64, i int32) uint64 {
	if ws == nil {
		return 1
	}
	return ws[i]
}

// reach finds the candidate at which the running sum in order reaches goal, at least 1 and at most the total, and gives that
// sum. Of many, only those of the bucket in which that happens are sorted.
func (c *candidates) reach(goal uint64, ws []uint64) (last int32, sum uint64) {
	if len(c.xs) > fewMembers {
		at := 0
		for sum+c.bucket[at] < goal {
			sum += c.bucket[at]
			at++
		}
		c.members = c.members[:0]
		for i, x := range c.xs {
			if c.bucketOf(x) == int32(at) {
				c.members = append(c.members, int32(i))
			}
		}
		c.sort()
	}
	for _, i := range c.members {
		if sum += weight(ws, i); sum >= goal {
			return i, sum
		}
	}
	panic("sample: a sum beyond the total")
}

func (c *candidates) sort() {
	slices.SortFunc(c.members, func(a, b int32) int {
		return cmp.Or(cmp.Compare(c.l[c.ids[b]], c.l[c.ids[a]]), cmp.Compare(a, b))
	})
}
