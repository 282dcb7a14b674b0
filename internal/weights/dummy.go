// SPDX-License-Identifier: MIT OR Apache-2.0

package weights

import (
	"hash/fnv"
	"math"
	"sort"
	"strings"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/tensor"
)

// dummy is a Store whose values are computed when they are read.
type dummy struct {
	names []string
	by    map[string]dummyTensor
	total int64
}

// dummyTensor is its values.
type dummyTensor struct {
	tensor.Info
	words tensor.Words
}

// Dummy is a Store of random values that depend on the tensors' names only: the same in every run, however they are read. The
// values of a row of K are ± around 1/√K, so that activations stay finite; vectors are near 1 where the name says norm, else
// small. Scales of quantised values are positive, such that weights are about what others are at K of a few thousand. Formats
// whose values come in blocks with scales are refused (diag.Unsupported): see Separate.
func Dummy(tensors []tensor.Info) (Store, error) {
	d := &dummy{by: map[string]dummyTensor{}}
	for _, t := range tensors {
		x := dummyTensor{Info: t}
		h := fnv.New64a()
		h.Write([]byte(t.Name))
		x.words.Seed = h.Sum64()
		exponent := int(math.Round(-math.Log2(1.53 * math.Sqrt(float64(lastAxis(t.Shape)))))) // 1.53: root mean square over [1, 2)
		if len(t.Shape) < 2 {
			if exponent = -6; strings.Contains(t.Name, "norm") {
				exponent = -1
			}
		}
		scales := endsIn(t.Name, besides) || endsIn(t.Name, inputs) || strings.HasSuffix(t.Name, ".scale")
		if scales {
			exponent = scaleExponent(t.Name)
		}
		var ok bool
		if x.words.Mask, x.words.Base, ok = wordOf(t.DType, exponent); !ok {
			return nil, diag.Errorf(diag.Unsupported, "tensor %s: there are no dummy weights of type %v", t.Name, t.DType).For(t.Name)
		}
		if strings.HasSuffix(t.Name, ".weight_packed") {
			x.words.Mask, x.words.Base = math.MaxUint64, 0
		}
		if scales && t.DType == tensor.U8 { // exponents
			x.words.Mask, x.words.Base, _ = wordOf(tensor.E8M0, 0)
		}
		if scales || len(t.Shape) < 2 && exponent == -1 { // positive
			x.words.Mask &^= signs(t.DType)
		}
		d.names, d.by[t.Name] = append(d.names, t.Name), x
		d.total += t.Size()
	}
	sort.Strings(d.names)
	return d, nil
}

func lastAxis(s tensor.Shape) int64 {
	if len(s) == 0 {
		return 1
	}
	return max(s[len(s)-1], 1)
}

// wordOf gives the random bits of 8 bytes and the others, for values in ±[2^e, 2^(e+1)).
func wordOf(d tensor.DType, e int) (mask, base uint64, ok bool) {
	const lanes32, lanes16, lanes8 = 1<<32 + 1, 1<<48 + 1<<32 + 1<<16 + 1, 0x0101010101010101
	clamp := func(e, bias, most int) uint64 { return uint64(min(max(e+bias, 1), most)) }
	switch d {
	case tensor.F32:
		return 0x807FFFFF * lanes32, clamp(e, 127, 254) << 23 * lanes32, true
	case tensor.BF16:
		return 0x807F * lanes16, clamp(e, 127, 254) << 7 * lanes16, true
	case tensor.F16:
		return 0x83FF * lanes16, clamp(e, 15, 30) << 10 * lanes16, true
	case tensor.E4M3: // scaled by another tensor
		return 0x87 * lanes8, 7 << 3 * lanes8, true
	case tensor.E8M0: // 2^-11 to 2^-8
		return 0x03 * lanes8, 116 * lanes8, true
	case tensor.I32: // indices of small tables
		return 7 * lanes32, 0, true
	case tensor.U8, tensor.I8: // packed codes
		return math.MaxUint64, 0, true
	}
	return 0, 0, false
}

// signs are the sign bits of 8 bytes.
func signs(d tensor.DType) uint64 {
	switch d {
	case tensor.F32:
		return 0x8000000080000000
	case tensor.BF16, tensor.F16:
		return 0x8000800080008000
	case tensor.E4M3:
		return 0x8080808080808080
	}
	return 0
}

// scaleExponent is that of a scale: 2^-6 makes weights from e4m3 in ±[1, 2), 2^-8 from e2m1 times such a scale.
func scaleExponent(name string) int {
	switch {
	case strings.HasSuffix(name, "weight_scale_2"):
		return -8
	case strings.HasSuffix(name, "weight_global_scale"): // divides
		return 8
	}
	return -6
}

func (d *dummy) Names() []string { return d.names }

func (d *dummy) Lookup(name string) (tensor.Info, bool) {
	t, ok := d.by[name]
	return t.Info, ok
}

// Read computes the bytes.
func (d *dummy) Read(name string, off int64, dst []byte) error {
	t, ok := d.by[name]
	if !ok {
		return missing(name)
	}
	if err := inRange(name, off, len(dst), t.Size()); err != nil {
		return err
	}
	t.words.Read(off, dst)
	return nil
}

// Words are the bytes of a tensor as they are made.
func (d *dummy) Words(name string) (tensor.Words, bool) {
	t, ok := d.by[name]
	return t.words, ok
}

func (d *dummy) Bytes(string) ([]byte, bool) { return nil, false }
func (d *dummy) Drop(string)                 {}
func (d *dummy) TotalBytes() int64           { return d.total }
func (d *dummy) Close() error                { return nil }
