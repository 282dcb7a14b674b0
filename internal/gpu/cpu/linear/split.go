// SPDX-License-Identifier: MIT OR Apache-2.0

package linear

import "github.com/metrale/metrale/internal/tensor"

// splitters take stored blocks apart; package gguf draws these.
var splitters = map[tensor.DType]func(s *stored, b []byte){
	tensor.Q4_0: func(s *stored, b []byte) {
		s.d = le.Uint16(b)
		s.nibbles(b[2:])
	},
	tensor.Q4_1: func(s *stored, b []byte) {
		s.d, s.m = le.Uint16(b), le.Uint16(b[2:])
		s.nibbles(b[4:])
	},
	tensor.Q5_0: func(s *stored, b []byte) {
		s.d = le.Uint16(b)
		s.nibbles(b[6:])
		s.fifth(le.Uint32(b[2:]))
	},
	tensor.Q5_1: func(s *stored, b []byte) {
		s.d, s.m = le.Uint16(b), le.Uint16(b[2:])
		s.nibbles(b[8:])
		s.fifth(le.Uint32(b[4:]))
	},
	tensor.Q8_0: func(s *stored, b []byte) {
		s.d = le.Uint16(b)
		for t := range 8 {
			s.words[t] = le.Uint32(b[2+4*t:]) ^ 0x80808080
		}
	},
	tensor.IQ4_NL: func(s *stored, b []byte) {
		s.d = le.Uint16(b)
		s.nibbles(b[2:])
	},
	tensor.MXFP4: func(s *stored, b []byte) {
		s.d = 0x0020 << b[0] // 2^(e-128) in bf16, subnormal for e < 2
		if b[0] >= 2 {
			s.d = uint16(b[0]-1) << 7
		}
		s.nibbles(b[1:])
	},
	tensor.INT4_B32: func(s *stored, b []byte) {
		s.d = le.Uint16(b)
		s.nibbles(b[2:])
	},
	tensor.NVFP4: func(s *stored, b []byte) { // two stored blocks; half an e4m3 fits a half
		s.d, s.d2 = tensor.ToF16(tensor.FromE4M3(b[0])/2), tensor.ToF16(tensor.FromE4M3(b[9])/2)
		s.inOrder(0, b[1:9])
		s.inOrder(4, b[10:18])
	},
	tensor.Q2_K: func(s *stored, b []byte) {
		s.d, s.m = le.Uint16(b[80:]), le.Uint16(b[82:])
		for g, x := range b[:16] {
			s.ints[g], s.mins[g] = int8(x&15), x>>4
		}
		s.pairs(b[16:], 0)
	},
	tensor.Q3_K: func(s *stored, b []byte) {
		s.d = le.Uint16(b[108:])
		scales := b[96:108]
		for g := range 16 {
			low := scales[g%8] >> (g / 8 * 4) & 15
			s.ints[g] = int8(low|scales[8+g%4]>>(g/4*2)&3<<4) - 32
		}
		s.pairs(b[32:], 0)
		s.bits(b[:32], 2)
	},
	tensor.Q4_K: func(s *stored, b []byte) {
		s.d, s.m = le.Uint16(b), le.Uint16(b[2:])
		s.sixBits(b[4:16])
		s.superNibbles(b[16:])
	},
	tensor.Q5_K: func(s *stored, b []byte) {
		s.d, s.m = le.Uint16(b), le.Uint16(b[2:])
		s.sixBits(b[4:16])
		s.superNibbles(b[48:])
		s.bits(b[16:48], 4)
	},
	tensor.Q6_K: func(s *stored, b []byte) {
		s.d = le.Uint16(b[208:])
		for g, x := range b[192:208] {
			s.ints[g] = int8(x)
		}
		for g := range 8 { // blocks of 32: half h, quarter j
			h, j := g/4, g%4
			for t := range 8 {
				s.words[8*g+t] = le.Uint32(b[64*h+32*(j&1)+4*t:]) >> (j / 2 * 4) & 0x0f0f0f0f
			}
		}
		s.pairs(b[128:], 4)
	},
}

// nibbles reads 32 codes: element i in the low nibble of byte i, i+16 in its high nibble.
func (s *stored) nibbles(b []byte) {
	for t := range 4 {
		x := le.Uint32(b[4*t:])
		s.words[t], s.words[t+4] = x&0x0f0f0f0f, x>>4&0x0f0f0f0f
	}
}

// inOrder reads 16 codes as words from t on: element 2i in the low nibble of byte i, 2i+1 in its high nibble.
func (s *stored) inOrder(t int, b []byte) {
	for i := range 4 {
		x := uint32(le.Uint16(b[2*i:]))
		s.words[t+i] = x&0xf | x&0xf0<<4 | x&0xf00<<8 | x&0xf000<<12
	}
}

// fifth adds bit i of x to code i as its fifth.
func (s *stored) fifth(x uint32) {
	for t := range 8 {
		spread := x >> (4 * t) & 15 * 0x00204081 & 0x01010101 // one bit to each byte
		s.words[t] |= spread << 4
	}
}

// superNibbles reads 256 codes: block g of 32 in the nibbles g%2 of 32 bytes.
func (s *stored) superNibbles(b []byte) {
	for g := range 8 {
		for t := range 8 {
			s.words[8*g+t] = le.Uint32(b[g/2*32+4*t:]) >> (g % 2 * 4) & 0x0f0f0f0f
		}
	}
}

// pairs reads 256 2-bit fields at bit shift of the codes: block g of 32 in bits 2(g%4) of 32 bytes. With shift 0 it sets
// the codes, else it adds to them.
func (s *stored) pairs(b []byte, shift int) {
	for g := range 8 {
		for t := range 8 {
			x := le.Uint32(b[g/4*32+4*t:]) >> (g % 4 * 2) & 0x03030303 << shift
			if shift > 0 {
				x |= s.words[8*g+t]
			}
			s.words[8*g+t] = x
		}
	}
}

// bits adds bit g of 32 bytes to the codes of block g, at bit shift.
func (s *stored) bits(b []byte, shift int) {
	for g := range 8 {
		for t := range 8 {
			s.words[8*g+t] |= le.Uint32(b[4*t:]) >> g & 0x01010101 << shift
		}
	}
}

// sixBits reads eight scales and mins of 6 bits from 12 bytes.
func (s *stored) sixBits(b []byte) {
	for g := range 4 {
		s.ints[g], s.mins[g] = int8(b[g]&63), b[g+4]&63
		s.ints[g+4] = int8(b[g+8]&15 | b[g]>>6<<4)
		s.mins[g+4] = b[g+8]>>4 | b[g+4]>>6<<4
	}
}
