// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/gpu/cudatest"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights"
	"github.com/metrale/metrale/kernels"
)

// TestDummyWeightsAreTheHosts: what the device makes of every type and kind of scale has the bytes that the store reads, wherever it
// begins, and leaves what lies around as it is.
func TestDummyWeightsAreTheHosts(t *testing.T) {
	m, _ := machines(t)
	dev := m.dev.(gpu.Generator)
	var list []tensor.Info
	for _, d := range []tensor.DType{tensor.F32, tensor.BF16, tensor.F16, tensor.E4M3, tensor.E8M0, tensor.I32, tensor.U8, tensor.I8} {
		for _, x := range []struct {
			name  string
			shape tensor.Shape
		}{{"weight", tensor.Shape{7, 33}}, {"norm.weight", tensor.Shape{65}}, {"bias", tensor.Shape{3}}, {"experts.weight", tensor.Shape{3, 129, 1024}},
			{"weight_packed", tensor.Shape{5, 9}}, {"weight_scale", tensor.Shape{11, 3}}, {"weight_scale_inv", tensor.Shape{4, 5}}, {"weight_scale_2", tensor.Shape{1}},
			{"weight_global_scale", tensor.Shape{1}}, {"input_scale", nil}, {"w_scales", tensor.Shape{2, 31}}} {
			list = append(list, tensor.Info{Name: fmt.Sprintf("%v.%s", d, x.name), DType: d, Shape: x.shape})
		}
	}
	store, err := weights.Dummy(list)
	if err != nil {
		t.Fatal(err)
	}
	const gap = 3
	var runs []gpu.Run
	var want []byte
	for i, x := range list {
		words, ok := store.(interface {
			Words(string) (tensor.Words, bool)
		}).Words(x.Name)
		if !ok {
			t.Fatalf("%s has no words", x.Name)
		}
		first := int64(i) % min(9, x.Size()) // a run may begin anywhere, also in the midst of a word
		stored := make([]byte, x.Size()-first)
		if err := store.Read(x.Name, first, stored); err != nil {
			t.Fatal(err)
		}
		runs = append(runs, gpu.Run{Off: int64(len(want)), First: first, Bytes: int64(len(stored)), Words: words})
		want = append(append(want, stored...), bytes.Repeat([]byte{0x5a}, gap+i%7)...)
	}
	runs = append(runs, gpu.Run{Off: int64(len(want))}) // of no bytes
	buf, err := m.dev.Alloc("weights", int64(len(want)))
	if err != nil {
		t.Fatal(err)
	}
	if err := buf.Write(0, bytes.Repeat([]byte{0x5a}, len(want))); err != nil {
		t.Fatal(err)
	}
	if err := dev.Generate(buf, runs); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if err := buf.Read(0, got); err != nil {
		t.Fatal(err)
	}
	for i, x := range list {
		end := len(want)
		if i+1 < len(list) {
			end = int(runs[i+1].Off)
		}
		if at := int(runs[i].Off); !bytes.Equal(got[at:end], want[at:end]) {
			t.Errorf("%s %v, from byte %d on, differs", x.Name, x.Shape, runs[i].First)
		}
	}
	if !t.Failed() {
		m.saw("dummy")
	}
}

// TestLayoutsKeepWhatIsStored: what a layout packs, the device does not make.
func TestLayoutsKeepWhatIsStored(t *testing.T) {
	m, _ := machines(t)
	for _, x := range []struct {
		layout string
		d      tensor.DType
		want   bool
	}{{"", tensor.BF16, true}, {"", tensor.NVFP4, true}, {"dense", tensor.BF16, true}, {"dense", tensor.F16, true}, {"dense", tensor.E4M3, false}, {"f32", tensor.BF16, false},
		{"f32", tensor.F32, true}, {"rows", tensor.E4M3, false}} {
		l, err := m.dev.Layout(x.layout)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.(gpu.RowLayout).Keeps(x.d); got != x.want {
			t.Errorf("layout %q keeps %v: %v", x.layout, x.d, got)
		}
	}
}

// BenchmarkDummy makes 8 GB of bf16, or little where the host does.
func BenchmarkDummy(b *testing.B) {
	d := cudatest.Open(b, kernels.FS)
	rows := int64(1 << 20)
	if cudatest.OnHost() {
		rows = 1 << 7
	}
	buf, err := d.Alloc("weights", rows*8192)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(rows * 8192)
	runs := []gpu.Run{{Bytes: rows * 8192, Words: tensor.Words{Seed: 1, Mask: 0x807f807f807f807f, Base: 0x3c003c003c003c00}}}
	for b.Loop() {
		if err := d.Generate(buf, runs); err != nil {
			b.Fatal(err)
		}
	}
}
