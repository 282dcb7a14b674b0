// SPDX-License-Identifier: MIT OR Apache-2.0

package weights

import (
	"bytes"
	"math"
	"testing"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/tensor"
)

// TestDummyWeights: of the right scale, the same however they are read, different for different names.
func TestDummyWeights(t *testing.T) {
	list := []tensor.Info{
		{Name: "a.weight", DType: tensor.BF16, Shape: tensor.Shape{64, 1024}}, {Name: "b.weight", DType: tensor.F32, Shape: tensor.Shape{64, 100}}, {Name: "c.weight", DType: tensor.F16, Shape: tensor.Shape{3, 5, 33}},
		{Name: "d.norm.weight", DType: tensor.F32, Shape: tensor.Shape{64}}, {Name: "d.bias", DType: tensor.BF16, Shape: tensor.Shape{63}}, {Name: "e", DType: tensor.U8, Shape: tensor.Shape{8, 3}}, {Name: "f", DType: tensor.E4M3, Shape: tensor.Shape{4, 64}},
	}
	s, err := Dummy(list)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := Dummy(list)
	for _, x := range list {
		whole := make([]byte, x.Size())
		if err := s.Read(x.Name, 0, whole); err != nil {
			t.Fatal(err)
		}
		for _, step := range []int{1, 3, 8, 13} {
			var parts []byte
			for len(parts) < len(whole) {
				p := make([]byte, min(step, len(whole)-len(parts)))
				if err := again.Read(x.Name, int64(len(parts)), p); err != nil {
					t.Fatal(err)
				}
				parts = append(parts, p...)
			}
			if !bytes.Equal(parts, whole) {
				t.Errorf("%s read %d bytes at a time differs", x.Name, step)
			}
		}
		if x.DType == tensor.U8 || x.DType == tensor.E4M3 {
			continue
		}
		values := make([]float32, x.Shape.Elems())
		if err := Dequantize(values, x.DType, whole); err != nil {
			t.Fatal(err)
		}
		want := 1 / math.Sqrt(float64(x.Shape[len(x.Shape)-1]))
		switch x.Name {
		case "d.norm.weight":
			want = 0.75
		case "d.bias":
			want = 1.5 / 64
		}
		sum, square := 0.0, 0.0
		for _, v := range values {
			sum, square = sum+float64(v), square+float64(v)*float64(v)
		}
		n := float64(len(values))
		if rms := math.Sqrt(square / n); rms < want/1.5 || rms > want*1.5 {
			t.Errorf("%s: root mean square %g, want about %g", x.Name, rms, want)
		}
		if mean := sum / n; x.Name != "d.norm.weight" && math.Abs(mean) > 5*want/math.Sqrt(n) {
			t.Errorf("%s: mean %g", x.Name, mean)
		}
	}
	if err := s.Read("a.weight", 64*1024*2-1, make([]byte, 2)); !diag.Is(err, diag.Invalid) {
		t.Errorf("past the end: %v", err)
	}
	if err := s.Read("z", 0, nil); !diag.Is(err, diag.NotFound) {
		t.Errorf("unknown: %v", err)
	}
	if _, err := Dummy([]tensor.Info{{Name: "q", DType: tensor.Q4_K, Shape: tensor.Shape{1, 256}}}); !diag.Is(err, diag.Unsupported) {
		t.Errorf("blocks: %v", err)
	}
}

func BenchmarkDummy(b *testing.B) {
	s, _ := Dummy([]tensor.Info{{Name: "a", DType: tensor.BF16, Shape: tensor.Shape{1 << 10, 1 << 10}}})
	buf := make([]byte, 1<<20)
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		if err := s.Read("a", 0, buf); err != nil {
			b.Fatal(err)
		}
	}
}
