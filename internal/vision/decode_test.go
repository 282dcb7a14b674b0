// SPDX-License-Identifier: MIT OR Apache-2.0

package vision

import (
	"bytes"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/diag"
)

// Each file of testdata/files gives what Pillow sees in it, in the PNG of its name: the same bytes, but for JPEG. There the inverse
// cosine transforms of Go and libjpeg round differently: by one in each of three channels, which colour conversion adds up.
func TestDecodeSeesWhatPillowSees(t *testing.T) {
	files, _ := filepath.Glob("testdata/files/*")
	seen := 0
	for _, file := range files {
		if _, err := os.Stat(file + ".png"); err != nil {
			continue
		}
		seen++
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(data, Limits{})
		if err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		want := readPNG(t, file+".png")
		if got.Width != want.Width || got.Height != want.Height {
			t.Errorf("%s: %d by %d, want %d by %d", file, got.Width, got.Height, want.Width, want.Height)
			continue
		}
		worst, sum := 0, 0
		for i := range want.Pix {
			d := int(got.Pix[i]) - int(want.Pix[i])
			worst, sum = max(worst, d, -d), sum+max(d, -d)
		}
		allowed := 0
		if filepath.Ext(file) == ".jpg" {
			allowed = 3
		}
		t.Logf("%s: at most %d off, %.3f on average", filepath.Base(file), worst, float64(sum)/float64(len(want.Pix)))
		if worst > allowed {
			t.Errorf("%s: a value is %d off, at most %d is allowed", file, worst, allowed)
		}
	}
	if seen < 25 {
		t.Errorf("%d files", seen)
	}
}

func readPNG(t *testing.T, file string) *RGB {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	out := newRGB(m.Bounds().Dx(), m.Bounds().Dy())
	for i := range out.Width * out.Height {
		r, g, b, _ := m.At(i%out.Width, i/out.Width).RGBA()
		copy(out.Pix[3*i:], []byte{byte(r >> 8), byte(g >> 8), byte(b >> 8)})
	}
	return out
}

func TestDecodeRefuses(t *testing.T) {
	var big bytes.Buffer
	if err := png.Encode(&big, image.NewGray(image.Rect(0, 0, 300, 200))); err != nil {
		t.Fatal(err)
	}
	cut := big.Bytes()[:big.Len()/2]
	for _, c := range []struct {
		name string
		data []byte
		l    Limits
		code diag.Code
		want string
	}{
		{"bytes", big.Bytes(), Limits{Bytes: 100}, diag.TooLong, "at most 100 are taken"},
		{"pixels", big.Bytes(), Limits{Pixels: 59999}, diag.TooLong, "the image has 300 by 200 pixels; at most 59999"},
		{"cut", cut, Limits{}, diag.Invalid, "a broken PNG file"},
		{"pdf", []byte("%PDF-1.7 …"), Limits{}, diag.Unsupported, "no PNG, JPEG, GIF, WebP or BMP file"},
		{"empty", nil, Limits{}, diag.Unsupported, "no PNG"},
		{"head", []byte("\xff\xd8\xff\xe0"), Limits{}, diag.Invalid, "a broken JPEG file"},
	} {
		_, err := Decode(c.data, c.l)
		if err == nil || !diag.Is(err, c.code) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := Decode(big.Bytes(), Limits{Bytes: big.Len(), Pixels: 60000}); err != nil {
		t.Error(err)
	}
}

func FuzzDecode(f *testing.F) {
	files, _ := filepath.Glob("testdata/files/*")
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil && len(data) < 2000 {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := Decode(data, Limits{Bytes: 1 << 16, Pixels: 1 << 16})
		if err == nil && (len(m.Pix) != 3*m.Width*m.Height || m.Width*m.Height == 0) {
			t.Errorf("%d by %d with %d bytes", m.Width, m.Height, len(m.Pix))
		}
	})
}
