// SPDX-License-Identifier: MIT OR Apache-2.0

package vision

import (
	"image"
	"image/color"
)

// toRGB turns a decoded picture into RGB as Pillow does, with what is transparent on white.
func toRGB(m image.Image, webp bool) *RGB {
	b := m.Bounds()
	out := newRGB(b.Dx(), b.Dy())
	switch m := m.(type) {
	case *image.YCbCr:
		fromYCbCr(out, m, webp)
	case *image.NYCbCrA:
		fromYCbCr(out, &m.YCbCr, webp)
		for i := range out.Width * out.Height {
			onWhite(out.Pix[3*i:], out.Pix[3*i], out.Pix[3*i+1], out.Pix[3*i+2], m.A[i/out.Width*m.AStride+i%out.Width])
		}
	case *image.CMYK:
		fromCMYK(out, m)
	case *image.RGBA: // opaque in all formats; else the default would do
		if m.Opaque() {
			for i := range out.Width * out.Height {
				copy(out.Pix[3*i:3*i+3], m.Pix[i/out.Width*m.Stride+4*(i%out.Width):])
			}
			break
		}
		fromAny(out, m)
	case *image.NRGBA:
		for i := range out.Width * out.Height {
			p := m.Pix[i/out.Width*m.Stride+4*(i%out.Width):][:4]
			onWhite(out.Pix[3*i:], p[0], p[1], p[2], p[3])
		}
	default:
		fromAny(out, m)
	}
	return out
}

func fromAny(out *RGB, m image.Image) {
	b := m.Bounds()
	for i := range out.Width * out.Height {
		c := color.NRGBAModel.Convert(m.At(b.Min.X+i%out.Width, b.Min.Y+i/out.Width)).(color.NRGBA)
		onWhite(out.Pix[3*i:], c.R, c.G, c.B, c.A)
	}
}

// onWhite lays a colour on white, with Pillow's rounding.
func onWhite(dst []byte, r, g, b, a byte) {
	if a == 255 {
		dst[0], dst[1], dst[2] = r, g, b
		return
	}
	const bits = 7
	over := uint32(a) << bits
	white := 255 * (uint32(255)<<bits - over)
	for i, v := range [3]byte{r, g, b} {
		sum := uint32(v)*over + white + 0x80<<bits
		dst[i] = byte((sum>>8 + sum) >> 8 >> bits)
	}
	if a == 0 {
		dst[0], dst[1], dst[2] = 255, 255, 255
	}
}

func fromCMYK(out *RGB, m *image.CMYK) {
	for i := range out.Width * out.Height {
		p := m.Pix[i/out.Width*m.Stride+4*(i%out.Width):][:4]
		left := 255 - uint32(p[3])
		for j := range 3 {
			t := uint32(p[j])*left + 128
			out.Pix[3*i+j] = byte(left - (t>>8+t)>>8)
		}
	}
}

// fromYCbCr upsamples colour and converts, as libjpeg and libwebp do.
func fromYCbCr(out *RGB, m *image.YCbCr, webp bool) {
	cb, cr := make([]byte, 2*out.Width+2), make([]byte, 2*out.Width+2)
	for y := range out.Height {
		luma := m.Y[y*m.YStride:]
		if webp {
			webpRow(cb, m.Cb, m.CStride, y, out.Width, out.Height)
			webpRow(cr, m.Cr, m.CStride, y, out.Width, out.Height)
		} else {
			jpegRow(cb, m, m.Cb, y, out.Width, out.Height)
			jpegRow(cr, m, m.Cr, y, out.Width, out.Height)
		}
		row := out.Pix[3*y*out.Width:]
		for x := range out.Width {
			if webp {
				webpColor(row[3*x:], int32(luma[x]), int32(cb[x]), int32(cr[x]))
			} else {
				jpegColor(row[3*x:], int32(luma[x]), int32(cb[x])-128, int32(cr[x])-128)
			}
		}
	}
}

func bound(v int32) byte { return byte(min(max(v, 0), 255)) }

// jpegColor is JFIF's conversion in 16-bit fixed point.
func jpegColor(dst []byte, y, cb, cr int32) {
	const round = 1 << 15
	dst[0] = bound(y + (91881*cr+round)>>16)
	dst[1] = bound(y + (-22554*cb-46802*cr+round)>>16)
	dst[2] = bound(y + (116130*cb+round)>>16)
}

// webpColor is the conversion of BT.601's studio range.
func webpColor(dst []byte, y, u, v int32) {
	l := y * 19077 >> 8
	dst[0] = bound((l + v*26149>>8 - 14234) >> 6)
	dst[1] = bound((l - u*6419>>8 - v*13320>>8 + 8708) >> 6)
	dst[2] = bound((l + u*33050>>8 - 17685) >> 6)
}

// jpegRow upsamples row y of a colour plane: libjpeg's triangle filter for halved rows and columns, the nearest value else.
func jpegRow(dst []byte, m *image.YCbCr, plane []byte, y, width, height int) {
	line := func(i int) []byte { return plane[i*m.CStride:] }
	switch n := (width + 1) / 2; m.SubsampleRatio {
	case image.YCbCrSubsampleRatio444:
		copy(dst, line(y)[:width])
	case image.YCbCrSubsampleRatio422:
		p := line(y)
		at := func(i int) int32 { return int32(p[min(max(i, 0), n-1)]) }
		for i := range n {
			dst[2*i], dst[2*i+1] = byte((3*at(i)+at(i-1)+1)>>2), byte((3*at(i)+at(i+1)+2)>>2)
		}
	case image.YCbCrSubsampleRatio420:
		last := (height+1)/2 - 1
		near, far := line(y/2), line(min(max(y/2-1+2*(y%2), 0), last))
		at := func(i int) int32 {
			i = min(max(i, 0), n-1)
			return 3*int32(near[i]) + int32(far[i])
		}
		for i := range n {
			dst[2*i], dst[2*i+1] = byte((3*at(i)+at(i-1)+8)>>4), byte((3*at(i)+at(i+1)+7)>>4)
		}
	default:
		for x := range width {
			dst[x] = plane[m.COffset(m.Rect.Min.X+x, m.Rect.Min.Y+y)]
		}
	}
}

// webpRow upsamples row y of a plane of halved rows and columns: libwebp's filter of 9, 3, 3 and 1 sixteenths.
func webpRow(dst []byte, plane []byte, stride, y, width, height int) {
	n, last := (width+1)/2, (height+1)/2-1
	near := plane[y/2*stride:]
	far := plane[min(max(y/2-1+2*(y%2), 0), last)*stride:]
	edge := func(i int) byte { return byte((3*int32(near[i]) + int32(far[i]) + 2) >> 2) }
	dst[0] = edge(0)
	for i := 1; i < n; i++ {
		a, b, c, d := int32(near[i-1]), int32(near[i]), int32(far[i-1]), int32(far[i])
		sum := a + b + c + d + 8
		dst[2*i-1] = byte(((sum+2*(b+c))>>3 + a) >> 1)
		dst[2*i] = byte(((sum+2*(a+d))>>3 + b) >> 1)
	}
	dst[2*n-1] = edge(n - 1)
}
