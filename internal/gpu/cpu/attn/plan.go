// SPDX-License-Identifier: MIT OR Apache-2.0

package attn

// tile is consecutive rows [lo, hi) of one sequence.
type tile struct {
	lo, hi      int
	first, last int // positions of the keys that some row sees; of one row with a list, places there
	seg0, seg1  int // segments of those keys
	part        int // its first state in parts
}

func (t *tile) rows() int { return t.hi - t.lo }

// plan is how a step is cut into tasks. It keeps its memory from step to step.
//
// With many tiles a task is a tile under one KV head. With few, as one sequence that decodes over a long context, a task is
// one segment of those, kept in parts, and Finish merges them: in the same order as a task that has the whole tile.
type plan struct {
	tiles []tile
	work  int
	cut   bool
	jobs  []job
	parts sums
}

// job is one segment of a tile.
type job struct{ tile, seg int }

// Plan cuts the step's rows into tasks for that many workers and gives the number of them.
func (c *Call) Plan(rows, workers int) int {
	c.tiles, c.jobs, c.work = c.tiles[:0], c.jobs[:0], 0
	segments, states := 0, 0
	most := c.tileRows()
	for lo := 0; lo < rows; {
		hi := lo + 1
		for !c.lists() && hi < rows && hi-lo < most && c.RowSeq[hi] == c.RowSeq[lo] && c.Positions[hi] == c.Positions[hi-1]+1 {
			hi++
		}
		t := tile{lo: lo, hi: hi, last: c.sees(hi - 1), part: states}
		if c.Window > 0 {
			t.first = max(0, int(c.Positions[lo])-c.Window+1)
		}
		t.seg0, t.seg1 = t.first/segment, t.last/segment+1
		c.tiles = append(c.tiles, t)
		c.work += (hi - lo) * (t.last + 1 - t.first)
		segments += t.seg1 - t.seg0
		states += (t.seg1 - t.seg0) * t.rows() * c.Heads
		lo = hi
	}
	c.cut = len(c.tiles)*c.KVHeads < 4*workers && segments > len(c.tiles) && workers > 1
	if !c.cut {
		return len(c.tiles) * c.KVHeads
	}
	c.parts.grow(states, c.VDim)
	for i, t := range c.tiles {
		for seg := t.seg0; seg < t.seg1; seg++ {
			c.jobs = append(c.jobs, job{i, seg})
		}
	}
	return len(c.jobs) * c.KVHeads
}

// Work is about the number of multiply-adds of the step that Plan saw.
func (c *Call) Work() int { return c.work * c.Heads * (c.HeadDim + c.VDim) }

// Run computes task i of Plan. Tasks of the last rows come first: in a prompt they are the longest.
func (c *Call) Run(i int, w *Scratch) {
	head := i % c.KVHeads
	if i /= c.KVHeads; !c.cut {
		c.tile(&c.tiles[len(c.tiles)-1-i], head, w)
		return
	}
	j := c.jobs[i]
	t := &c.tiles[j.tile]
	c.segment(t, head, j.seg, w)
	at, n := c.part(t, head, j.seg), t.rows()*c.group()
	copy(c.parts.top[at:], w.sums.top[:n])
	copy(c.parts.sum[at:], w.sums.sum[:n])
	copy(c.parts.o[at*c.VDim:], w.sums.o[:n*c.VDim])
}

// Finish merges what the tasks of Plan left in parts. It is quick.
func (c *Call) Finish() {
	if !c.cut {
		return
	}
	for i := range c.tiles {
		t := &c.tiles[i]
		for head := range c.KVHeads {
			total := c.part(t, head, t.seg0)
			for seg := t.seg0 + 1; seg < t.seg1; seg++ {
				c.merge(&c.parts, total, &c.parts, c.part(t, head, seg), t.rows()*c.group())
			}
			c.finish(t, head, &c.parts, total)
		}
	}
}

// part is the first state of a segment of a tile under a KV head.
func (c *Call) part(t *tile, head, seg int) int {
	return t.part + ((seg-t.seg0)*c.KVHeads+head)*t.rows()*c.group()
}
