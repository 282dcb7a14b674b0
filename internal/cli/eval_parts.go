// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"encoding/binary"
	"math"
	"os"
	"strings"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/seq"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/vision"
	"github.com/metrale/metrale/internal/weights"
)

// evalParts says what `met eval logits` runs beside the decoder.
type evalParts struct {
	part   string
	images []string
}

// with are the parts that the decoder is served with.
func (e *evalParts) with() (parts []string) {
	if e.part != "" {
		parts = append(parts, e.part)
	}
	if len(e.images) > 0 {
		parts = append(parts, exec.Vision)
	}
	return parts
}

func (e *evalParts) check() error {
	if e.part != "" && e.part != exec.Draft {
		return diag.Errorf(diag.Invalid, "--part %s: only %s can be evaluated; --image runs the vision tower", e.part, exec.Draft).For("part")
	}
	return nil
}

// load adds the sizes of the parts, and reads the images.
func (e *evalParts) load(c *checkpoint, o *modelOptions, prompt []int32) ([]*seq.Image, error) {
	o.parts = map[string]plan.Limits{}
	if e.part != "" {
		if _, err := c.require(e.part); err != nil {
			return nil, err
		}
		o.parts[e.part] = o.limits
	}
	if len(e.images) == 0 {
		return nil, nil
	}
	if _, err := c.require(exec.Vision); err != nil {
		return nil, err
	}
	l := plan.Limits{PageSize: o.limits.PageSize, Pages: 1}
	var images []*seq.Image
	for _, path := range e.images {
		im, err := c.readImage(path)
		if err != nil {
			return nil, err
		}
		images = append(images, im)
		l.Rows, l.Seqs, l.Outs = max(l.Rows, int64(im.Patches())), max(l.Seqs, int64(im.Grid[0])), max(l.Outs, int64(im.Tokens()))
	}
	o.parts[exec.Vision] = l
	return images, placeImages(images, prompt, int32(c.instance.Dim("image_token")))
}

// placeImages finds where each image's tokens are in the prompt.
func placeImages(images []*seq.Image, prompt []int32, token int32) error {
	at := 0
	for i, im := range images {
		for at < len(prompt) && prompt[at] != token {
			at++
		}
		im.First = at
		for at < len(prompt) && prompt[at] == token && at-im.First < im.Tokens() {
			at++
		}
		if at-im.First != im.Tokens() {
			return diag.Errorf(diag.Invalid, "--ids has %d tokens %d for image %d, which makes %d", at-im.First, token, i, im.Tokens()).For("ids")
		}
	}
	for ; at < len(prompt); at++ {
		if prompt[at] == token {
			return diag.Errorf(diag.Invalid, "--ids: token %d at %d belongs to no --image", token, at).For("ids")
		}
	}
	return nil
}

// readImage reads patches, or makes them of a picture.
func (c *checkpoint) readImage(path string) (*seq.Image, error) {
	if strings.HasSuffix(path, ".safetensors") {
		return c.readPixels(path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, diag.Errorf(diag.NotFound, "--image %s cannot be read", path).For("image").Because(err)
	}
	p, err := c.processor()
	if err != nil {
		return nil, err
	}
	picture, err := vision.Decode(data, vision.Limits{Pixels: imagePixels})
	if err == nil {
		var im *seq.Image
		if im, err = p.Process(picture); err == nil {
			return im, nil
		}
	}
	return nil, diag.Errorf(diag.CodeOf(err), "--image %s: %w", path, err).For("image")
}

// readPixels reads patches as a processor makes them: pixel_values float32 [patches, values] and grid_thw int64 [1, 3] of a
// safetensors file (or image.pixel_values and image.grid_thw).
func (c *checkpoint) readPixels(path string) (*seq.Image, error) {
	bad := func(format string, args ...any) error {
		return diag.Errorf(diag.Invalid, "--image %s: "+format, append([]any{path}, args...)...).For("image")
	}
	store, _, err := weights.Open(path, weights.Options{})
	if err != nil {
		return nil, err
	}
	defer store.Close()
	read := func(name string, d tensor.DType) ([]byte, error) {
		for _, name := range []string{name, "image." + name} {
			if t, ok := store.Lookup(name); ok && t.DType == d {
				raw := make([]byte, t.Size())
				return raw, store.Read(name, 0, raw)
			}
		}
		return nil, bad("it has no %s of type %v", name, d)
	}
	grid, err := read("grid_thw", tensor.I64)
	if err != nil {
		return nil, err
	}
	raw, err := read("pixel_values", tensor.F32)
	if err != nil {
		return nil, err
	}
	im := &seq.Image{Merge: int32(c.instance.Dim("vis_merge"))}
	if len(grid) != 8*len(im.Grid) {
		return nil, bad("grid_thw is not of one image")
	}
	for i := range im.Grid {
		n := binary.LittleEndian.Uint64(grid[8*i:])
		if n < 1 || n > 1<<15 {
			return nil, bad("a grid of %d", n)
		}
		im.Grid[i] = int32(n)
	}
	in := c.instance
	width := int(in.Dim("vis_channels") * in.Dim("vis_frames") * in.Dim("vis_patch") * in.Dim("vis_patch"))
	if im.Grid[1]%im.Merge != 0 || im.Grid[2]%im.Merge != 0 || len(raw) != 4*im.Patches()*width {
		return nil, bad("a grid of %v with %d values, want %d a patch in blocks of %d", im.Grid, len(raw)/4, width, im.Merge)
	}
	im.Pixels = make([]float32, len(raw)/4)
	for i := range im.Pixels {
		im.Pixels[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return im, nil
}
