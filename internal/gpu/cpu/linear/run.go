// SPDX-License-Identifier: MIT OR Apache-2.0

package linear

import "github.com/metrale/metrale/internal/gpu/cpu/vec"

// Run computes a call: linear, linear_add, linear_n or linear_glu.
func Run(p Pool, s *Scratch, c *Call) {
	if c.Rows == 0 || len(c.W) == 0 {
		return
	}
	if c.Compute == Q16 && mixed(c.W) {
		s.split(p, c)
		return
	}
	s.run(p, c)
}

// mixed says whether some weights, but not all, are of block types.
func mixed(w []Weight) bool {
	for i := range w {
		if formats[w[i].D].quantised() != formats[w[0].D].quantised() {
			return true
		}
	}
	return false
}

// split runs a mixed call as single ones, since a region has one form of activations.
func (s *Scratch) split(p Pool, c *Call) {
	one := *c
	one.Glu = vec.None
	y := c.Y
	if c.Glu != vec.None {
		n := c.Rows * c.W[0].N
		s.moe.pair = grow(s.moe.pair, 2*n)
		y = [][]float32{s.moe.pair[:n], s.moe.pair[n : 2*n]}
	}
	for i := range c.W {
		one.W, one.Y = c.W[i:i+1], y[i:i+1]
		if c.Scale != nil {
			one.Scale = c.Scale[i : i+1]
		}
		if c.Bias != nil {
			one.Bias = c.Bias[i : i+1]
		}
		s.run(p, &one)
	}
	if c.Glu != vec.None {
		s.kernels.level.GluLimited(c.Glu, c.Limit, c.Y[0][:len(y[0])], y[0], y[1])
	}
}

// run computes a call whose weights are all of block types, or none.
func (s *Scratch) run(p Pool, c *Call) {
	s.act, s.limit, s.mode = c.Glu, c.Limit, c.Mode
	s.begin(c.X, c.W[0].K)
	for i, w := range c.W {
		var o outputs
		if c.Scale != nil {
			o.scale = c.Scale[i]
		}
		if c.Bias != nil {
			o.bias = c.Bias[i]
		}
		y := c.Y[0]
		if c.Glu == vec.None {
			y = c.Y[i]
		}
		s.addMat(w, c.Compute, o, y)
	}
	tasks := s.divide(c)
	s.prepare(p, s.rows(c.Rows))
	s.runTasks(p, tasks)
}

const (
	// directRows is up to how many rows weights are multiplied as they are packed: more pay for unpacking them first.
	directRows = 16
	// directStrip is about how many bytes of weights a task then reads: little, as others may take it over, but more than
	// its own cost, and no more than the nearest cache keeps for a second tile.
	directStrip = 24 << 10
)

// divide cuts the call into tasks: strips of panels by spans of rows.
func (s *Scratch) divide(c *Call) (tasks int) {
	mats := s.mats
	if c.Glu != vec.None {
		mats = mats[:1] // the second follows the first
	}
	rows := s.rows(c.Rows)
	strip, limit := s.cut(mats, rows, 1)
	s.addSpans(0, rows, limit, 0)
	return s.number(mats, strip, min(rows, limit))
}

// cut chooses panels and rows of a task, for copies (experts) of the matrices with that many rows each.
func (s *Scratch) cut(mats []mat, rows, copies int) (strip, limit int) {
	wanted := 4 * len(s.workers) // tasks that keep workers equally busy
	panels := 0
	for i := range mats {
		panels += copies * mats[i].panels()
	}
	if rows <= directRows {
		fair := (panels + wanted - 1) / wanted
		return max(1, min(fair, directStrip/mats[0].f.panelBytes(mats[0].w.K))), directRows
	}
	high := s.kernels.tiles[0]
	spans := (rows + spanRows - 1) / spanRows
	for ; ; spans++ {
		limit = (rows + spans*high - 1) / (spans * high) * high
		for strip = groupPanels; strip >= 1; strip /= 2 {
			if panels/strip*spans >= wanted || strip == 1 && limit <= 6*high {
				return strip, limit
			}
		}
	}
}

// number gives the tasks their numbers, and workers the memory for them.
func (s *Scratch) number(mats []mat, strip, rows int) (tasks int) {
	for i := range mats {
		m := &mats[i]
		m.strip, m.strips, m.first = strip, (m.panels()+strip-1)/strip, tasks
		tasks += m.strips * len(s.spans)
	}
	for i := range s.workers {
		w := &s.workers[i]
		w.out, w.gate = grow(w.out, strip*lanes*rows), grow(w.gate, strip*lanes*rows)
		w.panels, w.tmp = growAligned(w.panels, panelsBytes), growAligned(w.tmp, widenBytes)
	}
	return tasks
}

// multiply runs one task.
func (s *Scratch) multiply(i, worker int) {
	at := 0
	for at+1 < len(s.mats) && s.mats[at+1].strips > 0 && i >= s.mats[at+1].first {
		at++
	}
	m, w := &s.mats[at], &s.workers[worker]
	i -= m.first
	sp := &s.spans[i/m.strips] // strips of a span follow each other in memory
	p0 := i % m.strips * m.strip
	n := min(m.strip, m.panels()-p0)
	columns := min(n*lanes, m.w.N-p0*lanes)
	if s.act != vec.None {
		s.glu(w, sp, p0, n, columns)
		return
	}
	if s.mode == Store && m.scale == nil && m.bias == nil && columns == n*lanes && !s.two {
		s.product(w, m, sp, p0, n, m.y[sp.row*m.w.N+p0*lanes:], m.w.N)
		return
	}
	ld := n * lanes
	row, rows := s.sum(w, m, sp, p0, n, w.out)
	s.scaleAndBias(m, sp, w.out, ld, rows, p0, columns)
	for r := range rows {
		y, out := m.y[(row+r)*m.w.N+p0*lanes:][:columns], w.out[r*ld:]
		if s.mode == Add {
			s.kernels.level.Add(y, out[:columns])
		} else {
			copy(y, out)
		}
	}
}

// scaleAndBias finishes rows of out, columns from panel p0 on.
func (s *Scratch) scaleAndBias(m *mat, sp *span, out []float32, ld, rows, p0, columns int) {
	at := sp.matrix*m.w.N + p0*lanes
	for r := range rows {
		row := out[r*ld:][:columns]
		if m.scale != nil {
			s.kernels.level.Mul(row, row, m.scale[at:][:columns])
		}
		if m.bias != nil {
			s.kernels.level.Add(row, m.bias[at:][:columns])
		}
	}
}

// glu multiplies a strip of gate and up and joins them.
func (s *Scratch) glu(w *worker, sp *span, p0, n, columns int) {
	ld := n * lanes
	var row, rows int
	for i, out := range [...][]float32{w.gate, w.out} {
		m := &s.mats[i]
		row, rows = s.sum(w, m, sp, p0, n, out)
		s.scaleAndBias(m, sp, out, ld, rows, p0, columns)
	}
	all := rows * ld
	s.kernels.level.GluLimited(s.act, s.limit, w.out[:all], w.gate[:all], w.out[:all])
	y, width := s.mats[0].y, s.mats[0].w.N
	for r := range rows {
		copy(y[(row+r)*width+p0*lanes:][:columns], w.out[r*ld:])
	}
}

// sum is product of a strip of n panels, with the results of digits added up. It gives the rows of the call that out holds.
func (s *Scratch) sum(w *worker, m *mat, sp *span, p0, n int, out []float32) (row, rows int) {
	ld := n * lanes
	s.product(w, m, sp, p0, n, out, ld)
	if !s.two {
		return sp.row, sp.rows
	}
	for r := range sp.rows / 2 {
		first := out[2*r*ld:][:ld]
		s.kernels.level.Add(first, out[(2*r+1)*ld:][:ld])
		copy(out[r*ld:], first)
	}
	return sp.row / 2, sp.rows / 2
}

// product writes a span's rows times panels [p0, p0+n) of a matrix to out, rows ld apart.
func (s *Scratch) product(w *worker, m *mat, sp *span, p0, n int, out []float32, ld int) {
	size := m.f.panelBytes(m.w.K)
	data := m.w.Data[sp.matrix*m.matrix+p0*size:][:n*size]
	if sp.rows <= directRows && s.direct(m, sp, n, data, out, ld) {
		return
	}
	for p := 0; p < n; p += groupPanels {
		g := group{m, sp, data[p*size:][:min(n-p, groupPanels)*size], out[p*lanes:], ld}
		if m.aux >= 0 {
			s.groupQ8(w, &g)
		} else {
			s.groupF32(w, &g)
		}
	}
}

// group is a few panels that are unpacked together, so that activations in the nearest cache meet all of them.
type group struct {
	*mat
	*span
	data []byte // packed panels
	out  []float32
	ld   int
}

// direct multiplies a few rows with panels as they are packed, if the path can: tile by tile, the first of which brings
// the panels into the cache.
func (s *Scratch) direct(m *mat, sp *span, n int, data []byte, out []float32, ld int) bool {
	a, k := &s.acts, m.w.K
	tiles := a.tiles[sp.tile0:sp.tile1]
	for _, rt := range tiles {
		if !s.kernels.direct(m.f, rt.height, m.aux >= 0) {
			return false
		}
	}
	for _, rt := range tiles {
		t := tile{rows: rt.height, out: out[(rt.row-sp.row)*ld:], ld: ld}
		if m.aux < 0 {
			s.kernels.directF32(m.f, t, n, data, a.x[rt.row*k:], k, k)
			continue
		}
		q, aux := a.q[rt.row*(k/block)*actBytes:], a.aux[m.aux][rt.row*(k/m.f.group):]
		s.kernels.directQ8(m.f, t, n, data, q, aux, k/block)
	}
	return true
}

// groupQ8 multiplies a span with a group of panels.
func (s *Scratch) groupQ8(w *worker, g *group) {
	a, f, k, size := &s.acts, g.f, g.w.K, g.f.panelBytes(g.w.K)
	for k0 := 0; k0 < k; k0 += chunkQ8 {
		first, blocks := k0/block, min(k-k0, chunkQ8)/block
		bytes := blocks * f.codeBytes()
		for p := 0; p*size < len(g.data); p++ {
			s.kernels.unpack(f, w.panels[p*bytes:][:bytes], g.data[p*size:][:size], first, blocks)
		}
		for _, rt := range a.tiles[g.tile0:g.tile1] {
			q := a.q[(rt.row*(k/block)+first*rt.height)*actBytes:]
			aux := a.aux[g.aux][rt.row*(k/f.group)+k0/f.group*rt.height:]
			for p := 0; p*size < len(g.data); p++ {
				t := tile{rt.height, g.out[(rt.row-g.row)*g.ld+p*lanes:], g.ld, k0 > 0}
				s.kernels.tileQ8(f, t, w.panels[p*bytes:][:bytes], q, aux, blocks)
			}
		}
	}
}

// groupF32 is groupQ8 in float32.
func (s *Scratch) groupF32(w *worker, g *group) {
	a, k, size, floats := &s.acts, g.w.K, g.f.panelBytes(g.w.K), view[float32](w.panels)
	for k0 := 0; k0 < k; k0 += chunkF32 {
		n := min(k-k0, chunkF32)
		for p := 0; p*size < len(g.data); p++ {
			s.kernels.widen(g.f, floats[p*n*lanes:][:n*lanes], g.data[p*size:][:size], k0, k0+n, w.tmp)
		}
		for _, rt := range a.tiles[g.tile0:g.tile1] {
			for p := 0; p*size < len(g.data); p++ {
				t := tile{rt.height, g.out[(rt.row-g.row)*g.ld+p*lanes:], g.ld, k0 > 0}
				s.kernels.tileF32(t, floats[p*n*lanes:][:n*lanes], a.x[rt.row*k+k0:], k, n)
			}
		}
	}
}
