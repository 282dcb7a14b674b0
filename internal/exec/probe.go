// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import (
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/plan"
)

// Probe is a step that is run launch by launch, for comparisons between devices and plans.
type Probe struct {
	m *Model
	b *bucket
}

// Probe prepares a step: the step block is on the device, no launch has run.
func (m *Model) Probe(s *Step) (*Probe, error) {
	b := m.bucket(len(s.Tokens))
	if b == nil {
		return nil, diag.Errorf(diag.Internal, "a step of %d rows; the largest plan takes %d", len(s.Tokens), m.limits.Rows)
	}
	if err := m.check(s); err != nil {
		return nil, err
	}
	return &Probe{m, b}, m.step.fill(s)
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
	return p.b.arena.Read(p.b.plan.Buffers[buffer].Offset, dst)
}

// Write overwrites the first bytes of a buffer of the plan.
func (p *Probe) Write(buffer int, src []byte) error {
	return p.b.arena.Write(p.b.plan.Buffers[buffer].Offset, src)
}
