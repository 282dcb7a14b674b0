// SPDX-License-Identifier: MIT OR Apache-2.0

package engine

import (
	"slices"
	"testing"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/engine/script"
	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/kv"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/seq"
)

// imageToken stands where an image is.
const imageToken = 99

// painter is a scripted model with a tower whose feature of an image's token i is the image's first pixel plus i. Run checks
// that the rows of image tokens, and no others, have theirs.
type painter struct {
	*script.Runner
	encoded []float32 // first pixels
	broken  error
	t       *testing.T
}

func (p *painter) CheckImage(m *seq.Image) error {
	if m.Tokens() > 40 {
		return diag.Errorf(diag.TooLong, "the image is too large")
	}
	return nil
}

func (p *painter) Encode(m *seq.Image) (*exec.Features, error) {
	if p.broken != nil {
		return nil, p.broken
	}
	p.encoded = append(p.encoded, m.Pixels[0])
	values := make([]float32, m.Tokens())
	for i := range values {
		values[i] = m.Pixels[0] + float32(i)
	}
	return &exec.Features{Tokens: m.Tokens(), Ports: [][]float32{values}}, nil
}

func (p *painter) PutFeatures(s *exec.Step, f *exec.Features, first, n, pool int) int {
	for i := range n {
		s.FeatureRow = append(s.FeatureRow, int32(pool+i))
	}
	s.Inputs = append(s.Inputs, exec.Input{Row: pool, Values: f.Ports[0][first : first+n]})
	return pool + n
}

func (p *painter) Run(s *exec.Step) ([][]float32, error) {
	var pool []float32
	for _, in := range s.Inputs {
		if in.Row != len(pool) {
			p.t.Errorf("features for row %d after %d", in.Row, len(pool))
		}
		pool = append(pool, in.Values...)
	}
	if s.FeatureRow == nil && slices.Contains(s.Tokens, imageToken) || s.FeatureRow != nil && len(s.FeatureRow) != len(s.Tokens) {
		p.t.Errorf("feature rows %v of tokens %v", s.FeatureRow, s.Tokens)
	}
	for i, r := range s.FeatureRow {
		// A prompt of pictured is 1, image 0, 2, image 100, 3: a feature tells the position.
		pos := float32(s.Positions[i])
		want := pos - 1
		if pos > 12 {
			want = 100 + pos - 14
		}
		if (s.Tokens[i] == imageToken) != (r >= 0) || r >= 0 && pool[r] != want {
			p.t.Errorf("row %d, token %d at %v: feature row %d of %v", i, s.Tokens[i], pos, r, pool)
		}
	}
	return p.Runner.Run(s)
}

// pictured is a prompt with two images, of 12 and of 4 tokens.
func pictured() seq.Request {
	r := ask(3, slices.Concat([]int32{1}, slices.Repeat([]int32{imageToken}, 12), []int32{2}, slices.Repeat([]int32{imageToken}, 4), []int32{3})...)
	r.Images = []*seq.Image{
		{First: 1, Grid: [3]int32{1, 6, 8}, Merge: 2, Pixels: []float32{0}},
		{First: 14, Grid: [3]int32{1, 4, 4}, Merge: 2, Pixels: []float32{100}},
	}
	return r
}

// byHand is a device thread that the test drives, of at most prefill prompt rows a step.
func byHand(t *testing.T, prefill int) (*device, *painter) {
	p := &painter{Runner: script.New(script.Options{Vocab: 100, Next: func([]int32) int32 { return 4 }, Limits: exec.Limits{Limits: plan.Limits{Rows: 32}}}), t: t}
	d := routings[0].driven(t, p, Options{MaxPrefillTokens: prefill})
	d.Engine.tower = p
	return d, p
}

// Sequences that share images get their features in every chunk, the tower runs when a step first needs an image, and what
// was made is dropped with the last of its tokens.
func TestFeaturesAreThereWhileNeeded(t *testing.T) {
	for prefill := 1; prefill <= 32; prefill++ {
		d, p := byHand(t, prefill)
		both := pictured()
		a, b := submit(t, d.Engine, both), submit(t, d.Engine, both)
		text := submit(t, d.Engine, ask(3, 7, 8))
		for d.turn() {
			for m, h := range d.gallery.shown {
				if at := max(a.past, b.past); h.by < 1 || at == 2 && min(a.past, b.past) == 2 {
					t.Errorf("prefill %d: image %v is held by %d", prefill, m.Pixels, h.by)
				}
			}
		}
		for _, s := range []*Stream{a, b, text} {
			if got := collect(t, s); len(got.tokens) != 3 {
				t.Errorf("prefill %d: %+v", prefill, got)
			}
		}
		if !slices.Equal(p.encoded, []float32{0, 100}) || len(d.gallery.shown) != 0 {
			t.Errorf("prefill %d: encoded %v, %d left", prefill, p.encoded, len(d.gallery.shown))
		}
	}
}

func TestImagesEndWithTheirSequence(t *testing.T) {
	d, p := byHand(t, 5)
	gone := submit(t, d.Engine, pictured())
	d.turn()
	d.turn()
	gone.Close()
	d.turn()
	if len(d.gallery.shown) != 0 {
		t.Error("features of a sequence that was canceled")
	}
	p.broken = diag.Errorf(diag.Internal, "the tower is broken")
	s := submit(t, d.Engine, pictured())
	for d.turn() {
	}
	if a := collect(t, s); a.end.Finish != seq.Failed || a.end.Err != p.broken || len(d.gallery.shown) != 0 {
		t.Errorf("%+v", a.end)
	}
	p.broken = nil
	s = submit(t, d.Engine, pictured())
	for d.turn() {
	}
	if a := collect(t, s); a.end.Finish != seq.Length {
		t.Errorf("%+v", a.end)
	}
}

func TestImagesAreRefused(t *testing.T) {
	d, _ := byHand(t, 32)
	blind := &Engine{cfg: d.cfg}
	r := pictured()
	for _, c := range []struct {
		what   string
		e      *Engine
		change func()
		code   diag.Code
	}{
		{"no tower", blind, func() {}, diag.Unsupported},
		{"too large", d.Engine, func() { r.Images[1].Grid[1] = 400 }, diag.TooLong},
		{"outside the prompt", d.Engine, func() { r.Images[1].First = 16 }, diag.Internal},
		{"over another", d.Engine, func() { r.Images[1].First = 5 }, diag.Internal},
	} {
		r = pictured()
		c.change()
		if err := c.e.Check(&r); diag.CodeOf(err) != c.code {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

// A step of a sequence with images allocates nothing once its prompt is computed.
func TestTurnWithImagesDoesNotAllocate(t *testing.T) {
	if kv.Invariants {
		t.Skip("assertions allocate")
	}
	d, _ := byHand(t, 32)
	r := pictured()
	r.MaxTokens = 900
	s := submit(t, d.Engine, r)
	s.ready.Tokens = make([]seq.Token, 0, 1000)
	for range 300 {
		d.turn()
	}
	if n := testing.AllocsPerRun(100, func() { d.turn() }); n != 0 {
		t.Errorf("%v allocations per step", n)
	}
}
