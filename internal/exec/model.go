// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/plan"
)

// Options say what to load and where.
type Options struct {
	Device   gpu.Device
	Plans    []*plan.Plan // of one model: of each of its parts, one per row bucket
	Store    Store
	NumPages int                     // KV pages in all; at least 1 when a plan has paged state
	NumSlots int                     // recurrent-state slots in all; at least 1 when a plan has slot state
	Progress func(done, total int64) // weight bytes; may be nil; called from one goroutine at a time
	Phase    func(name string)       // a phase of loading begins: alloc, load, bind; may be nil
	Eager    bool                    // start launches one by one, also where the device records them
	Sampling *Sampling               // the device draws tokens; its class needs the kernels sample_*
}

// Model is a set of plans bound to a device.
type Model struct {
	stream  gpu.Stream
	buffers []gpu.Buffer // everything allocated, for Close
	limits  Limits       // of the decoder
	step    *stepBlock
	parts   map[string]*part
	ports   map[string]*port
	logits  [][]float32
	raw     []byte      // of the logits, when they must be copied
	fetched gpu.Pinned  // the logits, where the device sends them by itself
	graphs  gpu.Grapher // nil: launches are started one by one
	sampler *sampler    // nil: tokens are drawn from logits, elsewhere

	towerPorts []string // features
	submitted  time.Duration
}

// bucket is one bound plan.
type bucket struct {
	plan     *plan.Plan
	layout   *stepLayout
	launches []gpu.Launch
	feed     gpu.Launch           // puts drawn tokens into the step block
	draws    [numModes]gpu.Launch // the sampler's
	graphs   [numVariants]recorded
	vocab    int       // width of the logits; 0: none
	logits   []float32 // [outs, vocab]: the buffer itself if direct, else a copy
	direct   bool      // the device's memory is the host's
	arena    gpu.Buffer
	logitOff int64
}

// variant is what a step launches beside the plan: the mode of its draws, and with fed the feed.
type variant uint8

const (
	fed         = variant(numModes)
	numVariants = 2 * int(numModes)
)

func (v variant) String() string {
	s := mode(v &^ fed).String()
	if v&fed != 0 {
		s += ", fed"
	}
	return s
}

// recorded is the launches of a variant in one.
type recorded struct {
	graph gpu.Launch // nil until the second step
	ran   bool       // launches have run one by one
}

// Load binds plans to a device. On error everything is freed.
func Load(ctx context.Context, o Options) (_ *Model, err error) {
	if len(o.Plans) == 0 {
		return nil, diag.Errorf(diag.Internal, "no plan to load")
	}
	if o.Phase == nil {
		o.Phase = func(string) {}
	}
	o.Phase("alloc")
	plans := slices.Clone(o.Plans)
	slices.SortFunc(plans, func(a, b *plan.Plan) int { return int(a.Limits.Rows - b.Limits.Rows) })
	m := &Model{stream: o.Device.Stream(), parts: map[string]*part{}, ports: map[string]*port{}}
	defer func() {
		if err != nil {
			m.free()
		}
	}()
	for _, p := range plans {
		m.addPart(p)
	}
	main := m.parts[""]
	if main == nil || main.vocab == 0 {
		return nil, diag.Errorf(diag.Internal, "no plan of a decoder with logits")
	}
	m.limits = Limits{Limits: main.limits, Vocab: main.vocab, NumPages: o.NumPages, NumSlots: o.NumSlots}

	b := &binder{model: m, opts: o, weights: map[string]*loadJob{}, states: map[string]gpu.Buffer{}, consts: map[string]gpu.Buffer{}}
	if g, ok := o.Device.(gpu.Grapher); ok && !o.Eager {
		m.graphs = g
	}
	layouts, err := b.openStep(plans)
	if err != nil {
		return nil, err
	}
	if err = b.openArena(plans); err != nil {
		return nil, err
	}
	if err = b.openPorts(plans); err != nil {
		return nil, err
	}
	jobs, stored, err := b.placeWeights(plans)
	if err != nil {
		return nil, err
	}
	if o.Sampling != nil {
		if m.sampler, err = b.newSampler(*o.Sampling, &m.limits); err != nil {
			return nil, err
		}
	}
	if err = b.loadWeights(ctx, jobs, stored, func() error { return b.bindPlans(plans, layouts) }); err != nil {
		return nil, err
	}
	return m, nil
}

// openStep allocates the step block, and lays it out for each of the plans.
func (b *binder) openStep(plans []*plan.Plan) (layouts []*stepLayout, err error) {
	m := b.model
	for _, p := range plans {
		draws := int64(0)
		if b.opts.Sampling != nil && p.Part == "" {
			draws = 2 * p.Limits.Outs
		}
		layouts = append(layouts, newStepLayout(p.Limits, m.parts[p.Part].uses, draws))
	}
	m.step, err = newStepBlock(b.opts.Device, b.alloc, placeMeet(layouts))
	return layouts, err
}

// openArena allocates the arena, as large as the largest plan wants it, and what logits are brought to.
func (b *binder) openArena(plans []*plan.Plan) (err error) {
	m := b.model
	var arena, outs, logits int64
	for _, p := range plans {
		arena, outs = max(arena, p.Arena), max(outs, p.Limits.Outs)
		logits = max(logits, p.Limits.Outs*int64(m.parts[p.Part].vocab))
	}
	m.logits = make([][]float32, 0, outs)
	if p, ok := b.opts.Device.(gpu.Pinner); ok {
		if m.fetched, err = p.Pinned("logits", 4*logits); err != nil {
			return err
		}
	}
	b.arena, err = b.alloc("arena", arena)
	return err
}

// bindPlans prepares the launches of the plans, from the smallest on.
func (b *binder) bindPlans(plans []*plan.Plan, layouts []*stepLayout) error {
	m := b.model
	for i, p := range plans {
		k, err := b.bind(p, layouts[i])
		if err == nil && m.sampler != nil && p.Part == "" {
			err = m.sampler.bind(b, &k)
		}
		if err != nil {
			return err
		}
		t := m.parts[p.Part]
		t.buckets = append(t.buckets, k)
	}
	return nil
}

// Limits are the sizes of the decoder's largest plan.
func (m *Model) Limits() Limits { return m.limits }

// Plan is the plan that a step of the decoder of that many rows runs.
func (m *Model) Plan(rows int) *plan.Plan {
	if b := m.parts[""].bucket(rows, 1, 1); b != nil {
		return b.plan
	}
	return nil
}

// Submitted is how long the host worked on the newest Run, until it waited for the device, or Start.
func (m *Model) Submitted() time.Duration { return m.submitted }

// Run computes a step of one of the model's parts.
func (m *Model) Run(s *Step) ([][]float32, error) {
	began := time.Now()
	b, err := m.prepare(s, nil)
	if err != nil {
		return nil, err
	}
	if err := m.launch(b, variant(noDraws)); err != nil {
		return nil, err
	}
	n := len(s.OutRows)
	if b.vocab == 0 {
		n = 0
	}
	if m.fetched != nil && n > 0 {
		if err := m.fetched.Download(b.arena, b.logitOff, int64(4*n*b.vocab)); err != nil {
			return nil, err
		}
	}
	m.submitted = time.Since(began)
	if err := m.stream.Sync(); err != nil {
		return nil, b.failed(err)
	}
	return m.results(b, n)
}

// failed says which step it was that the device did not end.
func (b *bucket) failed(err error) error {
	return diag.Errorf(diag.CodeOf(err), "a step of %s: %w", b.name(), err)
}

// name is that of the bucket's steps.
func (b *bucket) name() string {
	return strings.TrimSpace(b.plan.Circuit+" "+b.plan.Part) + fmt.Sprintf(" of %d rows", b.plan.Limits.Rows)
}

// prepare checks a step and puts it on the device with its rows of the sampler, for the bucket that it gives.
func (m *Model) prepare(s *Step, draws []drawRow) (*bucket, error) {
	t := m.parts[s.Part]
	if t == nil {
		return nil, diag.Errorf(diag.Internal, "a step of part %q, which is not loaded", s.Part)
	}
	if err := m.check(t, s); err != nil {
		return nil, err
	}
	b := t.bucket(len(s.RowSeq), len(s.CuRows)-1, max(len(s.OutRows), s.Outs))
	if b == nil {
		return nil, badStep("%d rows of %d sequences; no plan takes them", len(s.RowSeq), len(s.CuRows)-1)
	}
	if err := m.write(s.Inputs); err != nil {
		return nil, err
	}
	return b, m.step.fill(b, t, s, draws)
}

// launch starts a bucket's launches and those of a variant. A device that records them does so in the variant's second step: the
// first one has loaded code.
func (m *Model) launch(b *bucket, v variant) error {
	r := &b.graphs[v]
	if m.graphs != nil && r.ran && r.graph == nil {
		g, err := m.graphs.Graph(b.name()+v.String(), b.all(v))
		if err != nil {
			return err
		}
		r.graph = g
	}
	if r.graph != nil {
		return m.stream.Launch(r.graph)
	}
	if v&fed != 0 {
		if err := m.stream.Launch(b.feed); err != nil {
			return err
		}
	}
	for i, l := range b.launches {
		if err := m.stream.Launch(l); err != nil {
			return diag.Errorf(diag.CodeOf(err), "launch %d %s (%s): %w", i, b.plan.Launches[i].Name, b.plan.Launches[i].Kernel, err)
		}
	}
	if d := b.draws[v&^fed]; d != nil {
		if err := m.stream.Launch(d); err != nil {
			return err
		}
	}
	r.ran = true
	return nil
}

// all are the launches of a variant, in order.
func (b *bucket) all(v variant) (list []gpu.Launch) {
	if v&fed != 0 {
		list = append(list, b.feed)
	}
	list = append(list, b.launches...)
	if d := b.draws[v&^fed]; d != nil {
		list = append(list, d)
	}
	return list
}

// results are the first n rows of the logits buffer; a device with memory of its own copies them to the host.
func (m *Model) results(b *bucket, n int) ([][]float32, error) {
	v := b.vocab
	if n > 0 && !b.direct && m.fetched == nil {
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
	for _, t := range m.parts {
		for i := range t.buckets {
			for _, r := range t.buckets[i].graphs {
				if g, ok := r.graph.(interface{ Free() }); ok {
					g.Free()
				}
			}
		}
	}
	if m.step != nil {
		m.step.free()
		m.step = nil
	}
	if m.sampler != nil {
		m.sampler.free()
		m.sampler = nil
	}
	if m.fetched != nil {
		m.fetched.Free()
		m.fetched = nil
	}
	for _, b := range slices.Backward(m.buffers) {
		b.Free()
	}
	m.buffers = nil
}
