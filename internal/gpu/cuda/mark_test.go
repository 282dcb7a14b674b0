// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda

import (
	"slices"
	"testing"

	"github.com/metrale/metrale/internal/diag"
)

// Waiting for a mark waits for its event, not for the stream, and finds out when the device is lost.
func TestMarks(t *testing.T) {
	f, d := openFake(t)
	m, err := d.Mark()
	if err != nil {
		t.Fatal(err)
	}
	calls := len(f.calls)
	if err := m.Set(); err != nil {
		t.Fatal(err)
	}
	if err := m.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := f.calls[calls:]; !slices.Equal(got, []entry{cuCtxSetCurrent, cuEventRecord, cuCtxSetCurrent, cuEventQuery}) {
		t.Errorf("calls %v", got)
	}
	if n := testing.AllocsPerRun(100, func() {
		f.calls = f.calls[:0]
		if m.Set() != nil || m.Wait() != nil {
			t.Fatal("it fails")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	f.fail[cuEventQuery] = 700
	first := m.Wait()
	if !diag.Is(first, diag.DeviceLost) {
		t.Fatalf("%v", first)
	}
	delete(f.fail, cuEventQuery)
	if err := m.Set(); err == nil || err.Error() != first.Error() {
		t.Errorf("set: %v", err)
	}
	if _, err := d.Mark(); err == nil || err.Error() != first.Error() {
		t.Errorf("another mark: %v", err)
	}
	m.Free()
}
