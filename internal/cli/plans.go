// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"sync"

	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/plan"
)

// plans are those that were lowered for a checkpoint, until they are forgotten: what has been asked for while the device opened, or
// to see how much memory a model takes, need not be made twice. It is safe for concurrent use.
type plans struct {
	mu   sync.Mutex
	made map[planKey]*plan.Plan
}

type planKey struct {
	part    string
	options circuit.Options
}

// lower is Instance.Lower, once.
func (p *plans) lower(in *circuit.Instance, lib *circuit.Library, cat circuit.Catalog, o circuit.Options) (*plan.Plan, error) {
	key := planKey{in.Part, o}
	p.mu.Lock()
	made := p.made[key]
	p.mu.Unlock()
	if made != nil {
		return made, nil
	}
	made, err := in.Lower(lib, cat, o)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.made == nil {
		p.made = map[planKey]*plan.Plan{}
	}
	p.made[key] = made
	return made, nil
}

// forget drops them.
func (p *plans) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.made = nil
}
