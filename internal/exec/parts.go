// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import (
	"encoding/binary"
	"math"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/plan"
)

// part is what the plans of one part of the model share.
type part struct {
	limits  plan.Limits // of the largest plan
	vocab   int         // width of the logits; 0: none
	uses    map[string]bool
	buckets []bucket // ascending rows
}

// addPart notes a plan, which is at least as large as those of its part before it.
func (m *Model) addPart(p *plan.Plan) {
	t := m.parts[p.Part]
	if t == nil {
		t = &part{uses: map[string]bool{}}
		m.parts[p.Part] = t
	}
	t.limits = p.Limits
	if p.Logits >= 0 {
		axes := p.Buffers[p.Logits].Axes
		t.vocab = int(axes[len(axes)-1].Size)
	}
	for i := range p.Launches {
		for _, a := range p.Launches[i].Args {
			if a.Kind == plan.ArgStep {
				t.uses[a.Step] = true
			}
		}
	}
}

// bucket is the smallest one that holds so many rows, sequences and outputs, nil if none does.
func (t *part) bucket(rows, seqs, outs int) *bucket {
	for i := range t.buckets {
		if l := &t.buckets[i].plan.Limits; int64(rows) <= l.Rows && int64(seqs) <= l.Seqs && int64(outs) <= l.Outs {
			return &t.buckets[i]
		}
	}
	return nil
}

// port is an array that plans of several parts, or a plan and the host, hand over values by: float32 [rows, width].
type port struct {
	buf         gpu.Buffer
	rows, width int64
	raw         []byte // for copies where the memory is not the host's
}

// openPorts allocates every port that the plans name, as large as the largest wants it.
func (b *binder) openPorts(plans []*plan.Plan) error {
	for _, p := range plans {
		for i := range p.Buffers {
			x := &p.Buffers[i]
			if x.Port.Name == "" {
				continue
			}
			rows := x.Axes[0].Size
			width := x.Axes.Shape().Elems() / rows
			t := b.model.ports[x.Port.Name]
			if t == nil {
				t = &port{width: width}
				b.model.ports[x.Port.Name] = t
			}
			if t.width != width {
				return diag.Errorf(diag.Internal, "port %s is %d wide in one plan and %d in another", x.Port.Name, t.width, width)
			}
			t.rows = max(t.rows, rows)
		}
	}
	for name, t := range b.model.ports {
		var err error
		if t.buf, err = b.alloc("port "+name, 4*t.rows*t.width); err != nil {
			return err
		}
	}
	return nil
}

// portArg is the array of a buffer that a port names. What comes in is as long as the port, whoever wrote it.
func (b *binder) portArg(x *plan.Buffer) (gpu.Buffer, plan.Axes) {
	t := b.model.ports[x.Port.Name]
	if x.Axes[0].Name != plan.Pool {
		return t.buf, x.Axes
	}
	axes := append(plan.Axes{{Name: plan.Pool, Size: t.rows}}, x.Axes[1:]...)
	return t.buf, axes
}

// Input is what the host puts into a port before a step: rows Row, Row+1, … of it.
type Input struct {
	Port   string
	Row    int
	Values []float32
}

// write puts the step's inputs into their ports.
func (m *Model) write(inputs []Input) error {
	for i := range inputs {
		in := &inputs[i]
		t := m.ports[in.Port]
		n := int64(len(in.Values))
		if t == nil || in.Row < 0 || n%t.width != 0 || int64(in.Row)+n/t.width > t.rows {
			return diag.Errorf(diag.Internal, "step: %d values for row %d of port %q", n, in.Row, in.Port)
		}
		at := int64(in.Row) * t.width
		if h, ok := t.buf.(gpu.HostBuffer); ok {
			copy(h.Float32s()[at:], in.Values)
			continue
		}
		raw := t.bytes(n)
		for j, v := range in.Values {
			binary.LittleEndian.PutUint32(raw[4*j:], math.Float32bits(v))
		}
		if err := t.buf.Write(4*at, raw); err != nil {
			return err
		}
	}
	return nil
}

// Output reads the first rows of a port, as many as dst holds, after the step that wrote them.
func (m *Model) Output(name string, dst []float32) error {
	t := m.ports[name]
	n := int64(len(dst))
	if t == nil || n%t.width != 0 || n/t.width > t.rows {
		return diag.Errorf(diag.Internal, "%d values of port %q", n, name)
	}
	if h, ok := t.buf.(gpu.HostBuffer); ok {
		copy(dst, h.Float32s())
		return nil
	}
	raw := t.bytes(n)
	if err := t.buf.Read(0, raw); err != nil {
		return err
	}
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return nil
}

func (t *port) bytes(n int64) []byte {
	if int64(cap(t.raw)) < 4*n {
		t.raw = make([]byte, 4*n)
	}
	return t.raw[:4*n]
}

// PortWidth is the number of values in a row of a port; 0 if there is no such port.
func (m *Model) PortWidth(name string) int {
	if t := m.ports[name]; t != nil {
		return int(t.width)
	}
	return 0
}

// HasPart says whether the model was loaded with plans of a part.
func (m *Model) HasPart(name string) bool { return m.parts[name] != nil }

// PartLimits are the sizes of the largest plan of a part that HasPart.
func (m *Model) PartLimits(name string) plan.Limits { return m.parts[name].limits }
