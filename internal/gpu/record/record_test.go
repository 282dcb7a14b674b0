// SPDX-License-Identifier: MIT OR Apache-2.0

package record

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

var update = flag.Bool("update", false, "rewrite the golden file")

// script is what a small model asks of a device: memory, weights packed at once from many sides, launches, two steps.
func script(d gpu.Device) error {
	arena, err := d.Alloc("arena", 8192)
	if err != nil {
		return err
	}
	defer arena.Free()
	weights, err := d.Alloc("weights", 1<<40)
	if err != nil {
		return err
	}
	defer weights.Free()
	panel, err := d.Layout("panel")
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range 8 {
		wg.Go(func() {
			off := int64(i%2) * 4096
			errs[i] = panel.Pack(weights, off, tensor.Q8_0, tensor.Shape{128, 64}, 0, int64(i/2)*32, 32, make([]byte, 32*68))
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	l, err := d.Bind(gpu.Binding{
		Name: "L00.q", Kernel: "linear",
		Args: []gpu.Arg{
			{Param: "x", Buf: arena, DType: tensor.F32, Axes: plan.Axes{{Name: "rows", Size: 4}, {Name: "hidden", Size: 64}}},
			{Param: "w", Buf: weights, Off: 4096, DType: tensor.Q8_0, Axes: plan.Axes{{Name: "n", Size: 128}, {Name: "k", Size: 64}}, Layout: "panel"},
			{Param: "y", Buf: arena, Off: 1024, DType: tensor.F32, Axes: plan.Axes{{Name: "rows", Size: 4}, {Name: "n", Size: 128}}, Access: plan.Out},
		},
		Attrs: []plan.Attr{{Name: "compute", Kind: plan.StrAttr, Str: "q16"}, {Name: "n", Int: 2}, {Name: "scale", Kind: plan.FloatAttr, Float: 0.125}},
	})
	if err != nil {
		return err
	}
	for range 2 {
		if err := arena.Write(4090, []byte("a step across pages")); err != nil {
			return err
		}
		if err := d.Stream().Launch(l); err != nil {
			return err
		}
		if err := d.Stream().Sync(); err != nil {
			return err
		}
		got := make([]byte, 21)
		if err := arena.Read(4089, got); err != nil {
			return err
		}
		if !bytes.Equal(got, []byte("\x00a step across pages\x00")) {
			return errors.New("memory does not hold what was written: " + string(got))
		}
	}
	return nil
}

func TestPrint(t *testing.T) {
	const golden = "testdata/script.txt"
	for range 3 { // packing races; the print does not
		d := New("cpu")
		if err := script(d); err != nil {
			t.Fatal(err)
		}
		d.Close()
		if len(d.Live()) != 0 {
			t.Errorf("alive: %v", d.Live())
		}
		if *update {
			os.MkdirAll("testdata", 0o755)
			os.WriteFile(golden, []byte(d.Print()), 0o644)
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Print(); got != string(want) {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

// Each operation fails in turn at each of its calls; what was allocated before is freed, nothing runs after.
func TestFaults(t *testing.T) {
	boom := diag.Errorf(diag.Overloaded, "boom")
	count := Fail(New("cpu"), Alloc, 0, nil)
	if err := script(count); err != nil {
		t.Fatal(err)
	}
	for op := range numOps {
		if count.Count(op) == 0 {
			t.Errorf("the script has no %v", op)
		}
		for n := 1; n <= count.Count(op); n++ {
			d := New("cpu")
			f := Fail(d, op, n, boom)
			if err := script(f); !errors.Is(err, error(boom)) {
				t.Errorf("%v %d: got %v", op, n, err)
			}
			if len(d.Live()) != 0 {
				t.Errorf("%v %d: alive: %v", op, n, d.Live())
			}
		}
	}
}

// A lost device stays lost.
func TestDeviceLost(t *testing.T) {
	d := New("cpu")
	f := Fail(d, Sync, 1, diag.Errorf(diag.DeviceLost, "gone"))
	if err := f.Stream().Sync(); !diag.Is(err, diag.DeviceLost) {
		t.Fatal(err)
	}
	_, errAlloc := f.Alloc("x", 1)
	_, errBind := f.Bind(gpu.Binding{})
	_, errLayout := f.Layout("f32")
	for _, err := range []error{errAlloc, errBind, errLayout, f.Stream().Launch(nil), f.Stream().Sync()} {
		if !diag.Is(err, diag.DeviceLost) {
			t.Errorf("after the loss: %v", err)
		}
	}
}

func TestMisusePanics(t *testing.T) {
	for name, f := range map[string]func(b gpu.Buffer){
		"used after Free": func(b gpu.Buffer) { b.Free(); b.Free() },
		"freed":           func(b gpu.Buffer) { b.Free(); b.Write(0, nil) },
		"past the end":    func(b gpu.Buffer) { b.Write(60, make([]byte, 5)) },
		"before":          func(b gpu.Buffer) { b.Read(-1, make([]byte, 5)) },
	} {
		b, _ := New("cpu").Alloc("state", 64)
		v := func() (v any) {
			defer func() { v = recover() }()
			f(b)
			return nil
		}()
		if s, ok := v.(string); !ok || !strings.Contains(s, "buffer state") {
			t.Errorf("%s: panic %v", name, v)
		}
	}
}

// Only a device's own launches run on it.
func TestForeignLaunch(t *testing.T) {
	a, b := New("cpu"), New("cpu")
	l, _ := a.Bind(gpu.Binding{Name: "L00"})
	if err := b.Launch(l); !diag.Is(err, diag.Internal) {
		t.Errorf("got %v", err)
	}
	if slices.Contains(b.Events(), "launch L00") {
		t.Error("it ran")
	}
}
