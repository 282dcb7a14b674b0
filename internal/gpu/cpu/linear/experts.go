// SPDX-License-Identifier: MIT OR Apache-2.0

package linear

import "github.com/metrale/metrale/internal/gpu/cpu/vec"

// moe is the memory of a mixture. A slot-row is one slot of one row; slot-rows are sorted by expert, then by row.
type moe struct {
	call  *ExpertsCall
	place []int32   // [Rows·Slots] the slot-row of each row and slot; -1 where the expert is the identity
	first []int32   // [Experts+1] first slot-row of each expert
	x     []float32 // [slot-rows][H]
	pair  []float32 // [slot-rows][2I] gate and up, or [slot-rows][I] up
	h     []float32 // [slot-rows][I]
	y     []float32 // [slot-rows][H]
}

// Experts computes a mixture of experts.
func Experts(p Pool, s *Scratch, c *ExpertsCall) {
	if c.Rows == 0 || c.Slots == 0 {
		return
	}
	m := &s.moe
	m.call = c
	n, width, inner := c.Rows*c.Slots, c.GateUp.K, c.Down.K
	m.x, m.y = grow(m.x, n*width), grow(m.y, n*width)
	m.pair, m.h = grow(m.pair, n*c.GateUp.N), grow(m.h, n*inner)
	n = s.sortByExpert(c)
	s.stacked(p, c.GateUp, outputs{c.GateUpScale, c.GateUpBias}, c.Experts, c.Compute, m.x[:n*width], m.pair)
	s.each(p, n, inner, s.gluTask)
	s.stacked(p, c.Down, outputs{c.DownScale, c.DownBias}, c.Experts, c.Compute, m.h[:n*inner], m.y)
	for i := range s.workers {
		s.workers[i].scaled = grow(s.workers[i].scaled, width)
	}
	s.each(p, c.Rows, c.Slots*width, s.sumTask)
	m.call = nil
}

// sortByExpert places slot-rows and gathers their activations. It gives the number of them.
func (s *Scratch) sortByExpert(c *ExpertsCall) int {
	m := &s.moe
	m.first, m.place = grow(m.first, c.Experts+1), grow(m.place, len(c.IDs))
	clear(m.first)
	for _, e := range c.IDs {
		if int(e) < c.Experts {
			m.first[e+1]++
		}
	}
	for e := range c.Experts {
		m.first[e+1] += m.first[e]
	}
	width := c.GateUp.K
	for i, e := range c.IDs {
		if int(e) >= c.Experts {
			m.place[i] = -1
			continue
		}
		at := m.first[e]
		m.first[e]++
		m.place[i] = at
		copy(m.x[int(at)*width:][:width], c.X[i/c.Slots*width:])
	}
	copy(m.first[1:], m.first[:c.Experts]) // each now is where its expert ends: where the next begins
	m.first[0] = 0
	return int(m.first[c.Experts])
}

// stacked multiplies rows that are sorted by matrix (m.first says where each matrix's begin) with their matrix of w.
func (s *Scratch) stacked(p Pool, w Weight, o outputs, count int, compute Compute, x, y []float32) {
	s.act, s.mode = vec.None, Store
	s.begin(x, w.K)
	s.addMat(w, compute, o, y)
	most, busy := 0, 0
	for e := range count {
		rows := int(s.moe.first[e+1] - s.moe.first[e])
		most, busy = max(most, s.rows(rows)), busy+min(rows, 1)
	}
	strip, limit := s.cut(s.mats, most, busy)
	for e := range count {
		row, end := s.rows(int(s.moe.first[e])), s.rows(int(s.moe.first[e+1]))
		s.addSpans(row, end-row, limit, e)
	}
	tasks := s.number(s.mats, strip, min(most, limit))
	s.prepare(p, s.rows(len(x)/w.K))
	s.runTasks(p, tasks)
}

// each runs a task for each of n rows; small ones on the caller.
func (s *Scratch) each(p Pool, n, size int, task func(i, worker int)) {
	if n*size > quantizeInline {
		p.Run(n, task)
		return
	}
	for i := range n {
		task(i, 0)
	}
}

// expertGlu joins gate and up of a slot-row, or activates up.
func (s *Scratch) expertGlu(i, _ int) {
	m := &s.moe
	inner := m.call.Down.K
	if !m.call.Gated {
		s.kernels.level.Apply(m.call.Act, m.h[i*inner:][:inner], m.pair[i*inner:][:inner])
		return
	}
	pair := m.pair[i*2*inner:][:2*inner]
	s.kernels.level.GluLimited(m.call.Act, m.call.Limit, m.h[i*inner:][:inner], pair[:inner], pair[inner:])
}

// expertSum adds up the slots of a row.
func (s *Scratch) expertSum(i, worker int) {
	m, c, level := &s.moe, s.moe.call, s.kernels.level
	width := c.Down.N
	y := c.Y[i*width:][:width]
	for slot := range c.Slots {
		j := i*c.Slots + slot
		part, scaled := c.X[i*width:][:width], s.workers[worker].scaled
		if m.place[j] >= 0 {
			part = m.y[int(m.place[j])*width:][:width]
		}
		if slot == 0 {
			level.Scale(y, part, c.Weights[j])
			continue
		}
		level.Scale(scaled, part, c.Weights[j])
		level.Add(y, scaled)
	}
}
