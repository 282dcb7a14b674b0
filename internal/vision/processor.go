// SPDX-License-Identifier: MIT OR Apache-2.0

package vision

import (
	"math"
	"slices"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/seq"
)

// Processor is how a model wants its pictures: preprocessor_config.json.
type Processor struct {
	Patch, Frames, Merge int // pixels of a patch's side; times that a still picture is repeated; patches of a token's side
	MinPixels, MaxPixels int
	Mean, Std            [3]float32
	Scale                float64 // of a byte
	Rescale, Normalize   bool
}

// processors are the classes whose arithmetic this is, by image_processor_type.
var processors = []string{"Qwen2VLImageProcessor", "Qwen2VLImageProcessorFast", "Qwen2VLImageProcessorPil"}

// What the class takes where its configuration leaves it out.
var (
	clipMean = [3]float32{0.48145466, 0.4578275, 0.40821073}
	clipStd  = [3]float32{0.26862954, 0.26130258, 0.27577711}
)

// ReadProcessor reads a preprocessor_config.json, or the image_processor of a processor_config.json. Unknown keys are refused.
func ReadProcessor(file string, data []byte) (*Processor, error) {
	tree, err := modelconf.ParseJSON(file, data)
	if err != nil {
		return nil, err
	}
	if inner, ok := tree.Child("image_processor"); ok {
		tree = inner
	}
	if tree.Kind() != modelconf.Object {
		return nil, tree.Errorf("it must be an object")
	}
	p := &Processor{Patch: 14, Frames: 2, Merge: 2, MinPixels: 56 * 56, MaxPixels: 28 * 28 * 1280, Mean: clipMean, Std: clipStd, Scale: 1. / 255, Rescale: true, Normalize: true}
	for i, key := range tree.Keys() {
		if err := p.key(key, tree.Items()[i]); err != nil {
			return nil, err
		}
	}
	return p, p.check(tree)
}

// key takes one key.
func (p *Processor) key(key string, n *modelconf.Node) error {
	if n.IsNull() {
		return nil
	}
	size := func(into *int) error { return number(n, 1, 1<<30, into) }
	switch key {
	case "patch_size":
		return size(&p.Patch)
	case "temporal_patch_size":
		return size(&p.Frames)
	case "merge_size":
		return size(&p.Merge)
	case "min_pixels":
		return size(&p.MinPixels)
	case "max_pixels":
		return size(&p.MaxPixels)
	case "size":
		return p.size(n)
	case "image_mean":
		return three(n, &p.Mean)
	case "image_std":
		return three(n, &p.Std)
	case "rescale_factor":
		return real(n, &p.Scale)
	case "do_rescale":
		return truth(n, &p.Rescale)
	case "do_normalize":
		return truth(n, &p.Normalize)
	case "do_resize", "do_convert_rgb":
		on := false
		if err := truth(n, &on); err != nil || on {
			return err
		}
		return unsupported(n, "true")
	case "resample":
		if v, ok := n.Int(); !ok || v != 3 {
			return unsupported(n, "3, bicubic")
		}
	case "image_processor_type":
		if s, _ := n.Str(); !slices.Contains(processors, s) {
			return unsupported(n, "the processor of Qwen2-VL")
		}
	case "processor_class", "default_to_square", "device", "input_data_format", "data_format", "return_tensors", "disable_grouping", "crop_size", "do_center_crop", "do_pad", "pad_size", "auto_map", "image_seq_length":
		if key == "do_center_crop" || key == "do_pad" {
			if on, ok := n.Bool(); !ok || on {
				return unsupported(n, "false")
			}
		}
	default:
		return unsupported(n, "no such key")
	}
	return nil
}

// size reads the limits in their newer spelling.
func (p *Processor) size(n *modelconf.Node) error {
	if n.Kind() != modelconf.Object {
		return n.Errorf("%s must be an object", n.Path())
	}
	for i, key := range n.Keys() {
		e := n.Items()[i]
		into := map[string]*int{"shortest_edge": &p.MinPixels, "longest_edge": &p.MaxPixels, "min_pixels": &p.MinPixels, "max_pixels": &p.MaxPixels}[key]
		switch {
		case e.IsNull():
		case into == nil:
			return unsupported(e, "shortest_edge and longest_edge")
		default:
			if err := number(e, 1, 1<<30, into); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *Processor) check(tree *modelconf.Node) error {
	switch {
	case p.Patch > 256 || p.Merge > 16 || p.Frames > 16:
		return tree.Errorf("patches of %d pixels, %d frames, merged by %d", p.Patch, p.Frames, p.Merge)
	case p.MaxPixels < p.unit()*p.unit() || p.MaxPixels < p.MinPixels:
		return tree.Errorf("at most %d pixels, at least %d, in blocks of %d by %d", p.MaxPixels, p.MinPixels, p.unit(), p.unit())
	}
	for _, s := range p.Std {
		if s == 0 {
			return tree.Errorf("image_std is 0")
		}
	}
	return nil
}

// unit is the side of the square of pixels that makes a token.
func (p *Processor) unit() int { return p.Patch * p.Merge }

// Values is the number of values of a patch.
func (p *Processor) Values() int { return 3 * p.Frames * p.Patch * p.Patch }

// Bytes is the memory that a picture's patches take.
func (p *Processor) Bytes(width, height int) (int64, error) {
	w, h, err := p.Size(width, height)
	return 4 * 3 * int64(p.Frames) * int64(w) * int64(h), err
}

// PixelsOf is the number of pixels that make so many tokens.
func (p *Processor) PixelsOf(tokens int) int { return tokens * p.unit() * p.unit() }

// maxAspect is the longest shape that the reference takes.
const maxAspect = 200

// Size gives the size that a picture is resized to: whole blocks, of about its shape, within the limits on pixels.
func (p *Processor) Size(width, height int) (w, h int, err error) {
	long, short := float64(max(width, height)), float64(min(width, height))
	if short < 1 || long/short > maxAspect {
		return 0, 0, diag.Errorf(diag.Invalid, "the image has %d by %d pixels; a side may be at most %d times the other", width, height, maxAspect)
	}
	unit, fw, fh := float64(p.unit()), float64(width), float64(height)
	bw, bh := math.RoundToEven(fw/unit)*unit, math.RoundToEven(fh/unit)*unit
	switch {
	case bw*bh > float64(p.MaxPixels):
		beta := math.Sqrt(fh * fw / float64(p.MaxPixels))
		bw, bh = max(unit, math.Floor(fw/beta/unit)*unit), max(unit, math.Floor(fh/beta/unit)*unit)
	case bw*bh < float64(p.MinPixels):
		beta := math.Sqrt(float64(p.MinPixels) / (fh * fw))
		bw, bh = math.Ceil(fw*beta/unit)*unit, math.Ceil(fh*beta/unit)*unit
	}
	return int(bw), int(bh), nil
}

// Process makes a picture's patches. Its place in the prompt is not known yet.
func (p *Processor) Process(m *RGB) (*seq.Image, error) {
	w, h, err := p.Size(m.Width, m.Height)
	if err != nil {
		return nil, err
	}
	m = Resize(m, w, h)
	out := &seq.Image{Grid: [3]int32{1, int32(h / p.Patch), int32(w / p.Patch)}, Merge: int32(p.Merge)}
	out.Pixels = make([]float32, out.Patches()*p.Values())
	levels := p.levels()
	dst := out.Pixels
	for i := range out.Patches() {
		row, col := out.Patch(i)
		for c := range 3 {
			for range p.Frames {
				for y := range p.Patch {
					src := m.Pix[3*((int(row)*p.Patch+y)*w+int(col)*p.Patch):]
					for x := range p.Patch {
						dst[x] = levels[c][src[3*x+c]]
					}
					dst = dst[p.Patch:]
				}
			}
		}
	}
	return out, nil
}

// levels is what each byte of each channel becomes, in float32 and in the reference's order.
func (p *Processor) levels() (out [3][256]float32) {
	for c := range out {
		for v := range out[c] {
			x := float32(v)
			if p.Rescale {
				x = float32(float64(v) * p.Scale)
			}
			if p.Normalize {
				x = (x - p.Mean[c]) / p.Std[c]
			}
			out[c][v] = x
		}
	}
	return out
}

func unsupported(n *modelconf.Node, want string) error {
	e := n.Errorf("%s is %s; supported is %s", n.Path(), n.Literal(), want)
	e.Code = diag.Unsupported
	return e
}

func number(n *modelconf.Node, lo, hi int64, into *int) error {
	v, ok := n.Int()
	if !ok || v < lo || v > hi {
		return n.Errorf("%s must be an integer from %d to %d", n.Path(), lo, hi)
	}
	*into = int(v)
	return nil
}

func real(n *modelconf.Node, into *float64) error {
	v, ok := n.Float()
	if !ok || math.IsNaN(v) || math.IsInf(v, 0) {
		return n.Errorf("%s must be a number", n.Path())
	}
	*into = v
	return nil
}

func truth(n *modelconf.Node, into *bool) error {
	v, ok := n.Bool()
	if !ok {
		return n.Errorf("%s must be true or false", n.Path())
	}
	*into = v
	return nil
}

func three(n *modelconf.Node, into *[3]float32) error {
	if n.Kind() != modelconf.Array || n.Len() != 3 {
		return n.Errorf("%s must be three numbers", n.Path())
	}
	for i, e := range n.Items() {
		var v float64
		if err := real(e, &v); err != nil {
			return err
		}
		into[i] = float32(v)
	}
	return nil
}
