// SPDX-License-Identifier: MIT OR Apache-2.0

package kernel

import (
	"bytes"
	"debug/elf"
	"os"
	"testing"
)

// TestMachineCode changes one byte of each kind of section of a compiled module: what a device loads for an entry counts for that entry,
// what it loads for all for each, and where a line stands in a source for none.
func TestMachineCode(t *testing.T) {
	code, err := os.ReadFile("testdata/machine/two.cubin")
	if err != nil {
		t.Fatal(err)
	}
	entries := []string{"first", "second"}
	whole, err := MachineCode(code, entries)
	if err != nil || whole["first"] == whole["second"] || len(whole) != 2 {
		t.Fatal(whole, err)
	}
	f, err := elf.NewFile(bytes.NewReader(code))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		section       string
		first, second bool // whether that entry is another then
	}{
		{".text.first", true, false},
		{".text.second", false, true},
		{".nv.constant0.first", true, false},
		{".nv.constant3", true, true},
		{".debug_line", false, false},
		{".nv_debug_line_sass", false, false},
		{".nv_debug_ptx_txt", false, false},
		{".rela.debug_line", false, false},
		{".note.nv.tkinfo", false, false},
	} {
		s := f.Section(tc.section)
		if s == nil || s.Size == 0 {
			t.Fatalf("the module has no section %s", tc.section)
		}
		other := bytes.Clone(code)
		other[s.Offset+s.Size/2] ^= 1
		got, err := MachineCode(other, entries)
		if err != nil {
			t.Errorf("%s: %v", tc.section, err)
		} else if (got["first"] != whole["first"]) != tc.first || (got["second"] != whole["second"]) != tc.second {
			t.Errorf("one byte of %s changed: first differs %t, want %t; second %t, want %t", tc.section,
				got["first"] != whole["first"], tc.first, got["second"] != whole["second"], tc.second)
		}
	}
	if _, err := MachineCode(code, []string{"third"}); err == nil {
		t.Error("an entry without instructions passed")
	}
	// Code of another vendor's form counts as a whole.
	if got, err := MachineCode([]byte("code"), entries); err != nil || got["first"] != CodeSum([]byte("code")) || got["second"] != got["first"] {
		t.Error(got, err)
	}
}
