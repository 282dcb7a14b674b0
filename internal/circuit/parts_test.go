// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"slices"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/fixture"
	"github.com/metrale/metrale/internal/plan"
)

// A checkpoint has the whole of a part or nothing of it. Whichever part is lowered, all of them are looked at.
func TestAPartIsThereOrNot(t *testing.T) {
	for family, lost := range map[string]string{
		"qwen3_5": "mtp.fc.weight", "qwen3_5_moe_text": "mtp.layers.0.mlp.experts.3.up_proj.weight",
		"deepseek_v3": "model.layers.3.eh_proj.weight", "glm4_moe": "model.layers.3.mlp.gate.e_score_correction_bias",
	} {
		cfg, cat := tiny(t, family)
		in, err := Instantiate(lib(t), cfg, "mtp")
		if err != nil {
			t.Fatal(err)
		}
		draft := in.InPart("mtp")
		if !draft.Stored(cat) {
			t.Fatalf("%s has no draft head", family)
		}
		o := Options{Class: "cpu", Compute: Float32, Limits: small}
		for _, part := range []*Instance{in, draft} {
			_, err := part.Lower(lib(t), edited(cat, []string{lost}, nil), o)
			if err == nil || !strings.Contains(err.Error(), "missing (1):\n  "+lost) {
				t.Errorf("%s, part %q without %s: %v", family, part.Part, lost, err)
			}
		}
		own := slices.DeleteFunc(slices.Clone(cat.Names()), func(name string) bool { return !draft.owns(name, in.prefix(cat)) })
		without := edited(cat, own, nil)
		if draft.Stored(without) {
			t.Errorf("%s: the draft head is there without %v", family, own)
		}
		if _, err := in.Lower(lib(t), without, o); err != nil {
			t.Errorf("%s without its draft head: %v", family, err)
		}
		if _, err := draft.Lower(lib(t), without, o); err == nil || !diag.Is(err, diag.Unsupported) || !strings.Contains(err.Error(), "no tensors of its part mtp") {
			t.Errorf("%s: %v", family, err)
		}
	}
}

// A decoder that is served alone has no port, though the config describes other parts; with them it has those that they use.
func TestPortsFollowWhatIsServed(t *testing.T) {
	ports := func(p *plan.Plan) (names []string) {
		for _, b := range p.Buffers {
			switch {
			case b.Port.Name != "" && b.Port.Dir == plan.In:
				names = append(names, "in "+b.Port.Name)
			case b.Port.Name != "":
				names = append(names, "out "+b.Port.Name)
			}
		}
		slices.Sort(names)
		return names
	}
	for _, c := range []struct {
		family, part string
		with         []string
		want         string
	}{
		{"qwen3_vl", "", nil, ""},
		{"qwen3_vl", "", []string{"vision"}, "in deepstack0 in deepstack1 in features"},
		{"qwen3_vl", "vision", []string{"vision"}, "in pixels out deepstack0 out deepstack1 out features"},
		{"qwen3_5", "", nil, ""},
		{"qwen3_5", "", []string{"mtp"}, "out hidden"},
		{"qwen3_5", "mtp", []string{"mtp"}, "in hidden out hidden"},
		{"qwen3_5", "mtp", []string{"mtp", "vision"}, "in features in hidden out hidden"},
		{"kimi_k2", "", []string{"mtp", "vision"}, ""},
	} {
		cfg, cat := tiny(t, c.family)
		in, err := Instantiate(lib(t), cfg, c.with...)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(ports(lower(t, in.InPart(c.part), cat, false)), " "); got != c.want {
			t.Errorf("%s, part %q with %v: %s, want %s", c.family, c.part, c.with, got, c.want)
		}
	}
	cfg, _ := tiny(t, "kimi_k2")
	if in := instantiate(t, cfg); in.InPart("mtp") != nil || len(in.PartNames()) != 0 {
		t.Errorf("kimi_k2 has parts %v", in.PartNames())
	}
}

// What a tower's config says wrongly is refused at its line.
func TestTowersAreRefusedAtTheirLine(t *testing.T) {
	src := string(fixture.Files(t, fixture.Tiny("qwen3_vl"))["config.json"])
	for _, c := range []struct{ old, new, want string }{
		{`"out_hidden_size": 64`, `"out_hidden_size": 32`, "text_config.hidden_size is 64, but vision_config.out_hidden_size is 32"},
		{`"num_position_embeddings": 16`, `"num_position_embeddings": 15`, "15 position embeddings make no square"},
		{`"num_heads": 2`, `"num_heads": 3`, "32 dims over 3 heads do not rotate along two axes"},
		{`"rope_type": "axial"`, `"rope_type": "default"`, `vision_config.rope_parameters.rope_type is "default"; supported is "axial"`},
		{`"mrope_interleaved": true`, `"mrope_interleaved": false`, "mrope_interleaved is false; supported is true"},
		{`"depth": 3`, `"depth": 1`, "vision_config.deepstack_visual_indexes.1 is 1; it must name some of 1 layers"},
		{"      0,\n      1\n", "1, 1", "vision_config.deepstack_visual_indexes.1 is 1; layer numbers must rise here"},
		{`"patch_size": 4`, `"patch_width": 4`, "key vision_config.patch_width is not known"},
		{`"hidden_act": "gelu_pytorch_tanh"`, `"hidden_act": "silu"`, `vision_config.hidden_act is "silu"`},
	} {
		if !strings.Contains(src, c.old) {
			t.Fatalf("the config has no %s", c.old)
		}
		_, err := Instantiate(lib(t), readConfig(t, []byte(strings.Replace(src, c.old, c.new, 1))), "vision")
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "config.json:") {
			t.Errorf("%s:\n got %v\nwant %s", c.new, err, c.want)
		}
	}
}
