// SPDX-License-Identifier: MIT OR Apache-2.0

package tensor

import "math"

// Every To… rounds to nearest, ties to even, from float32; every From… is exact. Byte-equal with PyTorch 2.15's .to(),
// except that a NaN keeps its sign and loses its payload (PyTorch's own code paths differ there).
//
//	format  sign exp man  bias  overflow                        largest finite
//	BF16      1   8   7   127   to infinity                     3.39e38
//	F16       1   5  10    15   to infinity                     65504
//	E4M3      1   4   3     7   saturates, infinity too         448       0x7F is NaN, there is no infinity
//	E5M2      1   5   2    15   to infinity                     57344
//	E8M0      0   8   0   127   infinity and NaN to 0xFF = NaN  2^127     the sign is dropped, 0 becomes 2^-127
//	E2M1      1   2   1     1   saturates, infinity too         6         there is no NaN: NaN becomes 6

// ToBF16 rounds to bfloat16.
func ToBF16(f float32) uint16 {
	u := math.Float32bits(f)
	if u&0x7FFFFFFF > 0x7F800000 {
		return uint16(u>>16)&0x8000 | 0x7FC0
	}
	return uint16((u + 0x7FFF + u>>16&1) >> 16)
}

// FromBF16 widens a bfloat16.
func FromBF16(h uint16) float32 { return math.Float32frombits(uint32(h) << 16) }

// ToF16 rounds to IEEE half precision.
func ToF16(f float32) uint16 {
	u := math.Float32bits(f)
	sign := uint16(u>>16) & 0x8000
	u &= 0x7FFFFFFF
	switch {
	case u > 0x7F800000:
		return sign | 0x7E00
	case u >= 0x47800000: // 65536
		return sign | 0x7C00
	case u < 0x38800000: // 2^-14: below, the result is subnormal and adding 0.5 rounds to its unit, 2^-24
		return sign | uint16(math.Float32bits(math.Float32frombits(u)+0.5)-0x3F000000)
	}
	return sign | uint16((u-112<<23+0xFFF+u>>13&1)>>13)
}

// FromF16 widens an IEEE half; a signalling NaN becomes quiet.
func FromF16(h uint16) float32 {
	u := uint32(h) & 0x7FFF << 13
	f := math.Float32frombits(u) * 0x1p112 // moves the exponent; exact, subnormals included
	u = math.Float32bits(f)
	if u >= 0x47800000 { // the exponent was all ones
		u |= 0x7F800000
		if u != 0x7F800000 {
			u |= 0x00400000
		}
	}
	return math.Float32frombits(u | uint32(h)&0x8000<<16)
}

// ToE4M3 rounds to float8_e4m3fn.
func ToE4M3(f float32) uint8 {
	u := math.Float32bits(f)
	sign := uint8(u>>24) & 0x80
	u &= 0x7FFFFFFF
	switch {
	case u > 0x7F800000:
		return sign | 0x7F
	case u >= 0x43E00000: // 448
		return sign | 0x7E
	case u < 0x3C800000: // 2^-6: subnormal, unit 2^-9
		return sign | uint8(math.Float32bits(math.Float32frombits(u)+0x1p14)-0x46800000)
	}
	return sign | uint8((u-120<<23+0x7FFFF+u>>20&1)>>20)
}

// FromE4M3 widens a float8_e4m3fn.
func FromE4M3(b uint8) float32 { return e4m3[b] }

// ToE5M2 rounds to float8_e5m2.
func ToE5M2(f float32) uint8 {
	u := math.Float32bits(f)
	sign := uint8(u>>24) & 0x80
	u &= 0x7FFFFFFF
	switch {
	case u > 0x7F800000:
		return sign | 0x7F
	case u >= 0x47800000: // 65536
		return sign | 0x7C
	case u < 0x38800000: // 2^-14: subnormal, unit 2^-16
		return sign | uint8(math.Float32bits(math.Float32frombits(u)+0x1p7)-0x43000000)
	}
	return sign | uint8((u-112<<23+0xFFFFF+u>>21&1)>>21)
}

// FromE5M2 widens a float8_e5m2.
func FromE5M2(b uint8) float32 { return FromF16(uint16(b) << 8) }

// ToE8M0 rounds |f| to a power of two, by the exponent: from 1.5 on up.
func ToE8M0(f float32) uint8 {
	u := math.Float32bits(f) & 0x7FFFFFFF
	e, m := uint8(u>>23), u&0x7FFFFF
	if e == 0xFF || m < 0x400000 || m == 0x400000 && e == 0 {
		return e
	}
	return e + 1
}

// FromE8M0 is 2^(b-127), NaN for 0xFF.
func FromE8M0(b uint8) float32 {
	switch b {
	case 0:
		return 0x1p-127
	case 0xFF:
		return float32(math.NaN())
	}
	return math.Float32frombits(uint32(b) << 23)
}

// ToE2M1 rounds to float4_e2m1, in the low four bits. PyTorch has no such conversion; the test enumerates the values.
func ToE2M1(f float32) uint8 {
	u := math.Float32bits(f)
	sign := uint8(u>>28) & 8
	u &= 0x7FFFFFFF
	switch {
	case u > 0x7F800000:
		return 7
	case u >= 0x40C00000: // 6
		return sign | 7
	case u < 0x3F800000: // 1: subnormal, unit 0.5
		return sign | uint8(math.Float32bits(math.Float32frombits(u)+0x1p22)-0x4A800000)
	}
	return sign | uint8((u-126<<23+0x1FFFFF+u>>22&1)>>22)
}

// FromE2M1 widens the low four bits of b.
func FromE2M1(b uint8) float32 { return e2m1[b&15] }

var e2m1 = [16]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6, float32(math.Copysign(0, -1)), -0.5, -1, -1.5, -2, -3, -4, -6}

var e4m3 = func() (t [256]float32) {
	for i := range t {
		exp, man := i>>3&15, float64(i&7)
		f := math.Ldexp(1+man/8, exp-7)
		if exp == 0 {
			f = math.Ldexp(man/8, -6)
		}
		if i&0x7F == 0x7F {
			f = math.NaN()
		}
		if i&0x80 != 0 {
			f = math.Copysign(f, -1)
		}
		t[i] = float32(f)
	}
	return t
}()
