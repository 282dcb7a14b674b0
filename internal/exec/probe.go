// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import (
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/plan"
)

// Probe is a step that is run launch by launch, for comparisons between devices and plans.
type Probe struct {
	m    *Model
	b    *bucket
	need mode
}

// Probe prepares a step: the step block is on the device, no launch has run. No step is under way. A step with Draws has no masks.
func (m *Model) Probe(s *Step) (*Probe, error) {
	p := &Probe{m: m}
	var draws []drawRow
	var err error
	if len(s.Draws) > 0 && m.sampler != nil {
		if p.need, err = m.sampler.prepare(s); err != nil {
			return nil, err
		}
		draws = m.sampler.rows
	}
	p.b, err = m.prepare(s, draws)
	return p, err
}

// Plan is the plan that the step runs.
func (p *Probe) Plan() *plan.Plan { return p.b.plan }

// Run runs a launch to its end.
func (p *Probe) Run(launch int) error {
	if err := p.m.stream.Launch(p.b.launches[launch]); err != nil {
		return err
	}
	return p.m.stream.Sync()
}

// Read copies the first bytes of a buffer of the plan.
func (p *Probe) Read(buffer int, dst []byte) error {
	buf, off := p.memory(buffer)
	return buf.Read(off, dst)
}

// Write overwrites the first bytes of a buffer of the plan.
func (p *Probe) Write(buffer int, src []byte) error {
	buf, off := p.memory(buffer)
	return buf.Write(off, src)
}

// memory is where a buffer of the plan is.
func (p *Probe) memory(buffer int) (gpu.Buffer, int64) {
	x := &p.b.plan.Buffers[buffer]
	if x.Port.Name != "" {
		return p.m.ports[x.Port.Name].buf, 0
	}
	return p.b.arena, x.Offset
}

// Recording is launches of a plan that are started together, as often as wanted, whatever they make of the buffers.
type Recording struct {
	stream   gpu.Stream
	launches []gpu.Launch
	graph    gpu.Launch // nil: one by one
}

// Record prepares launches of the plan, by index; the step has run before.
func (p *Probe) Record(launches []int) (*Recording, error) {
	var list []gpu.Launch
	for _, i := range launches {
		list = append(list, p.b.launches[i])
	}
	return p.record("a part of ", list)
}

// RecordDraws prepares the launches of the step's Draws alone; they read what the plan left.
func (p *Probe) RecordDraws() (*Recording, error) {
	var list []gpu.Launch
	if d := p.b.draws[p.need]; d != nil {
		list = append(list, d)
	}
	return p.record("draws of ", list)
}

func (p *Probe) record(what string, launches []gpu.Launch) (*Recording, error) {
	r := &Recording{stream: p.m.stream, launches: launches}
	if p.m.graphs == nil || len(launches) == 0 {
		return r, nil
	}
	var err error
	r.graph, err = p.m.graphs.Graph(what+p.b.plan.Circuit, launches)
	return r, err
}

// Start starts them and does not wait.
func (r *Recording) Start() error {
	if r.graph != nil {
		return r.stream.Launch(r.graph)
	}
	for _, l := range r.launches {
		if err := r.stream.Launch(l); err != nil {
			return err
		}
	}
	return nil
}

// Free gives the recording back.
func (r *Recording) Free() {
	if g, ok := r.graph.(interface{ Free() }); ok {
		g.Free()
	}
}
