// SPDX-License-Identifier: MIT OR Apache-2.0

package engine

import (
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/sched"
	"github.com/metrale/metrale/internal/seq"
)

// tower is a Runner that takes images; *exec.Model is one. CheckImage may be called from any goroutine.
type tower interface {
	CheckImage(*seq.Image) error
	Encode(*seq.Image) (*exec.Features, error)
	PutFeatures(s *exec.Step, f *exec.Features, first, n, pool int) int
}

// checkImages refuses images that the runner cannot take.
func (e *Engine) checkImages(r *seq.Request) error {
	end := 0
	for i, m := range r.Images {
		if e.tower == nil {
			return diag.Errorf(diag.Unsupported, "this model takes no images").For("prompt")
		}
		if err := e.tower.CheckImage(m); err != nil {
			return err
		}
		if m.First < end || m.First+m.Tokens() > len(r.Prompt) {
			return diag.Errorf(diag.Internal, "image %d has tokens [%d, %d) of a prompt of %d", i, m.First, m.First+m.Tokens(), len(r.Prompt))
		}
		end = m.First + m.Tokens()
	}
	return nil
}

// gallery is what the device thread knows of images. An image's features are there from the first step that needs them until
// every sequence that has it is past it; a preempted sequence needs them again.
type gallery struct {
	shown map[*seq.Image]*shown

	// Of the step's rows, used again.
	coords     [][3]int32
	featureRow []int32
	inputs     []exec.Input
}

// shown is an image that sequences need.
type shown struct {
	features *exec.Features // nil: no step has needed them yet
	by       int            // sequences that are not past it
}

// need counts one more sequence among those that need the images.
func (g *gallery) need(images []*seq.Image) {
	if g.shown == nil && len(images) > 0 {
		g.shown = map[*seq.Image]*shown{}
	}
	for _, m := range images {
		if g.shown[m] == nil {
			g.shown[m] = &shown{}
		}
		g.shown[m].by++
	}
}

// again says that a sequence, which was put back, needs all of its images.
func (g *gallery) again(s *Stream) {
	g.need(s.request.Images[:s.past])
	s.past = 0
}

// leave says that a sequence has no more use for the images whose tokens are all before position end.
func (g *gallery) leave(s *Stream, end int) {
	for ; s.past < len(s.request.Images); s.past++ {
		m := s.request.Images[s.past]
		if m.First+m.Tokens() > end {
			return
		}
		if g.shown[m].by--; g.shown[m].by == 0 {
			delete(g.shown, m)
		}
	}
}

// see puts into the built step what its rows of sequences with images need: features of the images' tokens, and every row's
// place. It runs the tower for images that no step has needed yet.
func (d *device) see(dec *sched.Decision) error {
	s := &d.step
	s.FeatureRow, s.Coords, s.Inputs = nil, nil, nil
	if !d.anyImages(dec) {
		return nil
	}
	g := &d.gallery
	s.Coords, s.FeatureRow, s.Inputs = g.coords[:0], g.featureRow[:0], g.inputs[:0]
	pool := 0
	for i := range dec.Work {
		w := &dec.Work[i]
		images := d.streams[w.ID].request.Images
		first, end := int(s.CuRows[i]), int(s.CuRows[i+1])
		s.Coords = append(s.Coords, make([][3]int32, end-first)...)
		seq.Coords(images, w.First, s.Coords[first:])
		for _, m := range images {
			lo, hi := max(m.First, w.First), min(m.First+m.Tokens(), w.First+end-first)
			if lo >= hi {
				continue
			}
			f, err := d.featuresOf(m)
			if err != nil {
				return err
			}
			s.FeatureRow = text(s.FeatureRow, first+lo-w.First)
			pool = d.tower.PutFeatures(s, f, lo-m.First, hi-lo, pool)
		}
		s.FeatureRow = text(s.FeatureRow, end)
	}
	g.coords, g.featureRow, g.inputs = s.Coords, s.FeatureRow, s.Inputs
	return nil
}

// text makes the rows up to end, of those that have no feature row yet, rows of text.
func text(featureRow []int32, end int) []int32 {
	for len(featureRow) < end {
		featureRow = append(featureRow, -1)
	}
	return featureRow
}

func (d *device) anyImages(dec *sched.Decision) bool {
	for i := range dec.Work {
		if len(d.streams[dec.Work[i].ID].request.Images) > 0 {
			return true
		}
	}
	return false
}

// featuresOf gives the features of an image that a running sequence needs.
func (d *device) featuresOf(m *seq.Image) (*exec.Features, error) {
	h := d.gallery.shown[m]
	if h.features == nil {
		f, err := d.tower.Encode(m)
		if err != nil {
			return nil, err
		}
		h.features = f
		d.metrics.Images.Add(1)
		d.ranUntil = 0 // the device was not idle
	}
	return h.features, nil
}

// seen ends a step: its features are no longer needed by those that it took past their images.
func (d *device) seen(dec *sched.Decision) {
	clear(d.gallery.inputs)
	for i := range dec.Work {
		w := &dec.Work[i]
		d.gallery.leave(d.streams[w.ID], w.First+len(w.Tokens))
	}
}
