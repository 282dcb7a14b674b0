// SPDX-License-Identifier: MIT OR Apache-2.0

package vision

import (
	"bytes"
	"encoding/binary"
)

// The EXIF block of a file is a TIFF structure; only its orientation is read. What is broken counts as not there.

// exifOfJPEG finds the segment APP1 before the picture's data.
func exifOfJPEG(data []byte) []byte {
	for at := 2; at+4 <= len(data) && data[at] == 0xff; {
		marker, n := data[at+1], int(binary.BigEndian.Uint16(data[at+2:]))
		if marker == 0xff { // filling
			at++
			continue
		}
		if marker == 0xda || n < 2 || at+2+n > len(data) {
			return nil
		}
		if body, ok := bytes.CutPrefix(data[at+4:at+2+n], []byte("Exif\x00\x00")); ok && marker == 0xe1 {
			return body
		}
		at += 2 + n
	}
	return nil
}

// exifOfPNG finds the chunk eXIf.
func exifOfPNG(data []byte) []byte {
	for at := 8; at+8 <= len(data); {
		n := int64(binary.BigEndian.Uint32(data[at:]))
		if int64(at)+12+n > int64(len(data)) {
			return nil
		}
		if string(data[at+4:at+8]) == "eXIf" {
			return data[at+8 : at+8+int(n)]
		}
		at += 12 + int(n)
	}
	return nil
}

// exifOfWebP finds the chunk EXIF.
func exifOfWebP(data []byte) []byte {
	for at := 12; at+8 <= len(data); {
		n := int64(binary.LittleEndian.Uint32(data[at+4:]))
		if int64(at)+8+n > int64(len(data)) {
			return nil
		}
		if string(data[at:at+4]) == "EXIF" {
			return bytes.TrimPrefix(data[at+8:at+8+int(n)], []byte("Exif\x00\x00"))
		}
		at += 8 + int(n+n%2)
	}
	return nil
}

// orientation reads tag 0x0112 of the first directory; 1 is upright.
func orientation(tiff []byte) int {
	if len(tiff) < 8 {
		return 1
	}
	var order binary.ByteOrder = binary.LittleEndian
	if tiff[0] == 'M' {
		order = binary.BigEndian
	}
	at := int64(order.Uint32(tiff[4:]))
	if at+2 > int64(len(tiff)) {
		return 1
	}
	for i := range int64(order.Uint16(tiff[at:])) {
		e := at + 2 + 12*i
		if e+12 > int64(len(tiff)) {
			break
		}
		if order.Uint16(tiff[e:]) == 0x0112 {
			return int(order.Uint16(tiff[e+8:]))
		}
	}
	return 1
}

// turn puts a picture upright.
func turn(m *RGB, orientation int) *RGB {
	if orientation < 2 || orientation > 8 {
		return m
	}
	w, h := m.Width, m.Height
	out := newRGB(w, h)
	if orientation >= 5 {
		out.Width, out.Height = h, w
	}
	for y := range out.Height {
		for x := range out.Width {
			sx, sy := x, y
			if orientation >= 5 {
				sx, sy = y, x
			}
			switch orientation {
			case 2, 7, 8:
				sx = w - 1 - sx
			case 3:
				sx, sy = w-1-sx, h-1-sy
			case 4, 6:
				sy = h - 1 - sy
			}
			if orientation == 7 {
				sy = h - 1 - sy
			}
			copy(out.Pix[3*(y*out.Width+x):][:3], m.Pix[3*(sy*w+sx):])
		}
	}
	return out
}
