// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"bytes"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

func TestOpen(t *testing.T) {
	d := open(t, Options{})
	info := d.Info()
	if info.Class != "cpu" || info.Threads != runtime.GOMAXPROCS(0) || !strings.Contains(info.Name, d.level.String()) {
		t.Errorf("%+v", info)
	}
	if runtime.GOOS == "linux" && info.Memory < 1<<28 {
		t.Errorf("%d bytes of memory", info.Memory)
	}
	for _, o := range []Options{{Path: "neon"}, {Threads: -1}} {
		if _, err := Open(o); !diag.Is(err, diag.Invalid) {
			t.Errorf("%+v: got %v, want %v", o, err, diag.Invalid)
		}
	}
}

// Memory is zero, aligned, bounded, and gone after Free.
func TestBuffers(t *testing.T) {
	d := open(t, Options{Threads: 1})
	for _, n := range []int64{0, 1, 100, 4096, mapFrom - 1, mapFrom, 5<<20 + 3} {
		b, err := d.Alloc("x", n)
		if err != nil {
			t.Fatal(err)
		}
		h := b.(gpu.HostBuffer)
		if b.Size() != n || int64(len(h.Bytes())) != n || int64(len(h.Float32s())) != n/4 {
			t.Errorf("%d bytes: size %d, %d bytes, %d floats", n, b.Size(), len(h.Bytes()), len(h.Float32s()))
		}
		if p := uintptr(unsafe.Pointer(unsafe.SliceData(h.Bytes()))); p%alignment != 0 {
			t.Errorf("%d bytes: at %#x", n, p)
		}
		if len(bytes.Trim(h.Bytes(), "\x00")) != 0 {
			t.Errorf("%d bytes: not zeroed", n)
		}
		if n >= 100 {
			got := make([]byte, 5)
			if err := b.Write(n-5, []byte("hello")); err != nil {
				t.Error(err)
			}
			if err := b.Read(n-5, got); err != nil || string(got) != "hello" {
				t.Errorf("read %q, %v", got, err)
			}
		}
		for _, off := range []int64{-1, n - 4, n + 1} {
			if err := b.Write(off, make([]byte, 5)); !diag.Is(err, diag.Internal) {
				t.Errorf("write of 5 at %d of %d: %v", off, n, err)
			}
		}
		b.Free()
		for name, f := range map[string]func(){"Free": b.Free, "Bytes": func() { h.Bytes() }, "Write": func() { b.Write(0, nil) }} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s after Free went through", name)
					}
				}()
				f()
			}()
		}
	}
	if _, err := d.Alloc("huge", 1<<60); !diag.Is(err, diag.Overloaded) || !strings.Contains(err.Error(), "huge") {
		t.Errorf("an impossible allocation: %v", err)
	}
}

// Layout "f32" dequantises and "" copies, in any order of chunks, each matrix of a stack at its place.
func TestLayouts(t *testing.T) {
	d := open(t, Options{Threads: 1})
	shape := tensor.Shape{2, 3, 32} // two matrices of three rows
	src := make([]byte, 2*3*34)     // q8_0: a scale and 32 bytes
	for i := range 6 {
		block := src[i*34:]
		block[1] = 0x3c // scale 1.0 as f16
		for j := range 32 {
			block[2+j] = byte(i*7 + j - 20)
		}
	}
	for _, name := range []string{"", "f32"} {
		l, err := d.Layout(name)
		if err != nil {
			t.Fatal(err)
		}
		size, err := l.Size(tensor.Q8_0, shape)
		if want := map[string]int64{"": 204, "f32": 4 * 192}[name]; err != nil || size != want {
			t.Fatalf("%q: size %d, %v, want %d", name, size, err, want)
		}
		b, _ := d.Alloc("w", size+64)
		for _, c := range [][3]int64{{1, 2, 1}, {0, 0, 3}, {1, 0, 2}} {
			from := (c[0]*3 + c[1]) * 34
			if err := l.Pack(b, 64, tensor.Q8_0, shape, c[0], c[1], c[2], src[from:from+c[2]*34]); err != nil {
				t.Fatal(err)
			}
		}
		if name == "" {
			if !bytes.Equal(b.(gpu.HostBuffer).Bytes()[64:], src) {
				t.Error("stored bytes differ")
			}
		} else {
			for i, v := range b.(gpu.HostBuffer).Float32s()[16:] {
				if want := float32(int8(i/32*7 + i%32 - 20)); v != want {
					t.Fatalf("element %d is %v, want %v", i, v, want)
				}
			}
		}
		for what, err := range map[string]error{
			"offset":   l.Pack(b, 32, tensor.Q8_0, shape, 0, 0, 1, src[:34]),
			"end":      l.Pack(b, 128, tensor.Q8_0, shape, 0, 0, 1, src[:34]),
			"matrix":   l.Pack(b, 64, tensor.Q8_0, shape, 2, 0, 1, src[:34]),
			"row":      l.Pack(b, 64, tensor.Q8_0, shape, 0, 2, 2, src[:68]),
			"source":   l.Pack(b, 64, tensor.Q8_0, shape, 0, 0, 1, src[:33]),
			"no block": second(l.Size(tensor.Q8_0, tensor.Shape{2, 33})),
		} {
			if err == nil {
				t.Errorf("%q: a wrong %s was taken", name, what)
			}
		}
		b.Free()
	}
	if _, err := d.Layout("tiles"); !diag.Is(err, diag.Unsupported) {
		t.Errorf("unknown layout: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// norm is a right binding of rms_norm.
func norm(t *testing.T, d *Device) *rig {
	r := newRig(t, d, "rms_norm", 2, 1, 0)
	r.floats("x", plan.In, make([]float32, 64), r.rows(), ax("n", 32))
	r.floats("w", plan.In, make([]float32, 16), ax("n", 16))
	r.floats("y", plan.Out, nil, r.rows(), ax("n", 32))
	return r.attr("eps", 1e-5).attr("group", 16)
}

// Each fault of a binding is an error that names the launch, the kernel and what is wrong.
func TestBindFaults(t *testing.T) {
	d := open(t, Options{Threads: 2})
	norm(t, d).run()
	other := open(t, Options{Threads: 1})
	arg := func(r *rig, param string) *gpu.Arg {
		for i := range r.b.Args {
			if r.b.Args[i].Param == param {
				return &r.b.Args[i]
			}
		}
		t.Fatal(param)
		return nil
	}
	set := func(name string, v any) func(*rig) {
		return func(r *rig) {
			for i, a := range r.b.Attrs {
				if a.Name == name {
					r.b.Attrs = append(r.b.Attrs[:i:i], r.b.Attrs[i+1:]...)
					break
				}
			}
			r.attr(name, v)
		}
	}
	for name, c := range map[string]struct {
		spoil func(r *rig)
		want  string
	}{
		"kernel":            {func(r *rig) { r.b.Kernel = "rms" }, `no kernel "rms"`},
		"missing argument":  {func(r *rig) { r.b.Args = r.b.Args[:3] }, "argument y: missing"},
		"missing head":      {func(r *rig) { r.b.Args = r.b.Args[1:] }, "argument head: missing"},
		"short head":        {func(r *rig) { arg(r, "head").Axes[0].Size = 2 }, "argument head: 2 elements"},
		"unknown argument":  {func(r *rig) { r.floats("z", plan.In, nil, ax("n", 1)) }, "argument z: the kernel has no such parameter"},
		"bound twice":       {func(r *rig) { r.b.Args = append(r.b.Args, *arg(r, "w")) }, "argument w: bound twice"},
		"access":            {func(r *rig) { arg(r, "y").Access = plan.In }, "argument y: access in, the kernel's is out"},
		"element type":      {func(r *rig) { arg(r, "x").DType = tensor.BF16 }, "argument x: bf16"},
		"layout":            {func(r *rig) { arg(r, "w").Layout = "panel" }, `argument w: f32 in layout "panel"`},
		"leading axis":      {func(r *rig) { arg(r, "x").Axes[0].Name = "n" }, "argument x: axes [n=4 n=32]"},
		"different leading": {func(r *rig) { arg(r, "y").Axes[0].Name = plan.Outs }, "argument y: leading axis outs"},
		"width":             {func(r *rig) { arg(r, "y").Axes[1].Size = 16 }, "argument y: axes [rows=4 n=16] are 16 wide, want 32"},
		"weight size":       {func(r *rig) { arg(r, "w").Axes[0].Size = 8 }, "argument w: axes [n=8], want 16"},
		"past the buffer":   {func(r *rig) { arg(r, "x").Axes[0].Size = 400; arg(r, "y").Axes[0].Size = 400 }, "argument x: f32[rows=400 n=32] takes 51200 bytes"},
		"offset":            {func(r *rig) { arg(r, "x").Off = 2 }, "argument x: offset 2"},
		"negative offset":   {func(r *rig) { arg(r, "x").Off = -4 }, "argument x: offset -4"},
		"overlap":           {func(r *rig) { arg(r, "y").Buf = arg(r, "x").Buf; arg(r, "y").Off = 60; arg(r, "y").Axes[0].Size = 4 }, "argument y: overlaps argument x"},
		"no buffer":         {func(r *rig) { arg(r, "x").Buf = nil }, "argument x: its buffer"},
		"freed":             {func(r *rig) { b, _ := d.Alloc("x", 4096); b.Free(); arg(r, "x").Buf = b }, "argument x: its buffer"},
		"eps missing":       {func(r *rig) { r.b.Attrs = r.b.Attrs[1:] }, "attribute eps is missing"},
		"eps kind":          {set("eps", "small"), "attribute eps is of the wrong kind"},
		"group kind":        {set("group", 16.0), "attribute group is of the wrong kind"},
		"group zero":        {set("group", 0), "attribute group is 0"},
		"group":             {set("group", 5), "argument x: width 32 is not a multiple of 5"},
		"flag":              {set("plus_one", 2), "attribute plus_one is 2"},
		"unknown attribute": {set("axis", 1), `no attribute "axis"`},
	} {
		t.Run(name, func(t *testing.T) {
			r := norm(t, d)
			c.spoil(r)
			_, err := d.Bind(r.b)
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "launch L00.test") {
				t.Errorf("got %v, want the launch and %q", err, c.want)
			}
		})
	}
	if err := other.Launch("not a launch"); !diag.Is(err, diag.Internal) {
		t.Errorf("a foreign launch: %v", err)
	}
}

// In place is allowed where the manifest says so.
func TestBindInPlace(t *testing.T) {
	d := open(t, Options{Threads: 1})
	r := norm(t, d)
	for i := range r.b.Args {
		if r.b.Args[i].Param == "y" {
			r.b.Args[i].Buf = r.b.Args[1].Buf
		}
	}
	r.run()
}

// What a step brings wrong is an error of Launch, not a crash, and the device goes on.
func TestLaunchFaults(t *testing.T) {
	d := open(t, Options{Threads: 2})
	r := norm(t, d)
	l := r.bind()
	head := view[int32](r.b.Args[0].Buf.(*buffer).data[64:])
	for _, n := range []int32{-1, 5, 1 << 30} {
		head[0] = n
		err := d.Launch(l)
		if !diag.Is(err, diag.Internal) || !strings.Contains(err.Error(), "launch L00.test") || !strings.Contains(err.Error(), "head") {
			t.Errorf("%d rows: %v", n, err)
		}
	}
	head[0] = 4
	if err := d.Launch(l); err != nil {
		t.Error(err)
	}
	head[0] = 0
	if err := d.Launch(l); err != nil {
		t.Error("an empty step:", err)
	}

	// A panic in a worker's task comes back with its stack as the private cause.
	err := d.Launch(&launch{name: "L01.boom", run: func() { d.pool.Run(8, func(i, _ int) { panic("boom") }) }})
	if e, ok := diag.As(err); !ok || e.Error() != "launch L01.boom: boom" || !strings.Contains(e.Detail(), "TestLaunchFaults") {
		t.Errorf("got %v", err)
	}

	// Freed memory is noticed.
	b, _ := d.Alloc("gone", 64)
	b.Free()
	if err := d.Launch(&launch{name: "L02", buffers: []*buffer{b.(*buffer)}}); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("got %v", err)
	}
	if d.Sync() != nil {
		t.Error("Sync failed")
	}
}

func TestLaunchDoesNotAllocate(t *testing.T) {
	d := open(t, Options{Threads: 2})
	for name, l := range bindSmall(t, d, 600, 40) {
		if n := testing.AllocsPerRun(5, func() { d.Launch(l) }); n != 0 {
			t.Errorf("%s: %v allocations per launch", name, n)
		}
	}
}
