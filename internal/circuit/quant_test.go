// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/fixture"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights"
)

// separated is the store of a checkpoint that is quantised as its config says, but for edits of its tensors.
func separated(t testing.TB, in *Instance, q *modelconf.Quant, edits ...func([]tensor.Info) []tensor.Info) (weights.Store, error) {
	t.Helper()
	cat := in.QuantisedCatalog()
	var list []tensor.Info
	for _, name := range cat.Names() {
		x, _ := cat.Lookup(name)
		list = append(list, x)
	}
	list = weights.Separate(list, q)
	for _, edit := range edits {
		list = edit(list)
	}
	s, err := weights.Dummy(list)
	if err != nil {
		t.Fatal(err)
	}
	return weights.Quantised(s, q)
}

// quantisedTiny is a quantised reference checkpoint's instance and config.
func quantisedTiny(t testing.TB, name string) (*Instance, *modelconf.Quant) {
	t.Helper()
	cfg := readConfig(t, fixture.Files(t, fixture.Tiny("quantised/"+name))["config.json"])
	return instantiate(t, cfg), cfg.Quant
}

// arguments of launches whose names end so, as "param: type [sources]", sources shortened to the first of many.
func arguments(p *plan.Plan, launch string) (out []string) {
	for i := range p.Launches {
		l := &p.Launches[i]
		if !strings.HasSuffix(l.Name, launch) {
			continue
		}
		for _, a := range l.Args {
			if a.Kind == plan.ArgWeight {
				w := &p.Weights[a.Index]
				out = append(out, fmt.Sprintf("%s: %v%v of %d, %s", a.Param, w.DType, w.Axes.Shape(), len(w.Sources), w.Sources[0]))
			}
		}
		return out
	}
	return nil
}

// TestScalesOfRowsAreArguments: what multiplies products stands beside its weight; who has no argument for it reads float32.
func TestScalesOfRowsAreArguments(t *testing.T) {
	for _, c := range []struct{ checkpoint, launch, want string }{
		{"qwen3_moe-nvfp4", "L00.attn.q+k+v", `w0: nvfp4[128 64] of 1, model.layers.0.self_attn.q_proj.weight
w1: nvfp4[64 64] of 1, model.layers.0.self_attn.k_proj.weight
w2: nvfp4[64 64] of 1, model.layers.0.self_attn.v_proj.weight
scale0: f32[128] of 1, model.layers.0.self_attn.q_proj.weight/scale
scale1: f32[64] of 1, model.layers.0.self_attn.k_proj.weight/scale
scale2: f32[64] of 1, model.layers.0.self_attn.v_proj.weight/scale`},
		{"qwen3_moe-nvfp4", "L01.moe.experts", `gate_up: nvfp4[8 64 64] of 16, model.layers.1.mlp.experts.0.gate_proj.weight
down: nvfp4[8 64 32] of 8, model.layers.1.mlp.experts.0.down_proj.weight
gate_up_scale: f32[8 64] of 16, model.layers.1.mlp.experts.0.gate_proj.weight/scale
down_scale: f32[8 64] of 8, model.layers.1.mlp.experts.0.down_proj.weight/scale`},
		{"gpt_oss-mxfp4", "L00.moe.experts", `gate_up: mxfp4[8 128 64] of 16, model.layers.0.mlp.experts.gate_up_proj_blocks#0[0:1:2]
down: mxfp4[8 64 64] of 1, model.layers.0.mlp.experts.down_proj_blocks
gate_up_bias: bf16[8 128] of 16, model.layers.0.mlp.experts.gate_up_proj_bias#0[0:1:2]
down_bias: bf16[8 64] of 1, model.layers.0.mlp.experts.down_proj_bias`},
		{"glm4_moe_lite-fp8-row", "L00.attn.v", `w: e4m3[4 32 32] of 1, model.layers.0.self_attn.kv_b_proj.weight[32:64:64]
scale: f32[4 32] of 1, model.layers.0.self_attn.kv_b_proj.weight/scale[32:64:64]`},
		{"glm4_moe_lite-fp8-row", "L00.attn.absorb", `w: f32[4 32 32] of 1, model.layers.0.self_attn.kv_b_proj.weight/f32[0:32:64]`},
		{"llama-fp8-block", "L00.mlp.gate+up+act", `wg: e4m3_b32[128 64] of 1, model.layers.0.mlp.gate_proj.weight
wu: e4m3_b32[128 64] of 1, model.layers.0.mlp.up_proj.weight`},
	} {
		in, q := quantisedTiny(t, c.checkpoint)
		s, err := separated(t, in, q)
		if err != nil {
			t.Fatal(err)
		}
		p := lower(t, in, s, false)
		if got := strings.Join(arguments(p, c.launch), "\n"); got != c.want {
			var names []string
			for _, l := range p.Launches {
				names = append(names, l.Name)
			}
			t.Errorf("%s, %s:\n%s\nwant\n%s\nof %v", c.checkpoint, c.launch, got, c.want, names)
		}
	}
}

// TestMixedSourcesAreReadInFloat32: a weight of tensors in several formats has no format of its own.
func TestMixedSourcesAreReadInFloat32(t *testing.T) {
	in, q := quantisedTiny(t, "qwen3_moe-nvfp4")
	const module = "model.layers.1.mlp.experts.5.up_proj."
	s, err := separated(t, in, q, func(list []tensor.Info) []tensor.Info {
		list = slices.DeleteFunc(list, func(x tensor.Info) bool { return strings.HasPrefix(x.Name, module) })
		return append(list, tensor.Info{Name: module + "weight", DType: tensor.BF16, Shape: tensor.Shape{32, 64}})
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `gate_up: f32[8 64 64] of 16, model.layers.1.mlp.experts.0.gate_proj.weight/f32
down: nvfp4[8 64 32] of 8, model.layers.1.mlp.experts.0.down_proj.weight
down_scale: f32[8 64] of 8, model.layers.1.mlp.experts.0.down_proj.weight/scale`
	if got := strings.Join(arguments(lower(t, in, s, false), "L01.moe.experts"), "\n"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestPreflightOfQuantisedTensors: weights count, however many tensors they are made of.
func TestPreflightOfQuantisedTensors(t *testing.T) {
	in, q := quantisedTiny(t, "qwen3_moe-nvfp4")
	s, err := separated(t, in, q, func(list []tensor.Info) []tensor.Info {
		list = slices.DeleteFunc(list, func(x tensor.Info) bool {
			return strings.HasPrefix(x.Name, "model.layers.0.mlp.experts.7.") || x.Name == "lm_head.weight"
		})
		for _, name := range []string{"model.layers.1.mlp.experts.8.up_proj", "model.layers.2.mlp.experts.0.up_proj"} {
			list = append(list, tensor.Info{Name: name + ".weight", DType: tensor.U8, Shape: tensor.Shape{32, 32}},
				tensor.Info{Name: name + ".weight_scale", DType: tensor.E4M3, Shape: tensor.Shape{32, 4}}, tensor.Info{Name: name + ".weight_scale_2", DType: tensor.F32})
		}
		for i := range list { // another width, in values and scales
			if name := "model.layers.0.self_attn.o_proj.weight"; list[i].Name == name || list[i].Name == name+"_scale" {
				list[i].Shape = tensor.Shape{list[i].Shape[0], list[i].Shape[1] / 2}
			}
		}
		return list
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = in.Lower(lib(t), s, Options{Class: "cpu", Compute: Float32, Limits: small})
	want := `the checkpoint's tensors do not fit circuit qwen3_moe/qwen3_moe
missing (4):
  lm_head.weight
  model.layers.0.mlp.experts.7.down_proj.weight
  model.layers.0.mlp.experts.7.gate_proj.weight
  model.layers.0.mlp.experts.7.up_proj.weight
mis-shaped (1):
  model.layers.0.self_attn.o_proj.weight is [64 64], expected [64 128] (hidden, heads*head_dim)
unexpected (2):
  model.layers.1.mlp.experts.8.up_proj.weight
  model.layers.2.mlp.experts.0.up_proj.weight`
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

// experts are the keys of their number, which tests make smaller: it only repeats names.
var experts = regexp.MustCompile(`"(num_experts|n_routed_experts|num_local_experts|moe_num_experts)": \d+`)

// TestQuantisedConfigsLower: every published quantised config, with the tensors that such a checkpoint has, makes a plan. The golden
// says in how many bits its weights are kept, and of what types they are; or what refuses the config.
func TestQuantisedConfigsLower(t *testing.T) {
	t.Parallel()
	files := fixture.Files(t, fixture.Configs)
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(files)) {
		base, ok := strings.CutSuffix(name, "_config.json")
		if !ok || strings.HasSuffix(name, "_hf_quant_config.json") {
			continue
		}
		beside := map[string][]byte{"config.json": experts.ReplaceAll(files[name], []byte(`"$1": 24`))}
		if hf, ok := files[base+"_hf_quant_config.json"]; ok {
			beside["hf_quant_config.json"] = hf
		}
		cfg, err := modelconf.Read(beside)
		if err == nil && cfg.Quant == nil {
			continue
		}
		in, p := (*Instance)(nil), (*plan.Plan)(nil)
		var s weights.Store
		if err == nil {
			in, err = Instantiate(lib(t), cfg)
		}
		if err == nil {
			s, err = separated(t, in, cfg.Quant)
		}
		if err == nil {
			p, err = in.Lower(lib(t), s, Options{Class: "cpu", Compute: Declared, KV: tensor.BF16, Limits: small})
		}
		if err != nil {
			why, _, _ := strings.Cut(err.Error(), " (mapped are")
			lines = append(lines, base+": "+why)
			continue
		}
		bytes, elems, types := 0.0, 0.0, map[string]float64{}
		for _, w := range p.Weights {
			n := w.Axes.Shape().Elems()
			bytes, elems = bytes+float64(w.DType.Bytes(n)), elems+float64(n)
			types[w.DType.String()] += float64(n)
		}
		line := fmt.Sprintf("%s: %s, %.2f bits", base, cfg.Quant.Method, 8*bytes/elems)
		for _, d := range slices.Sorted(maps.Keys(types)) {
			line += fmt.Sprintf(", %s %.1f%%", d, 100*types[d]/elems)
		}
		lines = append(lines, line)
	}
	compareGolden(t, "testdata/quantised.txt", strings.Join(lines, "\n")+"\n")
}
