// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math"
	"slices"

	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// Experts whose scores are equal but for rounding may be chosen in either order, or either of them. A device's choice other than the
// reference's is right when the reference makes it too, after its logits moved by what rounding may move them and no further.

// choose gives the reference of a launch whose choice of experts is not v's: v after the logits of the device's choice moved. The j-th of
// k chosen, from 0, moves up by k-j steps: by one more than its successor, the last by one more than those that are not chosen. A step is
// twice what a score may err by.
// What follows from a score may then err by the largest move too, which is in the tolerance that is given back.
func (d *differ) choose(from *diffModel, number int, l *plan.Launch, got, v map[string][]byte, tol kernel.Tolerance) (map[string][]byte, kernel.Tolerance, error) {
	s := d.step(from, number)
	p, err := from.Probe(s)
	if err != nil {
		return nil, tol, err
	}
	moved, most := map[string][]byte{}, 0.0
	for i, op := range p.Plan().Launches {
		w := from.wires[p.Plan()][i]
		ids, logits := w["ids"].Out, w["logits"].In
		if ids == "" || logits == "" || !slices.Contains(l.Ops, op.Name) || got[ids] == nil || bytes.Equal(got[ids], v[ids]) {
			continue
		}
		step := 2 * max(tol.Abs, tol.Rel)
		k := elements(p.Plan(), &op, "ids")
		moved[logits] = moveLogits(v[logits], got[ids], v[ids], elements(p.Plan(), &op, "logits"), k, step)
		most = max(most, float64(k)*step)
	}
	if len(moved) == 0 {
		return v, tol, nil
	}
	v, err = d.again(from, number, l, v, moved)
	tol.Rel += 2 * most // a weight is a score over a sum of scores
	return v, tol, err
}

// elements are those of a row of a launch's array.
func elements(p *plan.Plan, l *plan.Launch, param string) int {
	for _, a := range l.Args {
		if a.Param == param {
			return int(p.Buffers[a.Index].Axes[1:].Shape().Elems())
		}
	}
	return 0
}

// moveLogits gives logits [rows, experts] of which those of got's choice [rows, k] are higher, in rows where it is not want's: the first
// by k steps, the last by one.
func moveLogits(logits, got, want []byte, experts, k int, step float64) []byte {
	logits = slices.Clone(logits)
	for row := 0; row < len(got)/(4*k); row++ {
		at := 4 * k * row
		if bytes.Equal(got[at:at+4*k], want[at:at+4*k]) {
			continue
		}
		for j := range k {
			id := int(int32(binary.LittleEndian.Uint32(got[at+4*j:])))
			if id < 0 || id >= experts {
				continue // no expert: nothing makes it right
			}
			x := logits[4*(row*experts+id):]
			value := float64(math.Float32frombits(binary.LittleEndian.Uint32(x)))
			binary.LittleEndian.PutUint32(x, math.Float32bits(float32(value+float64(k-j)*step)))
		}
	}
	return logits
}

// again computes a launch's ops once more on the model that v was recorded on. Edges in fixed have the values there, whatever an op makes
// of them.
func (d *differ) again(m *diffModel, number int, l *plan.Launch, v, fixed map[string][]byte) (map[string][]byte, error) {
	v = maps.Clone(v)
	maps.Copy(v, fixed)
	s := d.step(m, number)
	p, err := m.Probe(s)
	if err != nil {
		return nil, err
	}
	for j, op := range p.Plan().Launches {
		if !slices.Contains(l.Ops, op.Name) {
			continue
		}
		if err := feed(p, j, m.wires[p.Plan()][j], v); err != nil {
			return nil, err
		}
		if err := m.run(p, j, s, v); err != nil {
			return nil, err
		}
		maps.Copy(v, fixed)
	}
	return v, nil
}

// rounded are the edges that a launch reads as bf16, rounded so.
func rounded(wires map[string]circuit.Wire, params []string, v map[string][]byte) map[string][]byte {
	fixed := map[string][]byte{}
	for _, param := range params {
		edge := wires[param].In
		fixed[edge] = make([]byte, len(v[edge]))
		tensor.RoundBF16(fixed[edge], v[edge])
	}
	return fixed
}
