// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/metrale/metrale/internal/fixture"
	"github.com/metrale/metrale/internal/tensor"
)

// mixed is a circuit whose layers differ in all ways that there are.
var mixed = map[string]string{
	"circuits/mixed.toml": `
dims = { norm_plus_one = "0", qk_norm = "0", out_gate = "0", qkv_bias = "0", o_bias = "0", mlp_bias = "0", window = "0" }
params = { embed_scale = "sqrt(hidden)", attention_scale = "rsqrt(head_dim)" }
strings = { rope_style = "half" }
[[begin]]
use = "embedding"
[[begin]]
use = "rope"
kinds = ["near", "far"]
[layers]
path = "{P}layers.{i}"
count = "layers"
[[layers.part]]
every = { dim = "2", kind = "far", else = "near" }
[[layers.part]]
name = "mlp"
kind = "narrow"
[[layers.kind.near]]
use = "attention"
[[layers.kind.far]]
use = "attention"
[[layers.kind.narrow]]
use = "mlp"
when = "mlp_there"
[[layers.kind.wide]]
use = "mlp"
set = { inter = "2*inter + layer" }
[[end]]
use = "head"
`,
	"circuits/mixed.config.toml": `
circuit = "mixed"
use = ["checkpoint", "decoder"]
[keys]
intermediate_size = { dim = "inter" }
layer_types = { kinds = ["near", "far", "global"], allow = { global = "far" } }
wide_layers = { layers = "wide", part = "mlp", base = 1 }
heads_per_layer = { dim = "heads", each = true }
far_head_dim = { dim = "head_dim", of = "far", default = "2*head_dim" }
near_window = { dim = "window", of = "near" }
no_mlp = { dim = "mlp_there", default = "1", min = 0 }
near_theta = { rope = true }
layer = { per_layer = true }
[variant.mixed]
prefixes = ["model."]
rope = { theta = 10000.0, kind = { near = { theta = 100.0, theta_key = "near_theta", plain = true } } }
`}

func mixedLibrary(t *testing.T, edit ...string) (*Library, error) {
	files := tree(t)
	for name, text := range mixed {
		for i := 0; i < len(edit); i += 2 {
			text = strings.ReplaceAll(text, edit[i], edit[i+1])
		}
		files[name] = &fstest.MapFile{Data: []byte("# SPDX-License-Identifier: MIT OR Apache-2.0\n" + text)}
	}
	return LoadLibrary(files)
}

const mixedConfig = `{"model_type": "mixed", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
"intermediate_size": 128, "vocab_size": 512, "max_position_embeddings": 256, "near_window": 8%s}`

// TestLayersDiffer follows values of kinds and layers from the config into the nodes.
func TestLayersDiffer(t *testing.T) {
	l, err := mixedLibrary(t)
	if err != nil {
		t.Fatal(err)
	}
	const alternate = "near+narrow far+narrow near+narrow far+narrow"
	for _, c := range []struct{ keys, kinds, heads, dims, windows, inter, rotations string }{
		{"", alternate, "[4 4 4 4]", "[16 32 16 32]", "[8 0 8 0]", "[128 128 128 128]", "near 8 100, far 16 10000"},
		{`, "layer_types": ["near", "near", "global", "near"], "wide_layers": [2, 4]`, "near+narrow near+wide far+narrow near+wide",
			"[4 4 4 4]", "[16 16 32 16]", "[8 8 0 8]", "[128 257 128 259]", "near 8 100, far 16 10000"},
		{`, "wide_layers": "1, 3", "heads_per_layer": [8, null, 8, 6]`, "near+wide far+narrow near+wide far+narrow",
			"[8 4 8 6]", "[16 32 16 32]", "[8 0 8 0]", "[256 128 258 128]", "near 8 100, far 16 10000"},
		{`, "layer": {"1": {"head_dim": 24}, "3": {"head_dim": 24}, "2": {"intermediate_size": 32}}`, alternate,
			"[4 4 4 4]", "[16 24 16 24]", "[8 0 8 0]", "[128 128 32 128]", "near 8 100, far 12 10000"},
		{`, "no_mlp": 0, "rope_theta": 500, "near_theta": 50, "rope_scaling": {"rope_type": "linear", "factor": 2}`, alternate,
			"[4 4 4 4]", "[16 32 16 32]", "[8 0 8 0]", "[]", "near 8 50, far 16 500"},
		{`, "rope_parameters": {"near": {"rope_theta": 7, "rope_type": "default"}, "far": {"rope_theta": 9, "rope_type": "proportional"}}`, alternate,
			"[4 4 4 4]", "[16 32 16 32]", "[8 0 8 0]", "[128 128 128 128]", "near 8 7, far 16 9"},
		{`, "layer_types": ["far", "far", "far", "far"], "far_head_dim": 16`, "far+narrow far+narrow far+narrow far+narrow",
			"[4 4 4 4]", "[16 16 16 16]", "[0 0 0 0]", "[128 128 128 128]", "far 8 10000"},
	} {
		in, err := Instantiate(l, readConfig(t, fmt.Appendf(nil, mixedConfig, c.keys)))
		if err != nil {
			t.Errorf("%s: %v", c.keys, err)
			continue
		}
		var heads, dims, windows, inter []int64
		var rotations []string
		for _, n := range in.Nodes {
			switch {
			case n.Op.Name == "attention":
				heads, dims, windows = append(heads, n.attr("heads").Int), append(dims, n.attr("head_dim").Int), append(windows, n.attr("window").Int)
			case strings.HasSuffix(n.ID, ".mlp.gate"):
				inter = append(inter, in.Weights[n.Weights[0]].Axes[0].Size)
			case n.Op.Name == "rope_angles": // theta is what makes the second of n frequencies: theta^(-1/n)
				inv := in.Consts[n.Consts[0]].Values
				theta := math.Pow(float64(inv[1]/inv[0]), -float64(len(inv)))
				rotations = append(rotations, fmt.Sprintf("%s %d %.0f", strings.TrimSuffix(n.ID, ".rope"), len(inv), theta))
			}
		}
		for _, x := range [][2]string{{strings.Join(in.Kinds, " "), c.kinds}, {fmt.Sprint(heads), c.heads}, {fmt.Sprint(dims), c.dims},
			{fmt.Sprint(windows), c.windows}, {fmt.Sprint(inter), c.inter}, {strings.Join(rotations, ", "), c.rotations}} {
			if x[0] != x[1] {
				t.Errorf("%s: %s, want %s", c.keys, x[0], x[1])
			}
		}
	}
}

// TestFaultsOfLayerValues: configs and maps that say of layers what cannot be.
func TestFaultsOfLayerValues(t *testing.T) {
	l, err := mixedLibrary(t)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{
		{`, "wide_layers": [5]`, "wide_layers.0 is 5; it must name some of 4 layers"},
		{`, "wide_layers": "1,x"`, `wide_layers is "1,x"; it must name some of 4 layers`},
		{`, "wide_layers": 3`, "wide_layers is an integer; it must be a list of layer numbers"},
		{`, "heads_per_layer": [4, 4]`, "heads_per_layer has 2 entries for 4 layers"},
		{`, "heads_per_layer": [4, 4, 4, "x"]`, `heads_per_layer.3 is "x"; it must be an integer`},
		{`, "layer": {"4": {}}`, "layer.4 must be an object, named by a layer from 0 to 3"},
		{`, "layer": {"1": {"layer_types": []}}`, "key layer.1.layer_types cannot differ from layer to layer"},
		{`, "layer_types": ["near", "wide", "far", "far"]`, `layer_types.1 is "wide"; supported is near, far, global`},
	} {
		_, err := Instantiate(l, readConfig(t, fmt.Appendf(nil, mixedConfig, c[0])))
		if err == nil || !strings.Contains(err.Error(), c[1]) {
			t.Errorf("%s:\n got %v\nwant %s", c[0], err, c[1])
		}
	}
	for _, c := range [][3]string{
		{`of = "far"`, `of = "fur"`, "circuit mixed of model_type mixed has no layer kind fur"},
		{`layers = "wide"`, `layers = "side"`, "has no layer kind side"},
		{`allow = { global = "far" }`, `allow = { global = "all" }`, "has no layer kind all"},
		{`kind = { near`, `kind = { nearer`, "circuit mixed has no layer kind nearer"},
		{`kinds = ["near", "far"]`, `kinds = ["near", "fur"]`, "there is no layer kind fur"},
	} {
		if _, err := mixedLibrary(t, c[0], c[1]); err == nil || !strings.Contains(err.Error(), c[2]) {
			t.Errorf("%s:\n got %v\nwant %s", c[1], err, c[2])
		}
	}
}

// TestStepSpellings: the published spelling, with lists per layer, is the reference's spelling by kind; draft layers follow in it.
func TestStepSpellings(t *testing.T) {
	src := fixture.Files(t, fixture.Tiny("step3p7"))["config.json"]
	want := instantiate(t, readConfig(t, src))
	published := []byte(`{"model_type": "step3p7", "text_config": {"model_type": "step3p5", "vocab_size": 512, "hidden_size": 64, "max_position_embeddings": 256,
		"num_hidden_layers": 4, "intermediate_size": 128, "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention", "full_attention"],
		"sliding_window": 16, "num_attention_heads": 4, "num_attention_groups": 2, "head_dim": 16, "rms_norm_eps": 1e-5,
		"attention_other_setting": {"attention_type": "sliding_attention", "num_attention_heads": 6, "num_attention_groups": 2, "head_dim": 16},
		"moe_layers_enum": "1,2,3,4", "moe_num_experts": 8, "moe_top_k": 2, "moe_intermediate_size": 32, "share_expert_dim": 32, "first_k_dense_replace": 4,
		"moe_router_scaling_factor": 3.0, "rope_theta": [5000000.0, 10000.0, 10000.0, 5000000.0, 10000.0], "partial_rotary_factors": [0.5, 1.0, 1.0, 0.5, 1.0],
		"rope_scaling": {"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 1.0, "high_freq_factor": 32.0, "original_max_position_embeddings": 64},
		"yarn_only_types": ["full_attention"], "swiglu_limits": [null, null, 0.5, 0.5, 7], "swiglu_limits_shared": [0.0, 0.0, 0.5, 0.5, 7]}}`)
	got := instantiate(t, readConfig(t, published))
	got.Dims, want.Dims = nil, nil // the spellings set other dims on the way
	a, b := lower(t, got, got.SyntheticCatalog(tensor.BF16), false), lower(t, want, want.SyntheticCatalog(tensor.BF16), false)
	if a.Digest() != b.Digest() {
		t.Errorf("another plan:\n%s\nwant\n%s", a.Print(), b.Print())
	}
	for edit, fault := range map[string]string{
		"[5000000.0, 10000.0, 10000.0, 5000000.0, 10000.0]": "rope_theta has 3 entries for 4 layers",
		"[0.5, 1.0, 1.0, 0.5, 1.0]":                         "partial_rotary_factors.3 is 1.0, but text_config.partial_rotary_factors.0 is 0.5; layers of one kind rotate alike",
	} {
		by := map[string]string{"[5": "[5000000.0, 10000.0, 10000.0]", "[0": "[0.5, 1.0, 1.0, 1.0]"}[edit[:2]]
		if _, err := Instantiate(lib(t), readConfig(t, replaceJSON(t, published, edit, by))); err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("%s: %v, want %s", by, err, fault)
		}
	}
}

// TestLayersShareStates: the last layers have no K and V of their own, and read those of the last layer before them like it.
func TestLayersShareStates(t *testing.T) {
	cfg, cat := tiny(t, "gemma4_ple")
	p := lower(t, instantiate(t, cfg), cat, false)
	var states, readers []string
	for _, s := range p.States {
		states = append(states, s.Name)
	}
	for i := range p.Launches {
		if l := &p.Launches[i]; l.Kernel == "attention" {
			for j := range l.Args {
				if l.Args[j].Param == "k_pool" {
					readers = append(readers, l.Name[:3]+" "+p.States[l.Args[j].Index].Name)
				}
			}
		}
	}
	if got, want := strings.Join(states, " "), "L00.attn.k L00.attn.v L01.attn.k L01.attn.v L02.attn.k L02.attn.v"; got != want {
		t.Errorf("states %s, want %s", got, want)
	}
	want := "L00 L00.attn.k, L01 L01.attn.k, L02 L02.attn.k, L03 L01.attn.k, L04 L01.attn.k, L05 L02.attn.k"
	if got := strings.Join(readers, ", "); got != want {
		t.Errorf("read %s\nwant %s", got, want)
	}
	src := fixture.Files(t, fixture.Tiny("gemma4_ple"))["config.json"]
	for n, fault := range map[string]string{
		"4": "layer 2 keeps no state, and no layer before those that keep none is like it",
		"7": "layer 0 keeps no state",
	} {
		_, err := Instantiate(lib(t), readConfig(t, replaceJSON(t, src, `"num_kv_shared_layers": 3`, `"num_kv_shared_layers": `+n)))
		if err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("%s: %v, want %s", n, err, fault)
		}
	}
}
