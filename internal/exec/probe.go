// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import (
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/plan"
)

// Probe is a step that is run launch by launch, for comparisons between devices and plans.
type Probe struct {
	m *Model
	b *bucket
}

// Probe prepares a step: the step block is on the device, no launch has run.
func (m *Model) Probe(s *Step) (*Probe, error) {
	b, err := m.prepare(s)
	if err != nil {
		return nil, err
	}
	return &Probe{m, b}, nil
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
