// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda

import (
	"strings"
	"testing"
	"time"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
)

// hanging is a device with a step under way, of a graph, and everything that can wait for it.
type hanging struct {
	f      *fake
	d      *Device
	launch gpu.Launch
	graph  gpu.Launch
	mark   gpu.Mark
	buffer gpu.Buffer
	pinned gpu.Pinned
	stage  gpu.Stage // sent
	spare  gpu.Stage // not sent
}

func openHanging(t *testing.T, o Options) *hanging {
	t.Helper()
	f, d := openFakeWith(t, o)
	h := &hanging{f: f, d: d}
	var err error
	must := func(e error) {
		if t.Helper(); e != nil {
			t.Fatal(e)
		}
	}
	h.buffer, err = d.Alloc("b", 64)
	must(err)
	h.pinned, err = d.Pinned("p", 64)
	must(err)
	h.stage, err = d.Stage("s", 64)
	must(err)
	h.spare, err = d.Stage("spare", 64)
	must(err)
	h.launch, err = d.Bind(goodBinding(t, d))
	must(err)
	h.graph, err = d.Graph("llama of 8 rows", []gpu.Launch{h.launch})
	must(err)
	h.mark, err = d.Mark()
	must(err)
	must(d.Launch(h.graph))
	must(h.mark.Set())
	must(h.stage.Send(h.buffer, 0, 8))
	return h
}

// TestAHangLosesTheDevice: whoever waits for what does not end is told within the limit, everybody else at once, and nothing asks the
// driver for more: its answer might not come.
func TestAHangLosesTheDevice(t *testing.T) {
	for name, c := range map[string]struct {
		wait func(*hanging) error
		want string
	}{
		"mark":   {func(h *hanging) error { return h.mark.Wait() }, "waiting for graph llama of 8 rows: "},
		"stream": {func(h *hanging) error { return h.d.Sync() }, "waiting for the stream: "},
		"read":   {func(h *hanging) error { return h.buffer.Read(0, make([]byte, 8)) }, "copying 8 bytes at 0 of b: "},
		"stage":  {func(h *hanging) error { return h.stage.Wait() }, "loading weights: "},
		"time":   {func(h *hanging) error { _, err := h.d.Time(h.d.Sync); return err }, "waiting for the stream: "},
		"timing": {func(h *hanging) error { _, err := h.d.Time(func() error { return nil }); return err }, "timing: "},
		"launch": {func(h *hanging) error { h.d.opts.Blocking = true; return h.d.Launch(h.graph) }, "running: "},
		"full queue": {func(h *hanging) error {
			for range mostQueued / 2 { // of launches that are two each
				if err := h.d.Launch(h.launch); err != nil {
					return err
				}
			}
			return h.d.Launch(h.launch)
		}, "making room for launches: "},
		"free": {func(h *hanging) error { h.buffer.Free(); return h.d.Sync() }, "waiting to free memory: "},
	} {
		t.Run(name, func(t *testing.T) {
			h := openHanging(t, Options{Timeout: 20 * time.Millisecond})
			f, d := h.f, h.d
			f.busy = 1 << 40
			began := time.Now()
			first := c.wait(h)
			if took := time.Since(began); took < d.opts.Timeout || took > time.Minute {
				t.Errorf("it took %v", took)
			}
			if !diag.Is(first, diag.DeviceLost) || !strings.HasPrefix(first.Error(), "cuda: "+c.want+"the device is not done after 20ms; a kernel hangs (") || strings.Contains(first.Error(), "(the newest launch was ") == (name == "mark") {
				t.Fatalf("%v", first)
			}
			memory, calls := len(f.memory), len(f.calls)
			_, alloc := d.Alloc("c", 64)
			_, timing := d.Time(d.Sync)
			for what, err := range map[string]error{"mark": h.mark.Wait(), "set": h.mark.Set(), "sync": d.Sync(), "launch": d.Launch(h.launch), "alloc": alloc,
				"write": h.buffer.Write(0, make([]byte, 4)), "download": h.pinned.Download(h.buffer, 0, 4), "time": timing,
				"send": h.stage.Send(h.buffer, 0, 8), "stage": h.stage.Wait(), "idle stage": h.spare.Wait()} {
				if err == nil || err.Error() != first.Error() {
					t.Errorf("%s: %v", what, err)
				}
			}
			h.graph.(interface{ Free() }).Free()
			h.mark.Free()
			h.buffer.Free()
			h.pinned.Free()
			h.stage.Free()
			h.spare.Free()
			d.Close()
			for _, e := range f.calls[calls:] {
				if e != cuCtxSetCurrent {
					t.Errorf("a device that hangs is asked for %s", entries[e].symbol)
				}
			}
			if len(f.memory) != memory {
				t.Errorf("%d allocations are left of %d that the device may use", len(f.memory), memory)
			}
			h.stage.Free() // of a closed device
		})
	}
}

// TestASlowStepEnds: what ends in time is waited for, with naps when it takes long, and costs no memory.
func TestASlowStepEnds(t *testing.T) {
	h := openHanging(t, Options{Timeout: time.Minute})
	f, d := h.f, h.d
	if n := testing.AllocsPerRun(100, func() {
		f.calls, f.busy = f.calls[:0], 5
		if h.mark.Set() != nil || h.mark.Wait() != nil || f.busy > 0 {
			t.Fatal("it fails")
		}
		f.busy = 5
		if d.Sync() != nil || f.busy > 0 {
			t.Fatal("it fails")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	// A stream that takes longer than attentive: from then on, looks are a nap apart.
	call := d.drv.call
	var first time.Time
	looks := 0
	d.drv.call = func(e entry, a []uintptr) result {
		if e != cuStreamQuery {
			return call(e, a)
		}
		if first.IsZero() {
			first = time.Now()
		}
		switch waited := time.Since(first) - attentive; {
		case waited > 50*nap:
			return success
		case waited > 10*nap:
			looks++
		}
		return errNotReady
	}
	if err := d.Sync(); err != nil || looks > 41 {
		t.Errorf("%d looks in %v, %v", looks, 40*nap, err)
	}
	h.stage.Free()
	h.spare.Free()
	d.Close()
	if len(f.memory) > 0 {
		t.Errorf("%d allocations are left", len(f.memory))
	}
}
