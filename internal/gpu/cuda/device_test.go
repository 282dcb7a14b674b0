// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda_test

import (
	"bytes"
	"encoding/binary"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/gpu/cuda"
	"github.com/metrale/metrale/internal/gpu/cudatest"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/kernels"
)

// faulty makes a test be the process that loses the device.
var faulty = flag.Bool("fault", false, "lose the device, which ends it for this process")

// apart runs a test that loses the device in a process of its own. It says whether this is that process.
func apart(t *testing.T, flags ...string) bool {
	t.Helper()
	if cudatest.OnHost() {
		t.Skip("a fault is not made: the host's memory is the device's")
	}
	if *faulty {
		return true
	}
	cmd := exec.Command(os.Args[0], slices.Concat(cudatest.Args(), []string{"-test.v", "-test.run", "^" + t.Name() + "$", "-fault"}, flags)...)
	out, err := cmd.CombinedOutput()
	if t.Logf("%s", out); err != nil {
		t.Error(err)
	}
	return false
}

// open is the device, or skips the test.
func open(t *testing.T) *cuda.Device {
	t.Helper()
	return cudatest.Open(t, kernels.FS).Device
}

func words(values ...int32) []byte {
	out := make([]byte, 0, 4*len(values))
	for _, v := range values {
		out = binary.LittleEndian.AppendUint32(out, uint32(v))
	}
	return out
}

// gather binds y = x[out_rows] over rows of n values, and writes head and out_rows.
func gather(t testing.TB, d gpu.Device, rows, n int, pick []int32) (gpu.Launch, gpu.Buffer, gpu.Buffer) {
	t.Helper()
	alloc := func(name string, n int) gpu.Buffer {
		b, err := d.Alloc(name, int64(n))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	x, y := alloc("x", 4*rows*n), alloc("y", 4*len(pick)*n)
	head, list := alloc("head", 32), alloc("out_rows", 4*len(pick))
	for b, data := range map[gpu.Buffer][]byte{head: words(int32(rows), 1, int32(len(pick)), 0, 0, 0, 0, 0), list: words(pick...)} {
		if err := b.Write(0, data); err != nil {
			t.Fatal(err)
		}
	}
	axis := func(name string, n int) plan.Axis { return plan.Axis{Name: name, Size: int64(n)} }
	l, err := d.Bind(gpu.Binding{Name: "gather", Kernel: "gather_rows", Limits: plan.Limits{Rows: int64(rows), Seqs: 1, Outs: int64(len(pick)), PageSize: 16, Pages: 1},
		Args: []gpu.Arg{
			{Param: "head", Buf: head, DType: tensor.I32, Axes: plan.Axes{axis("head", 8)}},
			{Param: "out_rows", Buf: list, DType: tensor.I32, Axes: plan.Axes{axis(plan.Outs, len(pick))}},
			{Param: "x", Buf: x, DType: tensor.F32, Axes: plan.Axes{axis(plan.Rows, rows), axis("n", n)}},
			{Param: "y", Buf: y, DType: tensor.F32, Axes: plan.Axes{axis(plan.Outs, len(pick)), axis("n", n)}, Access: plan.Out},
		}})
	if err != nil {
		t.Fatal(err)
	}
	return l, x, y
}

// TestMemoryOnTheDevice: zeroed, kept, copied in order with launches.
func TestMemoryOnTheDevice(t *testing.T) {
	d := open(t)
	b, err := d.Alloc("b", 33<<20)
	if err != nil {
		t.Fatal(err)
	}
	got, want := make([]byte, 33<<20), make([]byte, 33<<20)
	if err := b.Read(0, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("new memory is not zero, %v", err)
	}
	for i := range want {
		want[i] = byte(rand.Uint32())
	}
	if err := b.Write(0, want); err != nil {
		t.Fatal(err)
	}
	if err := b.Read(0, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("what is written does not come back, %v", err)
	}
	if _, err := d.Alloc("too much", 1<<50); !diag.Is(err, diag.Unsupported) || !strings.Contains(err.Error(), "are free on") {
		t.Errorf("%v", err)
	}
	l, x, y := gather(t, d, 64, 1000, []int32{3, 60})
	in, _ := d.Pinned("in", 64*4000)
	out, _ := d.Pinned("out", 2*4000)
	for round := range 3 {
		for i := range in.Float32s() {
			in.Float32s()[i] = float32(round*1000 + i/1000)
		}
		for _, err := range []error{in.Upload(x, 0, 64*4000), d.Launch(l), out.Download(y, 0, 2*4000), d.Sync()} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if f := out.Float32s(); f[0] != float32(round*1000+3) || f[1999] != float32(round*1000+60) {
			t.Errorf("round %d: rows %g and %g", round, f[0], f[1999])
		}
	}
}

// TestGraphsOnTheDevice: a replay computes what the launches compute, also when the inputs have changed.
func TestGraphsOnTheDevice(t *testing.T) {
	d := open(t)
	a, x, y := gather(t, d, 64, 512, []int32{5, 9})
	for range 2 {
		if err := d.Launch(a); err != nil {
			t.Fatal(err)
		}
	}
	g, err := d.Graph("twice", []gpu.Launch{a, a})
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, 4*64*512)
	for round := range 3 {
		for i := range 64 * 512 {
			binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(float32(round+i/512)))
		}
		got := make([]byte, 4)
		if err := x.Write(0, data); err != nil {
			t.Fatal(err)
		}
		if err := d.Launch(g); err != nil {
			t.Fatal(err)
		}
		if err := y.Read(4*512, got); err != nil || math.Float32frombits(binary.LittleEndian.Uint32(got)) != float32(round+9) {
			t.Errorf("round %d: %v, %v", round, got, err)
		}
	}
	g.(interface{ Free() }).Free()
}

// TestMarksOnTheDevice: what was queued before a mark is there when it was waited for, whatever is queued behind.
func TestMarksOnTheDevice(t *testing.T) {
	d := open(t)
	const rows, n = 4096, 1000
	l, x, y := gather(t, d, rows, n, []int32{7, rows - 1})
	in, _ := d.Pinned("in", 4*rows*n)
	marks := make([]gpu.Mark, 2)
	outs := make([]gpu.Pinned, 2)
	for i := range marks {
		var err error
		if marks[i], err = d.Mark(); err != nil {
			t.Fatal(err)
		}
		outs[i], _ = d.Pinned("out", 8*n)
	}
	for i := range in.Float32s() {
		in.Float32s()[i] = float32(i / n)
	}
	for round := range 6 {
		i := round % 2
		for _, err := range []error{in.Upload(x, 0, 4*rows*n), d.Launch(l), outs[i].Download(y, 0, 8*n), marks[i].Set()} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if round == 0 {
			continue
		}
		if err := marks[1-i].Wait(); err != nil {
			t.Fatal(err)
		}
		if f := outs[1-i].Float32s(); f[0] != 7 || f[2*n-1] != rows-1 {
			t.Errorf("round %d: rows %g and %g", round, f[0], f[2*n-1])
		}
		clear(outs[1-i].Float32s())
	}
	if err := d.Sync(); err != nil {
		t.Fatal(err)
	}
	for _, m := range marks {
		m.Free()
	}
}

// TestStagesOnTheDevice: what several stages load at a time arrives.
func TestStagesOnTheDevice(t *testing.T) {
	d := open(t)
	want := make([]byte, 4096*2048)
	for i := 0; i < len(want); i += 8 {
		binary.LittleEndian.PutUint64(want[i:], rand.Uint64())
	}
	b, err := d.Alloc("weights", int64(len(want)))
	if err != nil {
		t.Fatal(err)
	}
	const rows = 256
	errs := make(chan error, 4)
	for w := range 4 {
		go func() {
			errs <- func() error {
				s, err := d.Stage("stage", rows*2048)
				if err != nil {
					return err
				}
				defer s.Free()
				for r := w * 1024; r < (w+1)*1024; r += rows {
					if err := s.Wait(); err != nil {
						return err
					}
					copy(s.Bytes(), want[r*2048:])
					if err := s.Send(b, int64(r)*2048, rows*2048); err != nil {
						return err
					}
				}
				return s.Wait()
			}()
		}()
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	got := make([]byte, len(want))
	if err := b.Read(0, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the loaded bytes differ, %v", err)
	}
}

// TestAFaultLosesTheDevice: a kernel that reads where nothing is ends the device, not the process; later calls say so.
func TestAFaultLosesTheDevice(t *testing.T) {
	d := open(t)
	if !apart(t) {
		return
	}
	l, _, y := gather(t, d, 64, 1<<20, []int32{1 << 18})
	err := d.Launch(l)
	if err == nil {
		err = d.Sync()
	}
	if !diag.Is(err, diag.DeviceLost) || !strings.Contains(err.Error(), "ILLEGAL_ADDRESS") || !strings.Contains(err.Error(), "launch gather (kernel gather_rows") {
		t.Errorf("%v", err)
	}
	for _, later := range []error{d.Launch(l), d.Sync(), y.Write(0, words(1))} {
		if later == nil || later.Error() != err.Error() {
			t.Errorf("later: %v", later)
		}
	}
}

// TestBlocksThatNeverComeLoseTheDevice: a kernel whose blocks wait for one that is not there traps after a while.
func TestBlocksThatNeverComeLoseTheDevice(t *testing.T) {
	m, _ := machines(t)
	if !apart(t) {
		return
	}
	took, err := waitInVain(t, m)
	t.Logf("%v: %v", took, err)
	if !diag.Is(err, diag.DeviceLost) || !strings.Contains(err.Error(), "kernel experts_layer_rows") || took < 100*time.Millisecond {
		t.Error("that is no trap")
	}
}

// TestAHangOnTheDevice: a kernel that runs beyond the limit loses the device, and neither closing it nor the end of the process waits.
func TestAHangOnTheDevice(t *testing.T) {
	m, _ := machines(t)
	const limit = 300 * time.Millisecond
	began := time.Now()
	if !apart(t, "-device-timeout", limit.String()) {
		t.Logf("the process took %v", time.Since(began))
		return
	}
	took, err := waitInVain(t, m)
	t.Logf("%v: %v", took, err)
	if !diag.Is(err, diag.DeviceLost) || !strings.Contains(err.Error(), "the device is not done after 300ms") || took > limit+5*time.Second {
		t.Error("it is not found in time")
	}
	began = time.Now()
	if m.dev.Close(); time.Since(began) > limit*5/6 { // one that waits does so for the limit, or until the kernel traps a second later
		t.Errorf("closing takes %v", time.Since(began))
	}
}

// waitInVain launches a kernel whose blocks never meet, since one seems to have come too many.
func waitInVain(t *testing.T, m machine) (took time.Duration, err error) {
	k := m.class.Kernels["experts_layer_rows"]
	if k == nil {
		t.Skip("no kernel's blocks wait for each other")
	}
	const meet, hidden, experts, inner = 1088, 64, 8, 32
	counters := make([]int32, 8192)
	counters[meet] = 1 << 20
	s := newStory("in vain", 1, 1, 1)
	s.step(k.Name, 1, 1, 1).io(s, "x", plan.Rows, hidden, s.normal).weight(s, "norm", tensor.F32, 1, hidden).weight(s, "router", tensor.BF16, 1, experts, hidden).
		weight(s, "gate_up", tensor.BF16, 1, experts, 2*inner, hidden).weight(s, "down", tensor.BF16, 1, experts, hidden, inner).ints("meet", len(counters), counters).
		attr("k", 2).attr("score", "softmax").attr("act", "silu").attr("eps", 1e-6).attr("plus_one", 0).attr("renorm", 1).attr("renorm_eps", 0.0).attr("weight_scale", 1.0)
	began := time.Now()
	defer func() { took = time.Since(began) }()
	defer func() { err, _ = recover().(error) }()
	m.run(t, s, nil)
	return
}

// TestSpeedOnTheDevice logs what a launch, a replayed launch and a pinned copy cost.
func TestSpeedOnTheDevice(t *testing.T) {
	d := open(t)
	l, _, _ := gather(t, d, 2, 32, []int32{1})
	const n = 500
	list := make([]gpu.Launch, n)
	for i := range list {
		list[i] = l
	}
	run := func(f func() error) (host, device float64) {
		if err := f(); err != nil {
			t.Fatal(err)
		}
		if err := d.Sync(); err != nil {
			t.Fatal(err)
		}
		var began time.Time
		ms, err := d.Time(func() error {
			began = time.Now()
			err := f()
			host = time.Since(began).Seconds() * 1e6
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return host, ms * 1e3
	}
	host, dev := run(func() error {
		for range n {
			if err := d.Launch(l); err != nil {
				return err
			}
		}
		return nil
	})
	t.Logf("launch by launch: %.2f µs of the host, %.2f µs of the device each", host/n, dev/n)
	g, err := d.Graph("speed", list)
	if err != nil {
		t.Fatal(err)
	}
	host, dev = run(func() error { return d.Launch(g) })
	t.Logf("replayed: %.1f µs of the host for all, %.2f µs of the device each", host, dev/n)
	p, err := d.Pinned("copy", 256<<20)
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.Alloc("copy", 256<<20)
	if err != nil {
		t.Fatal(err)
	}
	_, dev = run(func() error { return p.Upload(b, 0, 256<<20) })
	t.Logf("pinned copy: %.1f GB/s up", float64(256<<20)/dev/1e3)
	_, dev = run(func() error { return p.Download(b, 0, 256<<20) })
	t.Logf("pinned copy: %.1f GB/s down", float64(256<<20)/dev/1e3)
}
