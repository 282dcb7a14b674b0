// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// own is a device with memory of its own: copies and launches are queued, and happen at Sync or when a mark behind them is waited
// for (those of a stage, at Wait). The launch named logits writes token+column into each wanted row, the sampler takes the
// largest; others do nothing.
type own struct {
	queue  []func()
	ran    int          // of what was queued
	still  bool         // queue nothing
	live   atomic.Int64 // buffers, pinned memory, stages and graphs
	graphs []string
	sizes  []int64 // of downloads
	fail   map[string]bool
}

func (d *own) Info() gpu.Info     { return gpu.Info{Class: "cpu"} }
func (d *own) Stream() gpu.Stream { return d }
func (d *own) Close() error       { return nil }

func (d *own) Layout(string) (gpu.Layout, error) { return asStored{}, nil }

func (d *own) Alloc(_ string, n int64) (gpu.Buffer, error) {
	d.live.Add(1)
	return &ownBuffer{d, make([]byte, n)}, nil
}

func (d *own) Bind(b gpu.Binding) (gpu.Launch, error) { return &b, nil }

func (d *own) Launch(l gpu.Launch) error {
	if d.still {
		return nil
	}
	switch l := l.(type) {
	case *ownGraph:
		for _, x := range l.launches {
			if err := d.Launch(x); err != nil {
				return err
			}
		}
	case *gpu.Binding:
		switch {
		case l.Name == "logits":
			d.queue = append(d.queue, func() { writeLogits(l) })
		case l.Kernel == "sample_feed":
			d.queue = append(d.queue, func() { feed(l) })
		case l.Name == "sampler":
			d.queue = append(d.queue, func() { drawLargest(l) })
		}
	}
	return nil
}

// writeLogits reads the step block as the kernel would.
func writeLogits(l *gpu.Binding) {
	x, _ := l.Arg("y")
	out := x.Buf.(*ownBuffer).data[x.Off:]
	head, _ := l.Arg("head")
	tokens, _ := l.Arg("tokens")
	rows, _ := l.Arg("out_rows")
	word := func(a gpu.Arg, i int) int {
		return int(binary.LittleEndian.Uint32(a.Buf.(*ownBuffer).data[int(a.Off)+4*i:]))
	}
	for o := range word(head, 2) {
		for j := range 6 {
			v := float32(word(tokens, word(rows, o)) + 10*j)
			binary.LittleEndian.PutUint32(out[4*(6*o+j):], math.Float32bits(v))
		}
	}
}

func (d *own) Sync() error {
	d.run(len(d.queue))
	return nil
}

func (d *own) Graph(name string, launches []gpu.Launch) (gpu.Launch, error) {
	if d.fail["graph"] {
		return nil, diag.Errorf(diag.Internal, "no graph today")
	}
	d.live.Add(1)
	d.graphs = append(d.graphs, name)
	return &ownGraph{d, launches}, nil
}

type ownGraph struct {
	d        *own
	launches []gpu.Launch
}

func (g *ownGraph) Free() { g.d.live.Add(-1) }

type ownBuffer struct {
	d    *own
	data []byte
}

func (b *ownBuffer) Size() int64 { return int64(len(b.data)) }
func (b *ownBuffer) Free()       { b.d.live.Add(-1) }

// Write and Read wait for what is queued.
func (b *ownBuffer) Write(off int64, src []byte) error {
	b.d.run(len(b.d.queue))
	copy(b.data[off:], src)
	return nil
}

func (b *ownBuffer) Read(off int64, dst []byte) error {
	b.d.run(len(b.d.queue))
	copy(dst, b.data[off:])
	return nil
}

func (d *own) Pinned(name string, n int64) (gpu.Pinned, error) {
	if d.fail[name] {
		return nil, diag.Errorf(diag.Unsupported, "nothing to pin for %s", name)
	}
	d.live.Add(1)
	p := &ownPinned{d: d, floats: make([]float32, (n+3)/4)}
	for i := range p.floats {
		p.floats[i] = float32(math.NaN()) // pinned memory is not zero
	}
	return p, nil
}

type ownPinned struct {
	d      *own
	floats []float32
}

func (p *ownPinned) Float32s() []float32 { return p.floats }
func (p *ownPinned) Free()               { p.d.live.Add(-1) }
func (p *ownPinned) Bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(p.floats))), 4*len(p.floats))
}

func (p *ownPinned) Upload(dst gpu.Buffer, off, n int64) error {
	if !p.d.still {
		p.d.queue = append(p.d.queue, func() { copy(dst.(*ownBuffer).data[off:], p.Bytes()[:n]) })
	}
	return nil
}

func (p *ownPinned) Download(src gpu.Buffer, off, n int64) error {
	if !p.d.still {
		p.d.sizes = append(p.d.sizes, n)
		p.d.queue = append(p.d.queue, func() { copy(p.Bytes()[:n], src.(*ownBuffer).data[off:]) })
	}
	return nil
}

func (d *own) Stage(name string, n int64) (gpu.Stage, error) {
	if d.live.Add(1); d.fail[name] {
		d.live.Add(-1)
		return nil, diag.Errorf(diag.Unsupported, "nothing to pin for %s", name)
	}
	return &ownStage{d: d, data: make([]byte, n)}, nil
}

type ownStage struct {
	d     *own
	data  []byte
	later func() error
}

func (s *ownStage) Bytes() []byte { return s.data }
func (s *ownStage) Free()         { s.d.live.Add(-1) }
func (s *ownStage) Send(dst gpu.Buffer, off, n int64) error {
	s.later = func() error { return dst.Write(off, s.data[:n]) }
	return nil
}

func (s *ownStage) Wait() (err error) {
	if s.later != nil {
		err, s.later = s.later(), nil
	}
	return err
}

// asStored keeps rows as they are.
type asStored struct{}

func (asStored) Rows() int64                       { return 1 }
func (asStored) DType(d tensor.DType) tensor.DType { return d }
func (asStored) Size(d tensor.DType, shape tensor.Shape) (int64, error) {
	return d.Bytes(shape.Elems()), nil
}
func (asStored) Keeps(tensor.DType) bool { return true }
func (asStored) PackRows(dst []byte, _ tensor.DType, _ int64, src []byte) error {
	copy(dst, src)
	return nil
}
func (asStored) Pack(dst gpu.Buffer, off int64, d tensor.DType, shape tensor.Shape, _, row, _ int64, src []byte) error {
	return dst.Write(off+row*d.Bytes(shape[len(shape)-1]), src)
}

// ownOptions is tinyOptions with a logits launch that reads the step block.
func ownOptions(t *testing.T, d gpu.Device) Options {
	o := tinyOptions(t, d)
	for _, p := range o.Plans {
		l := &p.Launches[len(p.Launches)-1]
		for _, name := range []string{"head", "tokens", "out_rows"} {
			l.Args = append(l.Args, plan.Arg{Param: name, Kind: plan.ArgStep, Step: name})
		}
	}
	return o
}

// TestADeviceWithItsOwnMemory: steps go there and wanted rows come back by queued copies; from its second step on, a bucket is
// replayed; everything is freed.
func TestADeviceWithItsOwnMemory(t *testing.T) {
	for _, eager := range []bool{false, true} {
		dev := &own{}
		o := ownOptions(t, dev)
		o.Eager = eager
		m, err := Load(context.Background(), o)
		if err != nil {
			t.Fatal(err)
		}
		for round := range 4 {
			s := goodStep()
			s.Tokens[2] = int32(round % 6)
			logits, err := m.Run(s)
			if err != nil {
				t.Fatal(err)
			}
			if len(logits) != 2 || logits[0][1] != float32(round%6+10) || logits[1][5] != 54 {
				t.Errorf("eager %v, round %d: %v", eager, round, logits)
			}
		}
		if n := len(dev.graphs); eager && n != 0 || !eager && (n != 1 || dev.graphs[0] != "tiny of 8 rows") {
			t.Errorf("eager %v: graphs %v", eager, dev.graphs)
		}
		for _, n := range dev.sizes {
			if n != 2*6*4 {
				t.Errorf("%d bytes of logits are fetched, two rows have 48", n)
			}
		}
		if err := m.Close(); err != nil || dev.live.Load() != 0 {
			t.Errorf("eager %v: %d things are left, %v", eager, dev.live.Load(), err)
		}
	}
}

func TestFailuresOfADeviceWithItsOwnMemory(t *testing.T) {
	for _, what := range []string{"step", "logits"} {
		dev := &own{fail: map[string]bool{what: true}}
		if _, err := Load(context.Background(), ownOptions(t, dev)); !diag.Is(err, diag.Unsupported) || dev.live.Load() != 0 {
			t.Errorf("%s: %v, %d things are left", what, err, dev.live.Load())
		}
	}
	dev := &own{fail: map[string]bool{"graph": true}}
	m, err := Load(context.Background(), ownOptions(t, dev))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Run(goodStep()); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Run(goodStep()); err == nil || !strings.Contains(err.Error(), "no graph today") {
		t.Errorf("%v", err)
	}
}

// TestStagesLoadTheSameBytes: weights that are read into stages arrive whole, whatever is on its way meanwhile.
func TestStagesLoadTheSameBytes(t *testing.T) {
	dev := &own{}
	o := tinyOptions(t, dev)
	want := make([]byte, 48)
	for i := range want {
		want[i] = byte(i + 1)
	}
	o.Store = twoTensors(t, want)
	m, err := Load(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range m.buffers {
		if data := b.(*ownBuffer).data; len(data) >= 48 && bytes.Equal(data[:48], want) {
			return
		}
	}
	t.Error("no buffer holds the weights")
}

func TestStepsOnAGPUAllocateNothing(t *testing.T) {
	m, err := Load(context.Background(), ownOptions(t, &own{still: true}))
	if err != nil {
		t.Fatal(err)
	}
	s := goodStep()
	for range 2 {
		if _, err := m.Run(s); err != nil {
			t.Fatal(err)
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		if _, err := m.Run(s); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations a step", n)
	}
}
