// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build linux

package cuda

import "testing"

func TestLargePages(t *testing.T) {
	for _, n := range []int64{1, 4096, hugePage, 3*hugePage + 5} {
		mapping, mem := mapHuge(n)
		if mapping == nil || int64(len(mem)) != n || address(mem)%hugePage != 0 {
			t.Fatalf("%d bytes: %d at %x", n, len(mem), address(mem))
		}
		for i := range mem {
			if mem[i]++; mem[i] != 1 {
				t.Fatalf("byte %d of %d is not zero", i, n)
			}
		}
		unmapHuge(mapping)
	}
	unmapHuge(nil)
}

// TestStagesWithoutLargePages: where the driver does not take our memory, a stage is its own.
func TestStagesWithoutLargePages(t *testing.T) {
	f, d := openFake(t)
	for _, r := range []result{success, errNotSupported} {
		f.fail[cuMemHostRegister] = r
		s, err := d.Stage("stage", 1000)
		if err != nil {
			t.Fatal(err)
		}
		b, err := d.Alloc("b", 1000)
		if err != nil {
			t.Fatal(err)
		}
		copy(s.Bytes(), "weights")
		if err := s.Send(b, 10, 7); err != nil || len(s.Bytes()) != 1000 {
			t.Errorf("%v, a stage of %d", err, len(s.Bytes()))
		}
		if err := s.Wait(); err != nil {
			t.Error(err)
		}
		got := make([]byte, 7)
		if err := b.Read(10, got); err != nil || string(got) != "weights" {
			t.Errorf("%q, %v", got, err)
		}
		s.Free()
		s.Free()
	}
}
