// SPDX-License-Identifier: MIT OR Apache-2.0

package vision

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/metrale/metrale/internal/diag"
)

// The goldens of testdata are made by tools/vision/make_goldens.py with Pillow and transformers.

// noise is the script's picture.
func noise(width, height int, smooth bool) *RGB {
	m := newRGB(width, height)
	v := uint32(width*65536 + height)
	for i := range m.Pix {
		v = v*1664525 + 1013904223
		m.Pix[i] = byte(v >> 24)
		if at := i / 3; smooth {
			m.Pix[i] = byte(3*(at%width) + 2*(at/width) + int(m.Pix[i]>>4))
		}
	}
	return m
}

func sha(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// lines calls each for every line of a golden file.
func lines(t *testing.T, file string, each func(line string)) {
	t.Helper()
	f, err := os.Open("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for s := bufio.NewScanner(f); s.Scan(); n++ {
		each(s.Text())
	}
	if n == 0 {
		t.Fatalf("%s is empty", file)
	}
}

func TestResizeIsPillows(t *testing.T) {
	lines(t, "resize.txt", func(line string) {
		var w, h, smooth, W, H int
		var want string
		if _, err := fmt.Sscan(line, &w, &h, &smooth, &W, &H, &want); err != nil {
			t.Fatal(err)
		}
		got := Resize(noise(w, h, smooth == 1), W, H)
		if got.Width != W || got.Height != H || sha(got.Pix) != want {
			t.Errorf("%d by %d (smooth %d) to %d by %d: other bytes than Pillow's", w, h, smooth, W, H)
		}
	})
}

func TestSizesAreTheReferences(t *testing.T) {
	lines(t, "sizes.txt", func(line string) {
		var h, w, factor, lo, hi, H, W int
		if _, err := fmt.Sscan(line, &h, &w, &factor, &lo, &hi, &H, &W); err != nil {
			t.Fatal(err)
		}
		p := Processor{Patch: factor / 2, Merge: 2, MinPixels: lo, MaxPixels: hi}
		gw, gh, err := p.Size(w, h)
		if (err != nil) != (H == 0) || gw != W || gh != H {
			t.Errorf("%d by %d in blocks of %d, %d to %d pixels: %d by %d (%v), want %d by %d", w, h, factor, lo, hi, gw, gh, err, W, H)
		}
	})
}

func TestPatchesAreTheReferences(t *testing.T) {
	lines(t, "process.txt", func(line string) {
		config, rest, _ := strings.Cut(line, "|")
		var w, h int
		var grid [3]int32
		var want string
		if _, err := fmt.Sscan(rest, &w, &h, &grid[0], &grid[1], &grid[2], &want); err != nil {
			t.Fatal(err)
		}
		p, err := ReadProcessor("preprocessor_config.json", []byte(config))
		if err != nil {
			t.Fatal(err)
		}
		m, err := p.Process(noise(w, h, true))
		if err != nil {
			t.Fatal(err)
		}
		var raw []byte
		for _, v := range m.Pixels {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
		}
		if m.Grid != grid || sha(raw) != want {
			t.Errorf("%d by %d with %s: grid %v, want %v, or other values than the reference's", w, h, config, m.Grid, grid)
		}
	})
}

func TestProcessorsAreRefusedByKey(t *testing.T) {
	for config, want := range map[string]string{
		`{"image_processor_type": "SiglipImageProcessor"}`: `image_processor_type is SiglipImageProcessor; supported is the processor of Qwen2-VL`,
		`{"resample": 2}`:                          "resample is 2; supported is 3, bicubic",
		`{"do_resize": false}`:                     "do_resize is false; supported is true",
		`{"do_pad": true}`:                         "do_pad is true; supported is false",
		`{"sharpen": 1}`:                           "sharpen is 1; supported is no such key",
		`{"patch_size": 0}`:                        "patch_size must be an integer from 1",
		`{"image_std": [1, 0, 1]}`:                 "image_std is 0",
		`{"image_mean": [1, 0]}`:                   "image_mean must be three numbers",
		`{"size": {"height": 3}}`:                  "size.height is 3; supported is shortest_edge and longest_edge",
		`{"min_pixels": 100, "max_pixels": 99999}`: "",
		`{"max_pixels": 100}`:                      "at most 100 pixels",
		`[]`:                                       "it must be an object",
		`{"image_processor": {"patch_size": 16}}`:  "",
	} {
		_, err := ReadProcessor("preprocessor_config.json", []byte(config))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
		if e, ok := diag.As(err); err != nil && (!ok || e.Code != diag.Unsupported && e.Code != diag.Format) {
			t.Errorf("%s: %v", config, err)
		}
	}
}

// Whatever the picture's shape, it becomes whole blocks within the limits, or of one block's width.
func TestSizesStayWithinLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Processor{Patch: rapid.IntRange(1, 32).Draw(t, "patch"), Merge: rapid.IntRange(1, 3).Draw(t, "merge")}
		unit := p.Patch * p.Merge
		p.MinPixels = unit * unit * rapid.IntRange(1, 30).Draw(t, "min")
		p.MaxPixels = p.MinPixels * rapid.IntRange(2, 40).Draw(t, "more")
		w, h := rapid.IntRange(1, 3000).Draw(t, "width"), rapid.IntRange(1, 3000).Draw(t, "height")
		W, H, err := p.Size(w, h)
		if err != nil {
			if max(w, h) <= 200*min(w, h) {
				t.Fatal(err)
			}
			return
		}
		if W%unit != 0 || H%unit != 0 || W < unit || H < unit || W*H > p.MaxPixels && W > unit && H > unit {
			t.Fatalf("%d by %d", W, H)
		}
	})
}

func BenchmarkProcess(b *testing.B) {
	p := &Processor{Patch: 16, Frames: 2, Merge: 2, MinPixels: 65536, MaxPixels: 1 << 22, Mean: clipMean, Std: clipStd, Scale: 1. / 255, Rescale: true, Normalize: true}
	m := noise(4032, 3024, true)
	for b.Loop() {
		if _, err := p.Process(m); err != nil {
			b.Fatal(err)
		}
	}
}
