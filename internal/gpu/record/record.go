// SPDX-License-Identifier: MIT OR Apache-2.0

package record

import (
	"fmt"
	"strings"
	"sync"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// Device remembers.
type Device struct {
	mu      sync.Mutex // Pack comes from many goroutines
	class   string
	buffers []*buffer
	events  []string
	closed  bool
}

var _ gpu.Device = (*Device)(nil)

// New is a device of that hardware class.
func New(class string) *Device { return &Device{class: class} }

// Info has no memory limit and one thread.
func (d *Device) Info() gpu.Info { return gpu.Info{Name: "recorder", Class: d.class, Threads: 1} }

// Stream is the device itself.
func (d *Device) Stream() gpu.Stream { return d }

// Alloc remembers the buffer.
func (d *Device) Alloc(name string, bytes int64) (gpu.Buffer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := &buffer{dev: d, name: name, size: bytes, pages: map[int64][]byte{}}
	d.buffers = append(d.buffers, b)
	return b, nil
}

// Bind remembers the binding.
func (d *Device) Bind(b gpu.Binding) (gpu.Launch, error) {
	d.log("bind %s", bindingString(&b))
	return &launch{d, b.Name}, nil
}

type launch struct {
	dev  *Device
	name string
}

// Launch remembers that a bound launch ran.
func (d *Device) Launch(l gpu.Launch) error {
	x, ok := l.(*launch)
	if !ok || x.dev != d {
		return diag.Errorf(diag.Internal, "record: a launch of another device: %T", l)
	}
	d.log("launch %s", x.name)
	return nil
}

// Sync is remembered too.
func (d *Device) Sync() error {
	d.log("sync")
	return nil
}

// Close may come once.
func (d *Device) Close() error {
	if d.closed {
		panic("record: device closed twice")
	}
	d.closed = true
	d.log("close")
	return nil
}

func (d *Device) log(format string, v ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, fmt.Sprintf(format, v...))
}

// Live are the names of buffers that were not freed, in order of allocation.
func (d *Device) Live() []string {
	var names []string
	for _, b := range d.buffers {
		if b.pages != nil {
			names = append(names, b.name)
		}
	}
	return names
}

// Events are the calls but Alloc and Pack, in order, each one line.
func (d *Device) Events() []string { return d.events }

// Reset forgets the events so far.
func (d *Device) Reset() { d.events = nil }

// Print shows all that is remembered.
func (d *Device) Print() string {
	var s strings.Builder
	fmt.Fprintf(&s, "device %s\n", d.class)
	for _, b := range d.buffers {
		fmt.Fprintf(&s, "buffer %s %d%s\n", b.name, b.size, b.packed)
	}
	for _, e := range d.events {
		s.WriteString(e + "\n")
	}
	return s.String()
}

// bindingString is one line: name, kernel, arguments in order, attributes, grid and limits.
func bindingString(b *gpu.Binding) string {
	var s strings.Builder
	fmt.Fprintf(&s, "%s = %s(", b.Name, b.Kernel)
	for i, a := range b.Args {
		if i > 0 {
			s.WriteString(", ")
		}
		fmt.Fprintf(&s, "%s %s %s+%d %v%s", accessNames[a.Access], a.Param, bufferName(a.Buf), a.Off, a.DType, axesString(a.Axes))
		if a.Layout != "" {
			fmt.Fprintf(&s, " as %s", a.Layout)
		}
	}
	s.WriteString(")")
	for _, a := range b.Attrs {
		switch a.Kind {
		case plan.IntAttr:
			fmt.Fprintf(&s, " %s=%d", a.Name, a.Int)
		case plan.FloatAttr:
			fmt.Fprintf(&s, " %s=%g", a.Name, a.Float)
		case plan.StrAttr:
			fmt.Fprintf(&s, " %s=%q", a.Name, a.Str)
		}
	}
	if len(b.Grid) > 0 {
		fmt.Fprintf(&s, " grid %q", b.Grid)
	}
	return s.String()
}

var accessNames = [...]string{plan.In: "in", plan.Out: "out", plan.InOut: "inout"}

func bufferName(b gpu.Buffer) string {
	if x, ok := b.(*buffer); ok {
		return x.name
	}
	return fmt.Sprintf("%T", b)
}

func axesString(axes plan.Axes) string {
	s := make([]string, len(axes))
	for i, x := range axes {
		s[i] = fmt.Sprintf("%s=%d", x.Name, x.Size)
	}
	return "[" + strings.Join(s, " ") + "]"
}

// Layout accepts any name. Its size is that of float32 for "f32", else that of the stored weight.
func (d *Device) Layout(name string) (gpu.Layout, error) { return layout(name), nil }

type layout string

// DType is float32 for "f32".
func (l layout) DType(d tensor.DType) tensor.DType {
	if l == "f32" {
		return tensor.F32
	}
	return d
}

// Rows is 1: any cut is accepted.
func (layout) Rows() int64 { return 1 }

// Size asks for whole blocks along the last axis.
func (l layout) Size(t tensor.DType, shape tensor.Shape) (int64, error) {
	elems, _ := t.Block()
	if n := len(shape); n > 0 && shape[n-1]%int64(elems) != 0 {
		return 0, diag.Errorf(diag.Unsupported, "rows of %d elements are no whole blocks of %v", shape[n-1], t)
	}
	if l == "f32" {
		t = tensor.F32
	}
	return t.Bytes(shape.Elems()), nil
}

// Pack counts the rows.
func (l layout) Pack(dst gpu.Buffer, off int64, t tensor.DType, shape tensor.Shape, m, row, n int64, src []byte) error {
	b, ok := dst.(*buffer)
	if !ok {
		return diag.Errorf(diag.Internal, "record: packing into memory of another device: %T", dst)
	}
	b.dev.mu.Lock()
	defer b.dev.mu.Unlock()
	b.mustLive()
	b.packed.add(off, string(l), t, shape, int64(len(src)))
	return nil
}
