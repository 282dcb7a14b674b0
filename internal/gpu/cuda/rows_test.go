// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda

import (
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights"
)

// unpacked is a value of a matrix [n, k] in the layout "rows", read as its drawing says.
func unpacked(packed []byte, d tensor.DType, k, row, col int) float64 {
	unit := packed[int64(row/8)*panelBytes(d, int64(k))+int64(col/128)*unitBytes(d):][:unitBytes(d)]
	g, s, t, j := row%8, col%128/32, col%32/8, col%8
	if d == tensor.E4M3 || d == tensor.E4M3_B128 {
		order := [4]int{1, 3, 0, 2}
		v := float64(tensor.FromE4M3(unit[s/2*512+(4*g+t)*16+s%2*8+j/4*4+order[j%4]]))
		if d == tensor.E4M3_B128 {
			v *= float64(math.Float32frombits(binary.LittleEndian.Uint32(unit[1024+4*g:]))) * 0x1p-56
		}
		return v
	}
	word := bits.RotateLeft32(binary.LittleEndian.Uint32(unit[(4*g+t)*16+4*s:]), j%2*16)
	code := 0
	for _, bit := range [4][4]int{{15, 8, 7, 6}, {9, 2, 1, 0}, {3, 28, 27, 26}, {13, 14, 5, 4}}[j/2] {
		code = code<<1 | int(word>>bit&1)
	}
	if d == tensor.MXFP4 {
		return float64(tensor.FromE2M1(uint8(code))) * math.Ldexp(1, int(unit[512+4*g+s])-127-100)
	}
	scale := unit[512+8*g+4*(t/2)+s]
	return float64(tensor.FromE2M1(uint8(code))) * math.Ldexp(1+float64(scale&7)/8, int(scale>>3)-9)
}

// TestRowsKeepEveryValue: codes and scales of every kind are where the kernels look for them, and come out as they were.
func TestRowsKeepEveryValue(t *testing.T) {
	_, dev := openFake(t)
	l, err := dev.Layout("rows")
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		d    tensor.DType
		n, k int
	}{{tensor.E4M3, 11, 200}, {tensor.E4M3_B128, 16, 384}, {tensor.NVFP4, 8, 16 * 256}, {tensor.NVFP4, 13, 176}, {tensor.MXFP4, 24, 160}} {
		shape := tensor.Shape{2, int64(c.n), int64(c.k)}
		src := make([]byte, c.d.Bytes(shape.Elems()))
		elems, block := c.d.Block()
		for i := range src {
			src[i] = byte(rng.Uint32())
			switch at := i % block; {
			case c.d == tensor.MXFP4 && at == 0:
				src[i] = byte(28 + i/block%127)
			case c.d == tensor.NVFP4 && at == 0:
				src[i] = byte(i / block % 127) // all scales
			case c.d == tensor.E4M3_B128 && at == 3:
				binary.LittleEndian.PutUint32(src[i-3:], math.Float32bits(float32(math.Ldexp(1+rng.Float64(), i/block%40-30))))
			case src[i]&0x7f == 0x7f && (c.d == tensor.E4M3 || c.d == tensor.E4M3_B128):
				src[i] = 0x83
			}
		}
		want := make([]float32, shape.Elems())
		if err := weights.Dequantize(want, c.d, src); err != nil {
			t.Fatal(err)
		}
		size, err := l.Size(c.d, shape)
		if err != nil || size != 2*int64((c.n+7)/8)*panelBytes(c.d, int64(c.k)) || l.DType(c.d) != c.d {
			t.Fatalf("%v %v: %d bytes, %v", c.d, shape, size, err)
		}
		b, _ := dev.Alloc("b", size+256)
		row := c.k / elems * block
		for m := range 2 {
			for at := 0; at < c.n; at += 8 {
				n := min(8, c.n-at)
				if err := l.Pack(b, 256, c.d, shape, int64(m), int64(at), int64(n), src[(m*c.n+at)*row:][:n*row]); err != nil {
					t.Fatal(err)
				}
			}
		}
		packed := make([]byte, size)
		b.Read(256, packed)
		for i, w := range want {
			r, col := i/c.k%c.n, i%c.k
			if got := unpacked(packed[int64(i/(c.n*c.k))*size/2:], c.d, c.k, r, col); float32(got) != w {
				t.Fatalf("%v: row %d, value %d is %v, want %v", c.d, r, col, got, w)
			}
		}
	}
	shape := tensor.Shape{8, 32}
	b, _ := dev.Alloc("b", 1024)
	if err := l.Pack(b, 0, tensor.MXFP4, shape, 0, 0, 8, append([]byte{200}, make([]byte, 8*17-1)...)); !diag.Is(err, diag.Unsupported) {
		t.Errorf("a scale that kernels do not take: %v", err)
	}
	if err := l.Pack(b, 0, tensor.MXFP4, shape, 0, 4, 4, make([]byte, 4*17)); !diag.Is(err, diag.Internal) {
		t.Errorf("half a panel: %v", err)
	}
	if _, err := l.Size(tensor.Q4_K, tensor.Shape{8, 256}); !diag.Is(err, diag.Unsupported) {
		t.Errorf("%v", err)
	}
}
