// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"fmt"
	"math"

	"github.com/metrale/metrale/internal/gpu/cpu/attn"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// axes is the number of a row's coordinates: time, height, width.
const axes = 3

// gridAngles is ropeAngles with a coordinate of its own for each frequency.
func gridAngles(a *args) func() {
	y := a.acts("y", plan.Out, 0)
	half := a.divides("y", y.n, 2)
	freq, axis := a.floats("inv_freq", half), a.floats("axis", half)
	for _, x := range axis {
		if x != 0 && x != 1 && x != 2 {
			a.fail("axis", "it names axis %v", x)
		}
	}
	coords := a.ints("coords", axes*int64(y.max))
	scale := float32(a.float("scale", 1))
	r := a.dev.region(y.n*16, func(lo, hi, _ int) {
		for i := lo; i < hi; i++ {
			row, at := y.row(i), coords[i*axes:(i+1)*axes]
			for j, f := range freq {
				sin, cos := math.Sincos(float64(float32(at[int(axis[j])]) * f)) // rounded as in ropeAngles
				row[j], row[half+j] = float32(cos)*scale, float32(sin)*scale
			}
		}
	})
	return func() { r.run(y.rows()) }
}

// gridEmbed stretches a table [side, side, n] over the image of each row, corners on corners, and looks the row's patch up
// between its four neighbours. Places and weights are float32, as in transformers' vision_utils.py.
func gridEmbed(a *args) func() {
	y := a.acts("y", plan.Out, 0)
	table, side := a.table("w", y.n)
	coords, seqs := a.ints("coords", axes*int64(y.max)), a.ints("row_seq", int64(y.max))
	grids := a.ints("grids", axes*a.b.Limits.Seqs)
	tap := func(row, col int) []float32 { return table[(row*side+col)*y.n:][:y.n] }
	r := a.dev.region(8*y.n, func(lo, hi, _ int) {
		for i := lo; i < hi; i++ {
			at, grid := coords[i*axes:(i+1)*axes], grids[int(seqs[i])*axes:][:axes]
			top, bottom, down := stretch(at[1], grid[1], side)
			left, right, over := stretch(at[2], grid[2], side)
			ul, ur, dl, dr := tap(top, left), tap(top, right), tap(bottom, left), tap(bottom, right)
			wul, wur, wdl, wdr := (1-down)*(1-over), (1-down)*over, down*(1-over), down*over
			for j, row := 0, y.row(i); j < len(row); j++ {
				row[j] = float32(ul[j]*wul) + float32(ur[j]*wur) + float32(dl[j]*wdl) + float32(dr[j]*wdr)
			}
		}
	})
	return func() { r.run(y.rows()) }
}

// table takes a weight [side*side, n].
func (a *args) table(param string, n int) (w []float32, side int) {
	x, ok := a.take(param, plan.In)
	if !ok {
		return nil, 0
	}
	if len(x.Axes) == 2 {
		side = int(math.Sqrt(float64(x.Axes[0].Size)))
	}
	if len(x.Axes) != 2 || int64(side*side) != x.Axes[0].Size || x.Axes[1].Size != int64(n) {
		a.fail(param, "axes %s, want [side*side, %d]", axesString(x.Axes), n)
		return nil, 0
	}
	return stored[float32](a, x, tensor.F32), side
}

// stretch places index i of n on an axis of side points: the points before and after, and how far it is past the first.
func stretch(i, n int32, side int) (before, after int, past float32) {
	if i < 0 || i >= n {
		panic(fmt.Sprintf("patch %d of a row of %d", i, n))
	}
	at := float32(i) * float32(side-1) / float32(max(n-1, 1))
	before = int(at)
	return before, min(before+1, side-1), at - float32(before)
}

// fullScratch holds the keys and values of one launch, packed as package attn wants them. It is the device's, and grows.
type fullScratch struct{ k, v, y []float32 }

// fullAttention packs K and V of each sequence into blocks of their own, and lets every row see all of them. Heads are
// padded with zeros to whole vectors.
func fullAttention(a *args) func() {
	heads, dim := a.size("heads"), a.size("head_dim")
	q := a.acts("q", plan.In, heads*dim)
	k, v := a.actsLike(q, "k", plan.In, heads*dim), a.actsLike(q, "v", plan.In, heads*dim)
	y := a.actsLike(q, "y", plan.Out, heads*dim)
	cu, seqs := a.ints("cu_rows", a.b.Limits.Seqs+1), a.ints("row_seq", int64(q.max))
	scale := float32(a.float("scale"))
	if a.err == nil && !(scale > 0) {
		a.fail("", "attribute scale is %v, want it positive", scale)
	}
	if a.err != nil {
		return nil
	}
	d, wide := a.dev, (dim+attn.Block-1)/attn.Block*attn.Block
	cfg := attn.Config{Heads: heads, KVHeads: heads, HeadDim: dim, VDim: wide, Scale: scale, PageSize: attn.Block, Level: d.level}
	for i := range d.attention {
		d.attention[i].Grow(&cfg)
	}
	f := &fullCall{dev: d, q: q, k: k, v: v, y: y, dim: dim, wide: wide, cu: cu, head: extent{head: a.head, index: headIndex[plan.Seqs], max: int(a.b.Limits.Seqs)}}
	f.call = attn.Call{Config: cfg, Q: q.data, RowSeq: seqs, Positions: make([]int32, q.max), Last: make([]int32, a.b.Limits.Seqs)}
	f.slots = make([]int32, q.max)
	f.pack = d.region(2*q.n, f.packRows)
	f.copy = d.region(q.n, f.copyRows)
	f.task = func(i, worker int) { f.call.Run(i, &d.attention[worker]) }
	return f.run
}

// fullCall is a bound fullAttention.
type fullCall struct {
	dev        *Device
	q, k, v, y matrix
	dim, wide  int // of a head, and padded
	cu         []int32
	head       extent // of sequences
	call       attn.Call
	slots      []int32 // of each row
	pack, copy *region
	task       func(i, worker int)
}

func (f *fullCall) run() {
	rows, seqs, heads := f.q.rows(), f.head.rows(), f.call.Heads
	if rows == 0 {
		return
	}
	blocks := f.place(rows, seqs)
	s := &f.dev.full
	f.call.K = attn.Pool{D: tensor.F32, KVHeads: heads, Dim: f.dim, F32: grown(&s.k, blocks*attn.Block*heads*f.dim)}
	f.call.V = attn.Pool{D: tensor.F32, KVHeads: heads, Dim: f.wide, F32: grown(&s.v, blocks*attn.Block*heads*f.wide)}
	f.call.Y = f.y.data
	if f.wide > f.dim {
		f.call.Y = grown(&s.y, rows*heads*f.wide)
	}
	f.pack.run(rows)
	if n := f.call.Plan(rows, f.dev.pool.Workers()); f.call.Work() < serialAttention {
		for i := range n {
			f.task(i, 0)
		}
	} else {
		f.dev.pool.Run(n, f.task)
	}
	f.call.Finish()
	if f.wide > f.dim {
		f.copy.run(rows)
	}
}

// place gives each sequence whole blocks, one after the other, and counts them.
func (f *fullCall) place(rows, seqs int) (blocks int) {
	c := &f.call
	c.TableStride = (rows + attn.Block - 1) / attn.Block
	if need := seqs * c.TableStride; cap(c.Table) < need {
		c.Table = make([]int32, need)
	}
	c.Table = c.Table[:seqs*c.TableStride]
	for q := range seqs {
		lo, hi := int(f.cu[q]), int(f.cu[q+1])
		if lo < 0 || hi <= lo || hi > rows {
			panic(fmt.Sprintf("sequence %d has rows [%d, %d) of %d", q, lo, hi, rows))
		}
		c.Last[q] = int32(hi - lo - 1)
		for i := lo; i < hi; i++ {
			c.Positions[i], f.slots[i] = int32(i-lo), int32(blocks*attn.Block+i-lo)
		}
		for i := range (hi - lo + attn.Block - 1) / attn.Block {
			c.Table[q*c.TableStride+i] = int32(blocks)
			blocks++
		}
	}
	return blocks
}

func (f *fullCall) packRows(lo, hi, _ int) {
	level := f.dev.level
	for i := lo; i < hi; i++ {
		f.call.K.AppendK(level, f.slots[i], f.k.row(i))
		f.call.V.AppendPadded(f.slots[i], f.v.row(i), f.dim)
	}
}

// copyRows takes the padding away.
func (f *fullCall) copyRows(lo, hi, _ int) {
	for i := lo * f.call.Heads; i < hi*f.call.Heads; i++ {
		copy(f.y.data[i*f.dim:(i+1)*f.dim], f.call.Y[i*f.wide:])
	}
}

// grown is a slice of n elements in the memory of s, whose values are whatever was there.
func grown(s *[]float32, n int) []float32 {
	if cap(*s) < n {
		*s = make([]float32, n)
	}
	return (*s)[:n]
}
