// SPDX-License-Identifier: MIT OR Apache-2.0

package vision

import (
	"bytes"
	"fmt"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"

	"golang.org/x/image/bmp"
	"golang.org/x/image/webp"

	"github.com/metrale/metrale/internal/diag"
)

// Limits bound what Decode takes. Zero is no limit.
type Limits struct {
	Bytes  int // of the file
	Pixels int // width times height
}

// format is a kind of file.
type format struct {
	name   string
	magic  string // ? is any byte
	config func(io.Reader) (image.Config, error)
	decode func(io.Reader) (image.Image, error)
	exif   func(data []byte) []byte // its EXIF block, nil if there is none
}

var formats = []format{
	{"PNG", "\x89PNG\r\n\x1a\n", png.DecodeConfig, png.Decode, exifOfPNG},
	{"JPEG", "\xff\xd8\xff", jpeg.DecodeConfig, jpeg.Decode, exifOfJPEG},
	{"GIF", "GIF8?a", gif.DecodeConfig, firstOfGIF, nil},
	{"WebP", "RIFF????WEBP", webp.DecodeConfig, webp.Decode, exifOfWebP},
	{"BMP", "BM", bmp.DecodeConfig, bmp.Decode, nil},
}

// kinds is the list of formats for people.
const kinds = "PNG, JPEG, GIF, WebP or BMP"

// Decode reads a picture file.
func Decode(data []byte, l Limits) (_ *RGB, err error) {
	if l.Bytes > 0 && len(data) > l.Bytes {
		return nil, diag.Errorf(diag.TooLong, "the image has %d bytes; at most %d are taken", len(data), l.Bytes)
	}
	f := formatOf(data)
	if f == nil {
		return nil, diag.Errorf(diag.Unsupported, "the image is no %s file", kinds)
	}
	defer func() {
		if p := recover(); p != nil { // decoders of files from anywhere
			err = diag.Errorf(diag.Invalid, "the image is broken").Because(fmt.Errorf("%s: %v", f.name, p))
		}
	}()
	broken := func(err error) error {
		return diag.Errorf(diag.Invalid, "the image is a broken %s file", f.name).Because(err)
	}
	c, err := f.config(bytes.NewReader(data))
	if err != nil {
		return nil, broken(err)
	}
	if c.Width < 1 || c.Height < 1 {
		return nil, broken(fmt.Errorf("%d by %d pixels", c.Width, c.Height))
	}
	if n := int64(c.Width) * int64(c.Height); l.Pixels > 0 && n > int64(l.Pixels) {
		return nil, diag.Errorf(diag.TooLong, "the image has %d by %d pixels; at most %d are taken", c.Width, c.Height, l.Pixels)
	}
	m, err := f.decode(bytes.NewReader(data))
	if err != nil {
		return nil, broken(err)
	}
	out := toRGB(m, f.name == "WebP")
	if f.exif != nil {
		out = turn(out, orientation(f.exif(data)))
	}
	return out, nil
}

// formatOf tells a file by its first bytes.
func formatOf(data []byte) *format {
	for i := range formats {
		f := &formats[i]
		if len(data) < len(f.magic) {
			continue
		}
		same := true
		for j := range f.magic {
			same = same && (f.magic[j] == '?' || f.magic[j] == data[j])
		}
		if same {
			return f
		}
	}
	return nil
}

// firstOfGIF is the first picture, on the whole canvas.
func firstOfGIF(r io.Reader) (image.Image, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	c, err := gif.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	m, err := gif.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	p, ok := m.(*image.Paletted)
	if whole := image.Rect(0, 0, c.Width, c.Height); ok && p.Rect != whole {
		canvas := image.NewNRGBA(whole)
		for y := p.Rect.Min.Y; y < p.Rect.Max.Y; y++ {
			for x := p.Rect.Min.X; x < p.Rect.Max.X; x++ {
				canvas.Set(x, y, p.At(x, y))
			}
		}
		return canvas, nil
	}
	return m, nil
}
