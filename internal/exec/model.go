// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/plan"
)

// Options say what to load and where.
type Options struct {
	Device   gpu.Device
	Plans    []*plan.Plan // of one circuit instance, one per row bucket
	Store    Store
	NumPages int                     // KV pages in all; at least 1 when a plan has paged state
	NumSlots int                     // recurrent-state slots in all; at least 1 when a plan has slot state
	Progress func(done, total int64) // weight bytes; may be nil; called from one goroutine at a time
	Eager    bool                    // start launches one by one, also where the device records them
}

// Model is a set of plans bound to a device.
type Model struct {
	stream  gpu.Stream
	buffers []gpu.Buffer // everything allocated, for Close
	limits  Limits
	step    *stepBlock
	buckets []bucket // ascending rows
	logits  [][]float32
	raw     []byte       // of the logits, when they must be copied
	pinned  []gpu.Pinned // for free
	fetched gpu.Pinned   // the logits, where the device sends them by itself
	graphs  gpu.Grapher  // nil: launches are started one by one
}

// bucket is one bound plan.
type bucket struct {
	rows     int64
	plan     *plan.Plan
	launches []gpu.Launch
	graph    gpu.Launch // all launches in one; nil until the second step
	ran      bool       // launches have run one by one
	logits   []float32  // [outs, vocab]: the buffer itself if direct, else a copy
	direct   bool       // the device's memory is the host's
	arena    gpu.Buffer
	logitOff int64
}

// Load binds plans to a device. On error everything is freed.
func Load(ctx context.Context, o Options) (_ *Model, err error) {
	if len(o.Plans) == 0 {
		return nil, diag.Errorf(diag.Internal, "no plan to load")
	}
	plans := slices.Clone(o.Plans)
	slices.SortFunc(plans, func(a, b *plan.Plan) int { return int(a.Limits.Rows - b.Limits.Rows) })
	m := &Model{stream: o.Device.Stream()}
	defer func() {
		if err != nil {
			m.free()
		}
	}()
	last := plans[len(plans)-1]
	logits := last.Buffers[last.Logits]
	m.limits = Limits{Limits: last.Limits, Vocab: int(logits.Axes[len(logits.Axes)-1].Size), NumPages: o.NumPages, NumSlots: o.NumSlots}

	b := &binder{model: m, opts: o, weights: map[string]*loadJob{}, states: map[string]gpu.Buffer{}, consts: map[string]gpu.Buffer{}}
	if m.step, err = newStepBlock(o.Device, b.alloc, last.Limits); err != nil {
		return nil, err
	}
	if m.step.pinned != nil {
		m.pinned = append(m.pinned, m.step.pinned)
	}
	if g, ok := o.Device.(gpu.Grapher); ok && !o.Eager {
		m.graphs = g
	}
	var arena, outs int64
	for _, p := range plans {
		arena, outs = max(arena, p.Arena), max(outs, p.Limits.Outs)
	}
	if p, ok := o.Device.(gpu.Pinner); ok {
		if m.fetched, err = p.Pinned("logits", 4*outs*int64(m.limits.Vocab)); err != nil {
			return nil, err
		}
		m.pinned = append(m.pinned, m.fetched)
	}
	if b.arena, err = b.alloc("arena", arena); err != nil {
		return nil, err
	}
	if err = b.loadWeights(ctx, plans); err != nil {
		return nil, err
	}
	for _, p := range plans {
		k, err := b.bind(p)
		if err != nil {
			return nil, err
		}
		m.buckets = append(m.buckets, k)
	}
	m.logits = make([][]float32, 0, last.Limits.Outs)
	return m, nil
}

// Limits are the sizes of the largest plan.
func (m *Model) Limits() Limits { return m.limits }

// Plan is the plan that a step of that many rows runs.
func (m *Model) Plan(rows int) *plan.Plan {
	if b := m.bucket(rows); b != nil {
		return b.plan
	}
	return nil
}

func (m *Model) bucket(rows int) *bucket {
	for i := range m.buckets {
		if int64(rows) <= m.buckets[i].rows {
			return &m.buckets[i]
		}
	}
	return nil
}

// Run computes a step.
func (m *Model) Run(s *Step) ([][]float32, error) {
	b := m.bucket(len(s.Tokens))
	if b == nil {
		return nil, diag.Errorf(diag.Internal, "a step of %d rows; the largest plan takes %d", len(s.Tokens), m.limits.Rows)
	}
	if err := m.check(s); err != nil {
		return nil, err
	}
	if err := m.step.fill(s); err != nil {
		return nil, err
	}
	if err := m.launch(b); err != nil {
		return nil, err
	}
	n := len(s.OutRows)
	if m.fetched != nil && n > 0 {
		if err := m.fetched.Download(b.arena, b.logitOff, int64(4*n*m.limits.Vocab)); err != nil {
			return nil, err
		}
	}
	if err := m.stream.Sync(); err != nil {
		return nil, err
	}
	return m.results(b, n)
}

// launch starts a bucket's launches. A device that records them does so in the second step: the first one has loaded code.
func (m *Model) launch(b *bucket) error {
	if m.graphs != nil && b.ran && b.graph == nil {
		g, err := m.graphs.Graph(fmt.Sprintf("%s of %d rows", b.plan.Circuit, b.rows), b.launches)
		if err != nil {
			return err
		}
		b.graph = g
	}
	if b.graph != nil {
		return m.stream.Launch(b.graph)
	}
	for i, l := range b.launches {
		if err := m.stream.Launch(l); err != nil {
			return diag.Errorf(diag.CodeOf(err), "launch %d %s (%s): %w", i, b.plan.Launches[i].Name, b.plan.Launches[i].Kernel, err)
		}
	}
	b.ran = true
	return nil
}

// results are the first n rows of the logits buffer; a device with memory of its own copies them to the host.
func (m *Model) results(b *bucket, n int) ([][]float32, error) {
	v := m.limits.Vocab
	if !b.direct && m.fetched == nil {
		raw := m.raw[:4*n*v]
		if err := b.arena.Read(b.logitOff, raw); err != nil {
			return nil, err
		}
		for i := range n * v {
			b.logits[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		}
	}
	m.logits = m.logits[:0]
	for i := range n {
		m.logits = append(m.logits, b.logits[i*v:(i+1)*v])
	}
	return m.logits, nil
}

// Close frees the model's memory; the device stays open.
func (m *Model) Close() error {
	m.free()
	return nil
}

func (m *Model) free() {
	for i := range m.buckets {
		if g, ok := m.buckets[i].graph.(interface{ Free() }); ok {
			g.Free()
		}
	}
	for _, p := range m.pinned {
		p.Free()
	}
	m.pinned = nil
	for _, b := range slices.Backward(m.buffers) {
		b.Free()
	}
	m.buffers = nil
}
