// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/fixture"
	"github.com/metrale/metrale/internal/plan"
)

// TestIndexersFollowTheirSchedule: the layers that GLM-5.2 lists with an indexer of their own are those of its frequency.
func TestIndexersFollowTheirSchedule(t *testing.T) {
	src := fixture.Files(t, fixture.Configs)["zai-org--GLM-5.2_config.json"]
	listed := instantiate(t, readConfig(t, src)).Kinds
	start := strings.Index(string(src), `"indexer_types"`)
	end := start + strings.Index(string(src[start:]), "]") + 2 // and its comma
	scheduled := instantiate(t, readConfig(t, slices.Concat(src[:start], src[end:]))).Kinds
	if !slices.Equal(listed, scheduled) {
		t.Errorf("listed %v\nscheduled %v", listed, scheduled)
	}
	if got := strings.Join(listed[:8], " "); got != "full+dense full+dense full+dense shared+sparse shared+sparse shared+sparse full+sparse shared+sparse" {
		t.Errorf("the first layers are %s", got)
	}
}

// TestSharedIndicesComeFromTheLastIndexer: a layer without an indexer reads the positions that the last one chose, and keeps
// no index keys.
func TestSharedIndicesComeFromTheLastIndexer(t *testing.T) {
	cfg, cat := tiny(t, "glm_moe_dsa")
	p := lower(t, instantiate(t, cfg), cat, true)
	var got []string
	for i := range p.Launches {
		l := &p.Launches[i]
		for j := range l.Args {
			if a := &l.Args[j]; a.Param == "ids" && a.Kind == plan.ArgBuffer && (l.Kernel == "index" || l.Kernel == "sparse_attention") {
				got = append(got, fmt.Sprintf("%s %s", l.Name, p.Buffers[a.Index].Name))
			}
		}
	}
	want := []string{"L00.attn.index L00.attn.ids", "L00.attn.attend L00.attn.ids", "L01.attn.attend L00.attn.ids",
		"L02.attn.index L02.attn.ids", "L02.attn.attend L02.attn.ids", "L03.attn.attend L02.attn.ids"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %s\nwant %s", strings.Join(got, ", "), strings.Join(want, ", "))
	}
	var states []string
	for _, s := range p.States {
		states = append(states, s.Name)
	}
	if want := "L00.attn.latent L00.attn.index L01.attn.latent L02.attn.latent L02.attn.index L03.attn.latent"; strings.Join(slices.Sorted(slices.Values(states)), " ") != strings.Join(slices.Sorted(slices.Values(strings.Fields(want))), " ") {
		t.Errorf("states %v, want %s", states, want)
	}
}

// TestWrappersTakeTheDecodersThatTheyName: one model_type around several kinds of decoder.
func TestWrappersTakeTheDecodersThatTheyName(t *testing.T) {
	for _, c := range []struct{ wrapper, family, circuit, err string }{
		{"mistral3", "mistral4", "deepseek", ""},
		{"mistral3", "ministral3", "llama", ""},
		{"kimi_k25", "deepseek_v3", "deepseek", ""},
		{"kimi_k25", "mistral4", "", `text_config.model_type is "mistral4"; for model_type kimi_k25 it must be "kimi_k2" or "deepseek_v3"`},
	} {
		inner := fixture.Files(t, fixture.Tiny(c.family))["config.json"]
		in, err := Instantiate(lib(t), readConfig(t, fmt.Appendf(nil, `{"model_type": %q, "vision_config": {}, "text_config": %s}`, c.wrapper, inner)))
		switch {
		case c.err != "":
			if err == nil || !strings.Contains(err.Error(), c.err) || diag.CodeOf(err) != diag.Unsupported {
				t.Errorf("%s of %s: %v", c.wrapper, c.family, err)
			}
		case err != nil:
			t.Errorf("%s of %s: %v", c.wrapper, c.family, err)
		case in.Circuit != c.circuit || in.ModelType != c.wrapper:
			t.Errorf("%s of %s is circuit %s of model_type %s", c.wrapper, c.family, in.Circuit, in.ModelType)
		}
	}
}
