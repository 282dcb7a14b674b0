// SPDX-License-Identifier: MIT OR Apache-2.0

package tensor

import (
	"encoding/binary"
	"fmt"
	"math"
)

// DecodeBF16 widens little-endian bfloat16; src has 2·len(dst) bytes.
func DecodeBF16(dst []float32, src []byte) {
	src = src[:2*len(dst)]
	for len(dst) >= 4 && len(src) >= 8 {
		w := binary.LittleEndian.Uint64(src)
		dst[0] = math.Float32frombits(uint32(w) << 16)
		dst[1] = math.Float32frombits(uint32(w) & 0xFFFF0000)
		dst[2] = math.Float32frombits(uint32(w>>32) << 16)
		dst[3] = math.Float32frombits(uint32(w>>32) & 0xFFFF0000)
		dst, src = dst[4:], src[8:]
	}
	for i := range dst {
		dst[i] = FromBF16(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

// EncodeBF16 rounds to little-endian bfloat16; dst has 2·len(src) bytes.
func EncodeBF16(dst []byte, src []float32) {
	dst = dst[:2*len(src)]
	for i, f := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], ToBF16(f))
	}
}

// RoundBF16 rounds little-endian float32 to what bfloat16 holds.
func RoundBF16(dst, src []byte) {
	for i := 0; i+4 <= len(src); i += 4 {
		f := math.Float32frombits(binary.LittleEndian.Uint32(src[i:]))
		binary.LittleEndian.PutUint32(dst[i:], math.Float32bits(FromBF16(ToBF16(f))))
	}
}

// DecodeF16 widens little-endian halves; src has 2·len(dst) bytes.
func DecodeF16(dst []float32, src []byte) {
	src = src[:2*len(dst)]
	for i := range dst {
		dst[i] = FromF16(binary.LittleEndian.Uint16(src[2*i:]))
	}
}

// EncodeF16 rounds to little-endian halves; dst has 2·len(src) bytes.
func EncodeF16(dst []byte, src []float32) {
	dst = dst[:2*len(src)]
	for i, f := range src {
		binary.LittleEndian.PutUint16(dst[2*i:], ToF16(f))
	}
}

// Decode turns len(dst) little-endian elements of a floating-point or integer format into float32. src must have their
// size, and the format must not be one of GGUF's blocks (weights.Dequantize takes those too).
func Decode(dst []float32, d DType, src []byte) error {
	if err := check(d, len(dst), len(src)); err != nil {
		return err
	}
	le := binary.LittleEndian
	switch d {
	case Bool, U8:
		for i, b := range src {
			dst[i] = float32(b)
		}
	case I8:
		for i, b := range src {
			dst[i] = float32(int8(b))
		}
	case I16:
		for i := range dst {
			dst[i] = float32(int16(le.Uint16(src[2*i:])))
		}
	case I32:
		for i := range dst {
			dst[i] = float32(int32(le.Uint32(src[4*i:])))
		}
	case I64:
		for i := range dst {
			dst[i] = float32(int64(le.Uint64(src[8*i:])))
		}
	case F16:
		DecodeF16(dst, src)
	case BF16:
		DecodeBF16(dst, src)
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(le.Uint32(src[4*i:]))
		}
	case F64:
		for i := range dst {
			dst[i] = float32(math.Float64frombits(le.Uint64(src[8*i:])))
		}
	case E4M3:
		for i, b := range src {
			dst[i] = FromE4M3(b)
		}
	case E5M2:
		for i, b := range src {
			dst[i] = FromE5M2(b)
		}
	case E8M0:
		for i, b := range src {
			dst[i] = FromE8M0(b)
		}
	case E2M1:
		for i, b := range src {
			dst[2*i], dst[2*i+1] = FromE2M1(b), FromE2M1(b>>4)
		}
	default:
		return fmt.Errorf("tensor: %v has no plain elements", d)
	}
	return nil
}

// Encode rounds src to little-endian elements of a floating-point format; dst must have their size.
func Encode(dst []byte, d DType, src []float32) error {
	if err := check(d, len(src), len(dst)); err != nil {
		return err
	}
	le := binary.LittleEndian
	switch d {
	case F16:
		EncodeF16(dst, src)
	case BF16:
		EncodeBF16(dst, src)
	case F32:
		for i, f := range src {
			le.PutUint32(dst[4*i:], math.Float32bits(f))
		}
	case F64:
		for i, f := range src {
			le.PutUint64(dst[8*i:], math.Float64bits(float64(f)))
		}
	case E4M3:
		for i, f := range src {
			dst[i] = ToE4M3(f)
		}
	case E5M2:
		for i, f := range src {
			dst[i] = ToE5M2(f)
		}
	case E8M0:
		for i, f := range src {
			dst[i] = ToE8M0(f)
		}
	case E2M1:
		for i := range dst {
			dst[i] = ToE2M1(src[2*i]) | ToE2M1(src[2*i+1])<<4
		}
	default:
		return fmt.Errorf("tensor: float32 cannot be rounded to %v", d)
	}
	return nil
}

// check says whether elems elements of d take bytes bytes.
func check(d DType, elems, bytes int) error {
	if d == None || d >= numDTypes {
		return fmt.Errorf("tensor: %v is no element type", d)
	}
	if e, b := d.Block(); elems%e != 0 || elems/e*b != bytes {
		return fmt.Errorf("tensor: %d elements of %v do not take %d bytes", elems, d, bytes)
	}
	return nil
}
