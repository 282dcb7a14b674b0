// SPDX-License-Identifier: MIT OR Apache-2.0

package tokenizer

import "unicode/utf8"

const replacement = "\uFFFD"

// appendValid appends b to dst with each malformed stretch replaced by U+FFFD: one for each longest prefix of a code point
// that could have gone on (the rule of the WHATWG, of Python's errors="replace" and of Rust's from_utf8_lossy). Unless
// final, a prefix at the end that more bytes may complete is left over.
func appendValid(dst, b []byte, final bool) (out, rest []byte) {
	for len(b) > 0 {
		n := 0
		for n < len(b) {
			if b[n] < utf8.RuneSelf {
				n++
				continue
			}
			_, size := utf8.DecodeRune(b[n:])
			if size == 1 {
				break
			}
			n += size
		}
		dst = append(dst, b[:n]...)
		if b = b[n:]; len(b) == 0 {
			break
		}
		bad, open := malformed(b)
		if open && !final {
			return dst, b
		}
		dst = append(dst, replacement...)
		b = b[bad:]
	}
	return dst, nil
}

// malformed is the length of the malformed stretch at the beginning of b, and whether more bytes could mend it.
func malformed(b []byte) (n int, open bool) {
	lo, hi, need := byte(0x80), byte(0xbf), 0
	switch c := b[0]; {
	case 0xc2 <= c && c <= 0xdf:
		need = 2
	case 0xe0 <= c && c <= 0xef:
		need = 3
		switch c {
		case 0xe0:
			lo = 0xa0
		case 0xed:
			hi = 0x9f
		}
	case 0xf0 <= c && c <= 0xf4:
		need = 4
		switch c {
		case 0xf0:
			lo = 0x90
		case 0xf4:
			hi = 0x8f
		}
	default:
		return 1, false
	}
	for n = 1; n < need; n++ {
		if n == len(b) {
			return n, true
		}
		if b[n] < lo || b[n] > hi {
			break
		}
		lo, hi = 0x80, 0xbf
	}
	return n, false
}

// validText is s with malformed stretches replaced.
func validText(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	out, _ := appendValid(make([]byte, 0, len(s)+16), []byte(s), true)
	return string(out)
}
