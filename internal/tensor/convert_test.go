// SPDX-License-Identifier: MIT OR Apache-2.0

package tensor

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"testing"
)

// formats under test: codes as uint32, so that one loop serves all.
var formats = []struct {
	name string
	d    DType
	bits int
	to   func(float32) uint32
	from func(uint32) float32
}{
	{"bf16", BF16, 16, func(f float32) uint32 { return uint32(ToBF16(f)) }, func(c uint32) float32 { return FromBF16(uint16(c)) }},
	{"f16", F16, 16, func(f float32) uint32 { return uint32(ToF16(f)) }, func(c uint32) float32 { return FromF16(uint16(c)) }},
	{"e4m3", E4M3, 8, func(f float32) uint32 { return uint32(ToE4M3(f)) }, func(c uint32) float32 { return FromE4M3(uint8(c)) }},
	{"e5m2", E5M2, 8, func(f float32) uint32 { return uint32(ToE5M2(f)) }, func(c uint32) float32 { return FromE5M2(uint8(c)) }},
	{"e8m0", E8M0, 8, func(f float32) uint32 { return uint32(ToE8M0(f)) }, func(c uint32) float32 { return FromE8M0(uint8(c)) }},
	{"e2m1", E2M1, 4, func(f float32) uint32 { return uint32(ToE2M1(f)) }, func(c uint32) float32 { return FromE2M1(uint8(c)) }},
}

// lines reads a vector file made by tools/vectors/make_vectors.py as fields.
func lines(t *testing.T, file string) (out [][]string) {
	f, err := os.Open("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		out = append(out, strings.Fields(s.Text()))
	}
	return out
}

func bits32(f float32) uint32 {
	if f != f {
		return 0x7FC00000
	}
	return math.Float32bits(f)
}

func TestDecodeEqualsPyTorch(t *testing.T) {
	rows := lines(t, "decode.txt")
	seen := map[string]int{}
	for _, row := range rows {
		for _, f := range formats {
			if f.name != row[0] {
				continue
			}
			seen[f.name]++
			if len(row) == 2 { // the hash of all codes
				var all []byte
				for c := range uint32(1) << f.bits {
					all = binary.LittleEndian.AppendUint32(all, bits32(f.from(c)))
				}
				if sum := sha256.Sum256(all); hex.EncodeToString(sum[:]) != row[1] {
					t.Errorf("%s: the hash of all codes differs", f.name)
				}
				continue
			}
			c, _ := strconv.ParseUint(row[1], 16, 32)
			if got := fmt.Sprintf("%08x", bits32(f.from(uint32(c)))); got != row[2] {
				t.Errorf("%s %s: got %s, want %s", f.name, row[1], got, row[2])
			}
		}
	}
	for _, f := range formats {
		if seen[f.name] < 16 {
			t.Errorf("%s: only %d vectors", f.name, seen[f.name])
		}
	}
}

func TestEncodeEqualsPyTorch(t *testing.T) {
	rows := lines(t, "encode.txt")
	if len(rows) < 2000 {
		t.Fatalf("only %d vectors", len(rows))
	}
	for _, row := range rows {
		u, _ := strconv.ParseUint(row[0], 16, 32)
		x := math.Float32frombits(uint32(u))
		for i, f := range formats {
			code := f.to(x)
			got := fmt.Sprintf("%0*x", f.bits/4, code)
			if y := f.from(code); y != y {
				got = "nan"
			}
			if got != row[1+i] {
				t.Errorf("%s of %s (%g): got %s, want %s", f.name, row[0], x, got, row[1+i])
			}
		}
	}
}

// TestEveryCodeSurvives: widening and rounding back gives the code again; NaN stays NaN with its sign.
func TestEveryCodeSurvives(t *testing.T) {
	for _, f := range formats {
		for c := range uint32(1) << f.bits {
			x := f.from(c)
			back := f.to(x)
			if x != x {
				if y := f.from(back); y == y || f.name != "e8m0" && math.Signbit(float64(x)) != math.Signbit(float64(y)) {
					t.Errorf("%s %x: NaN became %x", f.name, c, back)
				}
			} else if back != c {
				t.Errorf("%s %x: came back as %x", f.name, c, back)
			}
		}
	}
}

// TestSlicesEqualScalars: Encode and Decode, at odd lengths, do what the scalar functions do.
func TestSlicesEqualScalars(t *testing.T) {
	r := rand.New(rand.NewSource(1))
	for _, f := range formats {
		elems, size := f.d.Block()
		for _, n := range []int{0, 2, 6, 8, 34, 1000} {
			src := make([]float32, n)
			for i := range src {
				src[i] = math.Float32frombits(r.Uint32())
			}
			enc := make([]byte, n/elems*size)
			if err := Encode(enc, f.d, src); err != nil {
				t.Fatal(err)
			}
			dec := make([]float32, n)
			if err := Decode(dec, f.d, enc); err != nil {
				t.Fatal(err)
			}
			for i, x := range src {
				if want := f.from(f.to(x)); bits32(dec[i]) != bits32(want) {
					t.Fatalf("%s, %d elements, %d: got %g, want %g", f.name, n, i, dec[i], want)
				}
			}
		}
	}
}

func TestDecodeIntegers(t *testing.T) {
	for _, c := range []struct {
		d    DType
		src  []byte
		want float32
	}{
		{Bool, []byte{1}, 1}, {U8, []byte{255}, 255}, {I8, []byte{255}, -1}, {I16, []byte{0, 128}, -32768},
		{I32, []byte{1, 0, 0, 128}, -2147483647}, {I64, []byte{0, 0, 0, 0, 0, 0, 0, 128}, -9223372036854775808},
		{F32, []byte{0, 0, 192, 63}, 1.5}, {F64, []byte{0, 0, 0, 0, 0, 0, 248, 63}, 1.5},
	} {
		got := make([]float32, 1)
		if err := Decode(got, c.d, c.src); err != nil || got[0] != c.want {
			t.Errorf("%v: got %g %v", c.d, got[0], err)
		}
	}
}

func TestSizesAndFormatsAreChecked(t *testing.T) {
	x := make([]float32, 3)
	for d, n := range map[DType]int{F32: 11, E2M1: 2, Q4_0: 18, None: 3, numDTypes: 3} {
		if err := Decode(x, d, make([]byte, n)); err == nil {
			t.Errorf("Decode of 3 elements of %v from %d bytes", d, n)
		}
		if err := Encode(make([]byte, n), d, x); err == nil {
			t.Errorf("Encode of 3 elements of %v to %d bytes", d, n)
		}
	}
	if err := Encode(make([]byte, 3), I8, x); err == nil {
		t.Error("Encode rounds to integers")
	}
	if err := Decode(make([]float32, 32), Q4_0, make([]byte, 18)); err == nil {
		t.Error("Decode takes blocks")
	}
}

func BenchmarkSlices(b *testing.B) {
	const n = 1 << 14
	f, raw := make([]float32, n), make([]byte, 2*n)
	r := rand.New(rand.NewSource(1))
	for i := range f {
		f[i] = float32(r.NormFloat64())
	}
	for name, run := range map[string]func(){
		"DecodeBF16": func() { DecodeBF16(f, raw) }, "DecodeF16": func() { DecodeF16(f, raw) },
		"EncodeBF16": func() { EncodeBF16(raw, f) }, "EncodeF16": func() { EncodeF16(raw, f) },
	} {
		b.Run(name, func(b *testing.B) {
			EncodeF16(raw, f)
			b.SetBytes(4 * n)
			for b.Loop() {
				run()
			}
		})
	}
}
