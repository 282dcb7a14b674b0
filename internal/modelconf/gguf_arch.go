// SPDX-License-Identifier: MIT OR Apache-2.0

package modelconf

import (
	"math"

	"github.com/metrale/metrale/internal/diag"
)

// has says whether block 0 of the file has a tensor of that suffix.
func (s *synth) has(suffix string) bool { _, ok := s.m.Tensors["blk.0."+suffix]; return ok }

func (s *synth) llama() {
	s.put("attention_bias", s.has("attn_q.bias"), "blk.0.attn_q.bias")
	s.put("mlp_bias", s.has("ffn_up.bias"), "blk.0.ffn_up.bias")
	s.only("expert_count", 0) // Mixtral has the same architecture name
	s.only("expert_used_count", 0)
	s.fullWindow()
}

// fullWindow refuses a sliding window that is shorter than the context.
func (s *synth) fullWindow() {
	context, _ := s.m.Uniform(s.arch + ".context_length")
	if w, ok := s.intOr("attention.sliding_window", 0); ok && w != 0 && w < context {
		s.fail(diag.Unsupported, s.arch+".attention.sliding_window", "a sliding window (%d) is not supported for %s", w, s.arch)
	}
}

func (s *synth) mistral3() {
	s.fullWindow()
	s.only("expert_count", 0)
}

func (s *synth) qwen3() {
	s.put("attention_bias", s.has("attn_q.bias"), "blk.0.attn_q.bias")
}

func (s *synth) qwen3moe() {
	s.qwen3()
	s.experts()
	s.put("decoder_sparse_step", int64(1), "general.architecture")
	s.tree.add("mlp_only_layers", &Node{kind: Array, pos: s.at("general.architecture")})
	s.put("norm_topk_prob", true, "general.architecture")
}

// experts puts the numbers of a softmax mixture.
func (s *synth) experts() {
	s.copyInt("num_experts", "expert_count")
	s.copyInt("num_experts_per_tok", "expert_used_count")
	s.copyInt("moe_intermediate_size", "expert_feed_forward_length")
	s.only("expert_gating_func", 1) // softmax
	if scale, ok := s.float("expert_weights_scale"); ok && scale != 1 && scale != 0 {
		s.fail(diag.Unsupported, s.arch+".expert_weights_scale", "expert_weights_scale %v is not supported", scale)
	}
	if norm, ok := s.bool("expert_weights_norm"); ok && !norm {
		s.fail(diag.Unsupported, s.arch+".expert_weights_norm", "expert weights that are not renormalised are not supported")
	}
}

func (s *synth) qwen35() {
	s.put("attention_bias", false, "general.architecture")
	s.put("attn_output_gate", true, "general.architecture")
	every, ok := s.intOr("full_attention_interval", 4)
	if every < 1 {
		s.fail(diag.Format, s.arch+".full_attention_interval", "full_attention_interval is %d", every)
		every = 4
	}
	key := s.arch + ".full_attention_interval"
	if !ok {
		key = "general.architecture"
	}
	layers, _ := s.tree.Child("num_hidden_layers")
	n, _ := layers.Int()
	if n > 1<<16 {
		s.fail(diag.Format, s.arch+".block_count", "%d blocks are too many", n)
		return
	}
	types := &Node{kind: Array, pos: s.at(key)}
	for i := range n {
		t := "linear_attention"
		if (i+1)%every == 0 {
			t = "full_attention"
		}
		types.push(s.scalar(t, key))
	}
	s.tree.add("layer_types", types)
	s.put("full_attention_interval", every, key)
	s.copyInt("linear_conv_kernel_dim", "ssm.conv_kernel")
	s.copyInt("linear_key_head_dim", "ssm.state_size")
	s.copyInt("linear_num_key_heads", "ssm.group_count")
	values := s.copyInt("linear_num_value_heads", "ssm.time_step_rank")
	inner := s.need("ssm.inner_size")
	if inner%values != 0 {
		s.fail(diag.Format, s.arch+".ssm.inner_size", "inner_size %d is no multiple of time_step_rank %d", inner, values)
	}
	s.put("linear_value_head_dim", inner/values, s.arch+".ssm.inner_size")
	s.put("mamba_ssm_dtype", "float32", "general.architecture")
}

func (s *synth) qwen35moe() {
	s.qwen35()
	s.experts()
	s.copyInt("shared_expert_intermediate_size", "expert_shared_feed_forward_length")
}

// rope puts rope_parameters.
func (s *synth) rope() {
	r := newObject(s.at(s.arch + ".rope"))
	add := func(name string, v any, suffix string) { r.add(name, s.scalar(v, s.arch+"."+suffix)) }
	theta, ok := s.float("rope.freq_base")
	if !ok {
		theta = 10000
	}
	add("rope_theta", theta, "rope.freq_base")
	head, _ := s.tree.Child("head_dim")
	dim, _ := head.Int()
	rot, ok := s.intOr("rope.dimension_count", dim)
	switch {
	case rot > dim || rot < 1:
		s.fail(diag.Format, s.arch+".rope.dimension_count", "%d rotary dimensions do not fit a head of %d", rot, dim)
	case ok && rot < dim && (s.arch == "qwen35" || s.arch == "qwen35moe"):
		add("partial_rotary_factor", float64(rot)/float64(dim), "rope.dimension_count")
	case rot < dim:
		s.fail(diag.Unsupported, s.arch+".rope.dimension_count", "partial rotation (%d of %d) is not supported for %s", rot, dim, s.arch)
	}
	if sections, ok := value(s, "rope.dimension_sections", "a list of integers", s.m.Ints); ok {
		list := &Node{kind: Array, pos: s.at(s.arch + ".rope.dimension_sections")}
		for _, v := range sections[:min(3, len(sections))] {
			list.push(s.scalar(v, s.arch+".rope.dimension_sections"))
		}
		r.add("mrope_section", list)
		add("mrope_interleaved", true, "rope.dimension_sections")
	}
	s.used[s.arch+".rope.scaling.finetuned"] = true // says how the context was reached, not how to compute
	kind, _ := value(s, "rope.scaling.type", "a string", s.m.Str)
	factor, hasFactor := s.float("rope.scaling.factor")
	switch {
	case s.m.RopeFreqs != nil:
		s.llama3(add, theta)
	case kind == "" || kind == "none":
		if hasFactor && factor != 1 && factor != 0 {
			s.fail(diag.Unsupported, s.arch+".rope.scaling.factor", "a factor of %v without a scaling type is not supported", factor)
		}
		add("rope_type", "default", "rope.scaling.type")
	case kind == "linear":
		add("rope_type", "linear", "rope.scaling.type")
		add("factor", factor, "rope.scaling.factor")
	case kind == "yarn":
		s.yarn(add, factor)
	default:
		s.fail(diag.Unsupported, s.arch+".rope.scaling.type", "the rope scaling %q is not supported (none, linear and yarn are)", kind)
	}
	s.tree.add("rope_parameters", r)
}

func (s *synth) yarn(add func(string, any, string), factor float64) {
	add("rope_type", "yarn", "rope.scaling.type")
	add("factor", factor, "rope.scaling.factor")
	add("original_max_position_embeddings", s.need("rope.scaling.original_context_length"), "rope.scaling.original_context_length")
	for _, k := range [][2]string{{"beta_fast", "rope.scaling.yarn_beta_fast"}, {"beta_slow", "rope.scaling.yarn_beta_slow"}, {"attention_factor", "rope.scaling.yarn_attn_factor"}} {
		if v, ok := s.float(k[1]); ok {
			add(k[0], v, k[1])
		}
	}
	if v, ok := s.float("rope.scaling.yarn_ext_factor"); ok && v != 1 {
		s.fail(diag.Unsupported, s.arch+".rope.scaling.yarn_ext_factor", "yarn_ext_factor %v is not supported (1 is)", v)
	}
	if v, ok := s.float("rope.scaling.yarn_log_multiplier"); ok {
		// Converters write mscale_all_dim here and drop mscale, which is the same in every checkpoint seen.
		add("mscale", v, "rope.scaling.yarn_log_multiplier")
		add("mscale_all_dim", v, "rope.scaling.yarn_log_multiplier")
	}
	if v, ok := s.float("attention.temperature_scale"); ok {
		add("llama_4_scaling_beta", v, "attention.temperature_scale")
		original, _ := s.m.Uniform(s.arch + ".rope.scaling.original_context_length")
		s.only("attention.temperature_length", original)
	}
}

// llama3 finds the parameters of Llama 3's rope scaling, of which GGUF keeps only the resulting factor of each wavelength.
// Every Llama 3 has the bands 1 and 4 over 8192 positions; only the factor, which is the largest, differs. If the factors
// that follow are not those of the file, it is refused.
func (s *synth) llama3(add func(string, any, string), theta float64) {
	const key = "rope_freqs.weight"
	const low, high, original = 1.0, 4.0, 8192.0
	factor := 1.0
	for _, f := range s.m.RopeFreqs {
		factor = max(factor, float64(f))
	}
	for i, f := range s.m.RopeFreqs {
		wave := 2 * math.Pi * math.Pow(theta, float64(i)/float64(len(s.m.RopeFreqs)))
		want := 1.0
		switch {
		case wave > original/low:
			want = factor
		case wave > original/high:
			smooth := (original/wave - low) / (high - low)
			want = 1 / ((1-smooth)/factor + smooth)
		}
		if math.Abs(float64(f)-want) > 1e-3*want {
			s.fail(diag.Unsupported, key, "the rope factors of %s are not those of Llama 3: number %d is %v, not %v", key, i, f, want)
			return
		}
	}
	add("rope_type", "llama3", key)
	add("factor", factor, key)
	add("low_freq_factor", low, key)
	add("high_freq_factor", high, key)
	add("original_max_position_embeddings", int64(original), key)
}
