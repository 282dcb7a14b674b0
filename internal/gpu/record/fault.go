// SPDX-License-Identifier: MIT OR Apache-2.0

package record

import (
	"sync/atomic"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/tensor"
)

// Op is an operation that may fail.
type Op uint8

const (
	Alloc Op = iota
	Layout
	Pack
	Bind
	Launch
	Sync
	numOps
)

// String is the operation's name.
func (o Op) String() string {
	return [numOps]string{"alloc", "layout", "pack", "bind", "launch", "sync"}[o]
}

// Faults is a device whose n-th call of one operation fails.
type Faults struct {
	gpu.Device
	op     Op
	n      int64
	err    error
	counts [numOps]atomic.Int64
	lost   atomic.Bool
}

var _ gpu.Device = (*Faults)(nil)

// Fail makes the n-th call of op (from 1) return err. n = 0 never fails and only counts.
func Fail(d gpu.Device, op Op, n int, err error) *Faults {
	return &Faults{Device: d, op: op, n: int64(n), err: err}
}

// Count is the number of calls of op so far, the failed one included.
func (f *Faults) Count(op Op) int { return int(f.counts[op].Load()) }

// hit counts a call and says what it returns.
func (f *Faults) hit(op Op) error {
	n := f.counts[op].Add(1)
	if f.lost.Load() {
		return f.err
	}
	if op != f.op || n != f.n {
		return nil
	}
	f.lost.Store(diag.Is(f.err, diag.DeviceLost))
	return f.err
}

// Alloc may fail.
func (f *Faults) Alloc(name string, bytes int64) (gpu.Buffer, error) {
	if err := f.hit(Alloc); err != nil {
		return nil, err
	}
	return f.Device.Alloc(name, bytes)
}

// Layout may fail.
func (f *Faults) Layout(name string) (gpu.Layout, error) {
	if err := f.hit(Layout); err != nil {
		return nil, err
	}
	l, err := f.Device.Layout(name)
	return faultyLayout{l, f}, err
}

type faultyLayout struct {
	gpu.Layout
	f *Faults
}

// Pack may fail.
func (l faultyLayout) Pack(dst gpu.Buffer, off int64, d tensor.DType, shape tensor.Shape, m, row, n int64, src []byte) error {
	if err := l.f.hit(Pack); err != nil {
		return err
	}
	return l.Layout.Pack(dst, off, d, shape, m, row, n, src)
}

// Bind may fail.
func (f *Faults) Bind(b gpu.Binding) (gpu.Launch, error) {
	if err := f.hit(Bind); err != nil {
		return nil, err
	}
	return f.Device.Bind(b)
}

// Stream may fail to launch and to sync.
func (f *Faults) Stream() gpu.Stream { return faultyStream{f.Device.Stream(), f} }

type faultyStream struct {
	gpu.Stream
	f *Faults
}

func (s faultyStream) Launch(l gpu.Launch) error {
	if err := s.f.hit(Launch); err != nil {
		return err
	}
	return s.Stream.Launch(l)
}

func (s faultyStream) Sync() error {
	if err := s.f.hit(Sync); err != nil {
		return err
	}
	return s.Stream.Sync()
}
