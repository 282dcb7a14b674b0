// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda

import (
	"testing"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
)

// staged is a stage and a buffer of 64 bytes.
func staged(t *testing.T, d *Device) (gpu.Stage, gpu.Buffer) {
	t.Helper()
	b, err := d.Alloc("b", 64)
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.Stage("s", 64)
	if err != nil {
		t.Fatal(err)
	}
	return s, b
}

// TestStagesTellALoss: whichever of a stage's calls finds that the device is lost, later ones tell it and ask the driver nothing.
func TestStagesTellALoss(t *testing.T) {
	for name, c := range map[string]struct {
		fails entry
		do    func(gpu.Stage, gpu.Buffer) error
	}{
		"copy":  {cuMemcpyHtoDAsync, func(s gpu.Stage, b gpu.Buffer) error { return s.Send(b, 0, 8) }},
		"event": {cuEventRecord, func(s gpu.Stage, b gpu.Buffer) error { return s.Send(b, 0, 8) }},
		"wait":  {cuEventQuery, func(s gpu.Stage, b gpu.Buffer) error { return s.Wait() }},
	} {
		t.Run(name, func(t *testing.T) {
			f, d := openFake(t)
			s, b := staged(t, d)
			other, _ := staged(t, d)
			if err := s.Send(b, 0, 8); err != nil {
				t.Fatal(err)
			}
			f.fail[c.fails] = 700
			first := c.do(s, b)
			if !diag.Is(first, diag.DeviceLost) {
				t.Fatalf("%v", first)
			}
			calls := len(f.calls)
			for what, err := range map[string]error{"send": s.Send(b, 0, 8), "wait": s.Wait(), "another's send": other.Send(b, 0, 8), "another's wait": other.Wait()} {
				if err == nil || err.Error() != first.Error() {
					t.Errorf("%s: %v", what, err)
				}
			}
			if len(f.calls) != calls {
				t.Errorf("the driver is asked %d times more", len(f.calls)-calls)
			}
			delete(f.fail, c.fails)
			s.Free()
			other.Free()
		})
	}
}

// TestStagesRefuse: a buffer that was freed, and a device that was closed.
func TestStagesRefuse(t *testing.T) {
	f, d := openFake(t)
	s, b := staged(t, d)
	b.Free()
	calls := len(f.calls)
	if err := s.Send(b, 0, 8); !diag.Is(err, diag.Internal) || err.Error() != "cuda: buffer b was freed" || len(f.calls) != calls {
		t.Errorf("%v, %d calls", err, len(f.calls)-calls)
	}
	s.Free()
	s, b = staged(t, d)
	s.Free()
	d.Close()
	for what, err := range map[string]error{"send": s.Send(b, 0, 8), "wait": s.Wait()} {
		if !diag.Is(err, diag.Internal) || err.Error() != "cuda: the device is closed" {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestStagesWaitForNobody: weights flow while someone else has entered the device, who may load code for long.
func TestStagesWaitForNobody(t *testing.T) {
	_, d := openFake(t)
	s, b := staged(t, d)
	defer s.Free()
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := s.Send(b, 0, 8); err != nil {
		t.Error(err)
	}
	if err := s.Wait(); err != nil {
		t.Error(err)
	}
}
