// SPDX-License-Identifier: MIT OR Apache-2.0

package tensor

import "testing"

func TestDTypesNameThemselvesAndKnowTheirSize(t *testing.T) {
	for d := Bool; d < numDTypes; d++ {
		if back, ok := ParseDType(d.String()); !ok || back != d {
			t.Errorf("%v reads back as %v", d, back)
		}
		elems, bytes := d.Block()
		if n := d.Bytes(int64(6 * elems)); n != int64(6*bytes) {
			t.Errorf("6 blocks of %v take %d bytes", d, n)
		}
	}
	for d, bits := range map[DType]int64{F32: 32, BF16: 16, E4M3: 8, E4M3_B128: 8, NVFP4: 4, MXFP4: 4} {
		if d.Bits() != bits {
			t.Errorf("%v takes %d bits", d, d.Bits())
		}
	}
	for _, s := range []string{"none", "", "F32", "dtype(99)"} {
		if d, ok := ParseDType(s); ok {
			t.Errorf("%q is read as %v", s, d)
		}
	}
	if s := DType(99).String(); s != "dtype(99)" {
		t.Error(s)
	}
	defer func() {
		if recover() == nil {
			t.Error("a part of a block has a size")
		}
	}()
	Q4_0.Bytes(33)
}

func TestShapes(t *testing.T) {
	s := Shape{2, 3, 4}
	if s.Elems() != 24 || (Shape{}).Elems() != 1 || (Shape{2, 0}).Elems() != 0 {
		t.Error("number of elements")
	}
	if !s.Equal(Shape{2, 3, 4}) || s.Equal(Shape{2, 3}) || s.Equal(Shape{2, 3, 5}) || s.String() != "[2 3 4]" {
		t.Error("comparison or print")
	}
}
