// SPDX-License-Identifier: MIT OR Apache-2.0

package exec_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/gpu/cpu"
	"github.com/metrale/metrale/internal/seq"
)

// partStory is what the reference has of a family's part.
type partStory struct {
	family, part string
	sequence     exec.Sequence
	want         reference
	pick         func(*exec.Numbers) [][]float32
}

// withParts are the checkpoints that have references of draft heads or images.
var withParts = []string{"deepseek_v3", "glm4_moe", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next", "qwen3_vl", "qwen3_vl_moe"}

// partStories go over all references.
func partStories(t *testing.T, each func(t *testing.T, f *family, s partStory)) {
	for _, name := range withParts {
		f := openFamily(t, name)
		if _, ok := f.ref.Lookup("mtp.logits"); ok {
			t.Run(name+"/draft", func(t *testing.T) {
				f := openFamily(t, name, exec.Draft)
				s := partStory{family: name, part: exec.Draft, pick: func(n *exec.Numbers) [][]float32 { return n.Drafts }}
				s.sequence = exec.Sequence{Prompt: f.prompts["long"].ids, Draft: true}
				s.want.logits = readFloats(t, f.ref, "mtp.logits")
				each(t, f, s)
			})
		}
		if _, ok := f.ref.Lookup("image.logits"); ok {
			t.Run(name+"/image", func(t *testing.T) {
				f := openFamily(t, name, exec.Vision)
				s := partStory{family: name, part: exec.Vision, pick: func(n *exec.Numbers) [][]float32 { return n.Logits }}
				s.sequence = exec.Sequence{Prompt: readInts(t, f.ref, "image.input_ids"), Images: []*seq.Image{f.image(t)}}
				s.want.logits = readFloats(t, f.ref, "image.logits")
				each(t, f, s)
			})
		}
	}
}

// image is the reference's.
func (f *family) image(t *testing.T) *seq.Image {
	grid := readInts(t, f.ref, "image.grid_thw")
	im := &seq.Image{Grid: [3]int32{grid[0], grid[1], grid[2]}, Merge: int32(f.instance.Dim("vis_merge")), Pixels: readFloats(t, f.ref, "image.pixel_values")}
	im.First = slices.Index(readInts(t, f.ref, "image.input_ids"), int32(f.instance.Dim("image_token")))
	return im
}

func TestPartsEqualTransformers(t *testing.T) {
	partStories(t, func(t *testing.T, f *family, s partStory) {
		for _, path := range []string{"", "go"} {
			n, err := f.load(t, cpu.Options{Path: path}, false).Evaluate(t.Context(), s.sequence)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("path %q: max |ours-ref|/(1+|ref|) = %.2e", path, compare(t, s.part, s.pick(n), s.want))
		}
	})
}

// Drafts and images give the same bits however the prompt is cut, through an image too, and fused or not.
func TestChunksAndFusionChangeNoBitOfParts(t *testing.T) {
	partStories(t, func(t *testing.T, f *family, s partStory) {
		m := f.load(t, cpu.Options{Threads: 1}, false)
		want, err := m.Evaluate(t.Context(), s.sequence)
		if err != nil {
			t.Fatal(err)
		}
		same := func(what string, m *exec.Model, chunk int) {
			q := s.sequence
			q.Chunk = chunk
			got, err := m.Evaluate(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			if i := firstDifference(s.pick(got), s.pick(want)); i >= 0 {
				t.Errorf("%s: row %d differs", what, i)
			}
		}
		for chunk := 1; chunk < len(s.sequence.Prompt); chunk++ {
			same(fmt.Sprintf("chunks of %d", chunk), m, chunk)
		}
		same("unfused", f.load(t, cpu.Options{}, true), 0)
	})
}

// Text is the same to a model that was loaded with its tower: the same bits.
func TestTextDoesNotSeeTheTower(t *testing.T) {
	for _, name := range []string{"qwen3_vl", "qwen3_5_moe"} {
		alone := openFamily(t, name).load(t, cpu.Options{}, false)
		f := openFamily(t, name, exec.Vision)
		with := f.load(t, cpu.Options{}, false)
		for which, ref := range f.prompts {
			want, _, err := exec.Evaluate(alone, ref.ids, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			got, _, err := exec.Evaluate(with, ref.ids, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			if i := firstDifference(got, want); i >= 0 {
				t.Errorf("%s, %s: row %d differs", name, which, i)
			}
		}
	}
}

// A draft head drafts on from its own hidden state: the second draft of a row is a row of the next step.
func TestDraftsContinue(t *testing.T) {
	f := openFamily(t, "qwen3_5", exec.Draft)
	m := f.load(t, cpu.Options{}, false)
	ids := f.prompts["short"].ids
	n, err := m.Evaluate(t.Context(), exec.Sequence{Prompt: ids, Draft: true})
	if err != nil {
		t.Fatal(err)
	}
	best := func(row []float32) int32 { return int32(slices.Index(row, slices.Max(row))) }
	first := best(n.Drafts[len(ids)-1])
	s := exec.Step{Part: exec.Draft, CuRows: []int32{0}, HiddenRow: []int32{int32(len(ids) - 1)}}
	addRows(&s, 0, append(append(slices.Clone(ids), 0), first), len(ids), 1)
	s.Tokens[0] = first // the row at position t has the token behind it
	second, err := m.Run(&s)
	if err != nil {
		t.Fatal(err)
	}
	again, err := m.Evaluate(t.Context(), exec.Sequence{Prompt: ids, Draft: true})
	if err != nil {
		t.Fatal(err)
	}
	if i := firstDifference(again.Drafts, n.Drafts); i >= 0 {
		t.Errorf("the first drafts change in row %d", i)
	}
	if firstDifference(second, n.Drafts[len(ids)-1:]) < 0 {
		t.Error("the second draft is the first one")
	}
	for _, r := range []int32{96, -1} {
		s.HiddenRow[0] = r
		if _, err := m.Run(&s); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("row 0 wants row %d of port hidden", r)) {
			t.Errorf("row %d of the hidden states: %v", r, err)
		}
	}
}

// Rows take features that are there, or none.
func TestFeaturesAreThere(t *testing.T) {
	f := openFamily(t, "qwen3_vl", exec.Vision)
	m := f.load(t, cpu.Options{}, false)
	s := exec.Step{CuRows: []int32{0}, FeatureRow: []int32{-1}}
	addRows(&s, 0, f.prompts["short"].ids, 0, 1)
	if _, err := m.Run(&s); err != nil {
		t.Error(err)
	}
	for _, r := range []int32{-2, 1 << 20} {
		s.FeatureRow[0] = r
		if _, err := m.Run(&s); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("row 0 wants row %d of port features", r)) {
			t.Errorf("row %d of the features: %v", r, err)
		}
	}
}
