// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"slices"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/fixture"
	"github.com/metrale/metrale/internal/tensor"
)

// TestConfigsAreRefusedAtTheirLine edits real configs and expects the error to name key, file and line.
func TestConfigsAreRefusedAtTheirLine(t *testing.T) {
	files := fixture.Files(t, fixture.Configs)
	real := func(name string) []byte { return files[name+"_config.json"] }
	llama, moe := real("meta-llama--Meta-Llama-3.1-8B"), real("Qwen--Qwen3-30B-A3B")
	hybrid := real("Qwen--Qwen3.5-35B-A3B")
	letters := real("nvidia--Nemotron-H-56B-Base-8K")
	nested := fixture.Files(t, fixture.Tiny("kimi_linear"))["config.json"]
	mini := fixture.Files(t, fixture.Tiny("ministral3"))["config.json"]
	for _, c := range []struct {
		src  []byte
		edit []string
		want string
	}{
		{llama, []string{`"mlp_bias": false`, `"mlp_bias": false, "logit_scale": 0.5`}, `config.json:14:37: key logit_scale is not known for model_type llama: what it changes is not supported`},
		{llama, []string{`"llama"`, `"lama"`}, `config.json:15:17: no circuit maps model_type "lama" (mapped are `},
		{llama, []string{`"silu"`, `"relu"`}, `config.json:9:17: hidden_act is "relu"; supported is gelu_pytorch_tanh, silu`},
		{llama, []string{`"hidden_size": 4096`, `"hidden_size": "big"`}, `config.json:10:18: hidden_size is "big"; it must be an integer from 1 to 2147483648`},
		{llama, []string{`"hidden_size": 4096`, `"hidden_size": 0`}, `config.json:10:18: hidden_size is 0; it must be an integer from 1 to 2147483648`},
		{llama, []string{`"hidden_size": 4096,`, ``}, `config.json:1:1: key hidden_size is missing; model_type llama needs it`},
		{llama, []string{`"num_hidden_layers": 32`, `"num_hidden_layers": 10000000`}, `config.json:17:24: num_hidden_layers is 10000000; it must be an integer from 1 to 4096`},
		{llama, []string{`"attention_bias": false`, `"attention_bias": 0`}, `config.json:5:21: attention_bias is 0; it must be true or false`},
		{llama, []string{`"rms_norm_eps": 1e-05`, `"rms_norm_eps": true`}, `config.json:20:19: rms_norm_eps is true; it must be a number`},
		{llama, []string{`"llama3"`, `"dynamic"`}, `config.json:26:18: rope_scaling.rope_type is "dynamic"; supported is default, linear, llama3, proportional, yarn`},
		{llama, []string{`"llama3"`, `"yarn"`}, `config.json:23:24: key rope_scaling.low_freq_factor is not known for rope type yarn of model_type llama`},
		{llama, []string{`"factor": 8.0`, `"factor": 0.0`}, `config.json:22:15: rope_scaling.factor must not be 0`},
		{llama, []string{`"factor": 8.0,`, ``}, `config.json:21:19: rope_scaling has no factor, which rope type llama3 needs`},
		{llama, []string{`"rope_theta": 500000.0`, `"rope_theta": "big"`}, `config.json:28:17: rope_theta is "big"; it must be a number of at least 0`},
		{llama, []string{`"rope_theta"`, `"partial_rotary_factor": 0.5, "rope_theta"`}, `config.json:28:28: partial_rotary_factor is 0.5; model_type llama rotates whole heads`},
		{llama, []string{`"rope_theta"`, `"rope_parameters": {}, "rope_theta"`}, `config.json:21:19: rope_scaling and rope_parameters are both given`},
		{llama, []string{`"num_key_value_heads": 8`, `"num_key_value_heads": 5`}, `config.json:1:1: the config does not fit circuit llama: node L00.attn.attend: attention: heads%kv_heads must be 0`},
		{mini, []string{`"llama_4_scaling_beta"`, `"scaling_gamma"`}, `config.json:25:22: key rope_parameters.scaling_gamma is not known for rope type yarn of model_type ministral3`},
		{llama, []string{`"high_freq_factor": 4.0`, `"high_freq_factor": 4.0, "llama_4_scaling_beta": 0.1`}, `config.json:24:54: key rope_scaling.llama_4_scaling_beta is not known for rope type llama3 of model_type llama`},
		{moe, []string{`"decoder_sparse_step": 1`, `"decoder_sparse_step": 2`}, `config.json:8:26: decoder_sparse_step is 2; supported is 1 (a dense layer among expert layers has no layer kind here)`},
		{moe, []string{`"mlp_only_layers": []`, `"mlp_only_layers": [3]`}, `config.json:17:22: mlp_only_layers is a list; supported is [] (a dense layer among expert layers has no layer kind here)`},
		{moe, []string{`"use_sliding_window": false`, `"use_sliding_window": true`}, `config.json:36:25: use_sliding_window is true; supported is false (no circuit of this family has window layers)`},
		{moe, []string{`"num_experts": 128`, `"num_experts": 128, "num_local_experts": 64`}, `config.json:22:44: num_local_experts is 64, but num_experts is 128`},
		{hybrid, []string{`"model_type": "qwen3_5_moe_text"`, `"model_type": "qwen3_5_text"`}, `config.json:7:20: text_config.model_type is "qwen3_5_text"; for model_type qwen3_5_moe it must be "qwen3_5_moe_text"`},
		{hybrid, []string{`"full_attention",`, `"sliding_attention",`}, `config.json:22:13: text_config.layer_types.3 is "sliding_attention"; supported is full_attention, linear_attention`},
		{hybrid, []string{`"num_hidden_layers": 40`, `"num_hidden_layers": 41`}, `config.json:18:24: text_config.layer_types has 40 entries for 41 layers`},
		{hybrid, []string{`"attn_output_gate": true`, `"attn_output_gate": false`}, `config.json:10:29: text_config.attn_output_gate is false; supported is true (q_proj of this family always holds the output gate)`},
		{hybrid, []string{`"image_token_id"`, `"audio_token_id"`}, `config.json:5:23: key audio_token_id is not known for model_type qwen3_5_moe: what it changes is not supported`},
		{letters, []string{`"M-M-M-M*`, `"M-M-MXM*`}, `config.json:19:32: hybrid_override_pattern is "M-M-MXM*-M-M-M-M-M*`},
		{letters, []string{`"M-M-M-M*`, `"M-M-M*`}, `config.json:19:32: hybrid_override_pattern has 116 entries for 118 layers`},
		{letters, []string{`Infinity`, `0.1`}, `config.json:44:24: time_step_limit is a list; supported is [0, +Inf] or [0, 1e+308] (time steps are not bounded)`},
		{nested, []string{`"num_heads"`, `"num_hats"`}, `config.json:33:17: key linear_attn_config.num_hats is not known for model_type kimi_linear`},
		{nested, []string{`    "head_dim": 16,`, `    "head_dim": 18,`}, `config.json:37:22: linear_head_dim is 16, but linear_attn_config.head_dim is 18`},
		{hybrid, []string{`"text_config"`, `"txt_config"`}, `config.json:1:1: key text_config is missing; model_type qwen3_5_moe needs it`},
	} {
		_, err := Instantiate(lib(t), readConfig(t, replaceJSON(t, c.src, c.edit...)))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%v:\n got %v\nwant %s", c.edit, err, c.want)
			continue
		}
		if code := diag.CodeOf(err); code != diag.Format && code != diag.Unsupported {
			t.Errorf("%v: code %v", c.edit, code)
		}
	}
}

// TestSpellingsOfOneModelGiveOneInstance: older and newer keys, and a decoder with or without its wrapper.
func TestSpellingsOfOneModelGiveOneInstance(t *testing.T) {
	files := fixture.Files(t, fixture.Configs)
	llama := files["meta-llama--Meta-Llama-3.1-8B_config.json"]
	moe := files["Qwen--Qwen3-30B-A3B_config.json"]
	for _, c := range []struct {
		src  []byte
		edit []string
	}{
		{llama, []string{`"rope_scaling": {`, `"rope_parameters": {"rope_theta": 500000.0,`}},
		{llama, []string{`"hidden_act": "silu",`, ``}},
		{llama, []string{`"num_attention_heads": 32`, `"head_dim": 128, "num_attention_heads": 32`}},
		{llama, []string{`"rope_type"`, `"type"`}},
		{moe, []string{`"num_experts"`, `"num_local_experts"`}},
		{moe, []string{`"rope_scaling": null,`, ``}},
	} {
		want := lower(t, instantiate(t, readConfig(t, c.src)), instantiate(t, readConfig(t, c.src)).SyntheticCatalog(tensor.BF16), false)
		in := instantiate(t, readConfig(t, replaceJSON(t, c.src, c.edit...)))
		if got := lower(t, in, in.SyntheticCatalog(tensor.BF16), false); got.Digest() != want.Digest() {
			t.Errorf("%v gives another plan", c.edit)
		}
	}
}

// TestLayerKindsFollowTheConfig compares listed kinds with the period.
func TestLayerKindsFollowTheConfig(t *testing.T) {
	src := fixture.Files(t, fixture.Configs)["Qwen--Qwen3.5-35B-A3B_config.json"]
	listed := instantiate(t, readConfig(t, src)).Kinds
	start := strings.Index(string(src), `"layer_types"`)
	end := start + strings.Index(string(src[start:]), "]") + 2 // and its comma
	period := instantiate(t, readConfig(t, slices.Concat(src[:start], src[end:]))).Kinds
	if !slices.Equal(listed, period) || len(period) != 40 || period[3] != "full_attention" || period[4] != "linear_attention" {
		t.Errorf("listed %v\nperiod %v", listed, period)
	}
}
