// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import (
	"slices"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/seq"
)

// Names of a model's parts, and of the ports that exec knows.
const (
	Draft  = "mtp"
	Vision = "vision"

	pixels   = "pixels"   // the patches that a tower takes
	features = "features" // what it gives of an image
	hidden   = "hidden"   // what a draft head continues
)

// Features are what a vision tower gives for an image: for each of its ports [tokens, width of the port].
type Features struct {
	Tokens int
	Ports  [][]float32 // in the order of Model.features
}

// features are the ports that the tower leaves, in the order of names.
func (m *Model) features() []string {
	if m.towerPorts != nil || !m.HasPart(Vision) {
		return m.towerPorts
	}
	for _, x := range m.parts[Vision].buckets[0].plan.Buffers {
		if x.Port.Name != "" && x.Port.Dir == plan.Out {
			m.towerPorts = append(m.towerPorts, x.Port.Name)
		}
	}
	slices.Sort(m.towerPorts)
	return m.towerPorts
}

// CheckImage refuses an image that Encode could not take. It may be called beside Run.
func (m *Model) CheckImage(im *seq.Image) error {
	if !m.HasPart(Vision) {
		return diag.Errorf(diag.Unsupported, "this model takes no images")
	}
	l, n := m.PartLimits(Vision), im.Patches()
	switch {
	case int64(im.Tokens()) > l.Outs || int64(n) > l.Rows:
		return diag.Errorf(diag.TooLong, "the image makes %d tokens; at most %d are taken", im.Tokens(), l.Outs)
	case int64(im.Grid[0]) > l.Seqs:
		return diag.Errorf(diag.TooLong, "the image has %d frames; at most %d are taken", im.Grid[0], l.Seqs)
	case len(im.Pixels) != n*m.PortWidth(pixels):
		return diag.Errorf(diag.Internal, "an image of %d patches with %d values, a patch has %d", n, len(im.Pixels), m.PortWidth(pixels))
	}
	return nil
}

// Encode runs an image through the vision tower. Each of its frames is a sequence of its own.
func (m *Model) Encode(im *seq.Image) (*Features, error) {
	if err := m.CheckImage(im); err != nil {
		return nil, err
	}
	s := Step{Part: Vision, Outs: im.Tokens(), Inputs: []Input{{Port: pixels, Values: im.Pixels}}, CuRows: []int32{0}}
	perFrame := im.Patches() / int(im.Grid[0])
	for f := range im.Grid[0] {
		s.Grids = append(s.Grids, [3]int32{1, im.Grid[1], im.Grid[2]})
		for i := range perFrame {
			row, col := im.Patch(i)
			s.Coords = append(s.Coords, [3]int32{0, row, col})
			s.RowSeq = append(s.RowSeq, f)
		}
		s.CuRows = append(s.CuRows, int32(len(s.RowSeq)))
	}
	if _, err := m.Run(&s); err != nil {
		return nil, err
	}
	out := &Features{Tokens: im.Tokens()}
	for _, name := range m.features() {
		values := make([]float32, out.Tokens*m.PortWidth(name))
		if err := m.Output(name, values); err != nil {
			return nil, err
		}
		out.Ports = append(out.Ports, values)
	}
	return out, nil
}

// PutFeatures adds the features of an image's tokens to a step: n tokens from the image's token first on, for the rows of the
// step that follow those that have a FeatureRow. pool is the number of feature rows that the step has, the new one is given
// back.
func (m *Model) PutFeatures(s *Step, f *Features, first, n, pool int) int {
	for i := range n {
		s.FeatureRow = append(s.FeatureRow, int32(pool+i))
	}
	for i, name := range m.features() {
		w := m.PortWidth(name)
		s.Inputs = append(s.Inputs, Input{Port: name, Row: pool, Values: f.Ports[i][first*w : (first+n)*w]})
	}
	return pool + n
}
