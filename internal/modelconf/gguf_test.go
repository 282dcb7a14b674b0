// SPDX-License-Identifier: MIT OR Apache-2.0

package modelconf

import (
	"maps"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/tensor"
)

// metadata is that of a small model, with changes: a nil value deletes a key.
func metadata(arch string, changes map[string]any) *Metadata {
	v := map[string]any{"general.architecture": arch}
	for key, x := range map[string]any{"block_count": uint32(4), "context_length": uint32(512), "embedding_length": uint32(64),
		"feed_forward_length": uint32(96), "attention.head_count": uint32(4), "attention.head_count_kv": uint32(2),
		"attention.layer_norm_rms_epsilon": float32(1e-5), "rope.freq_base": float32(10000)} {
		v[arch+"."+key] = x
	}
	maps.Copy(v, changes)
	for key, x := range changes {
		if x == nil {
			delete(v, key)
		}
	}
	return &Metadata{File: "m.gguf", Values: v, Tensors: map[string]tensor.Shape{"token_embd.weight": {40, 64}}}
}

func TestFromGGUFRefuses(t *testing.T) {
	hybrid := map[string]any{"qwen35.ssm.conv_kernel": uint32(4), "qwen35.ssm.state_size": uint32(16), "qwen35.ssm.group_count": uint32(2),
		"qwen35.ssm.time_step_rank": uint32(4), "qwen35.ssm.inner_size": uint32(30)}
	for name, c := range map[string]struct {
		arch    string
		changes map[string]any
		code    diag.Code
		want    string
	}{
		"architecture":      {"gpt2", nil, diag.Unsupported, `m.gguf: general.architecture "gpt2" is not supported (llama, mistral3,`},
		"unknown key":       {"llama", map[string]any{"llama.logit_scale": float32(2)}, diag.Unsupported, "m.gguf: llama.logit_scale: the key llama.logit_scale is not known"},
		"missing key":       {"llama", map[string]any{"llama.block_count": nil}, diag.Format, "llama.block_count is missing or 0"},
		"no epsilon":        {"llama", map[string]any{"llama.attention.layer_norm_rms_epsilon": nil}, diag.Format, "layer_norm_rms_epsilon is missing"},
		"wrong type":        {"llama", map[string]any{"llama.block_count": "four"}, diag.Format, "llama.block_count is four; it must be an integer"},
		"epsilon a string":  {"llama", map[string]any{"llama.attention.layer_norm_rms_epsilon": "x"}, diag.Format, "it must be a number"},
		"causal a number":   {"llama", map[string]any{"llama.attention.causal": uint8(0)}, diag.Format, "llama.attention.causal is 0; it must be true or false"},
		"scaling a number":  {"llama", map[string]any{"llama.rope.scaling.type": uint32(2)}, diag.Format, "llama.rope.scaling.type is 2; it must be a string"},
		"sections one":      {"llama", map[string]any{"llama.rope.dimension_sections": uint32(2)}, diag.Format, "llama.rope.dimension_sections is 2; it must be a list of integers"},
		"norm a number":     {"qwen3moe", map[string]any{"qwen3moe.expert_count": uint32(8), "qwen3moe.expert_used_count": uint32(2), "qwen3moe.expert_feed_forward_length": uint32(32), "qwen3moe.expert_weights_norm": int32(0)}, diag.Format, "expert_weights_norm is 0; it must be true or false"},
		"layers differ":     {"llama", map[string]any{"llama.attention.head_count_kv": []int32{2, 4}}, diag.Unsupported, "llama.attention.head_count_kv differs between layers"},
		"a negative list":   {"llama", map[string]any{"llama.attention.head_count_kv": []int32{-2, -2}}, diag.Format, "llama.attention.head_count_kv is [-2 -2]; it must be an integer of at least 0"},
		"an empty list":     {"llama", map[string]any{"llama.attention.head_count_kv": []int32{}}, diag.Format, "llama.attention.head_count_kv is []; it must be an integer"},
		"window of a list":  {"llama", map[string]any{"llama.attention.sliding_window": uint32(128), "llama.context_length": []uint32{512, 512}}, diag.Unsupported, "a sliding window (128) is not supported"},
		"vocabulary":        {"llama", map[string]any{"llama.vocab_size": uint32(41)}, diag.Format, "llama.vocab_size 41 contradicts the 40 rows"},
		"tokens":            {"llama", map[string]any{"tokenizer.ggml.tokens": make([]string, 41)}, diag.Format, "41 tokens do not fit the 40 rows"},
		"embedding":         {"llama", map[string]any{"llama.embedding_length": uint32(32)}, diag.Format, "token_embd.weight has the shape [40 64]; [vocabulary, 32] is expected"},
		"mixture":           {"llama", map[string]any{"llama.expert_count": uint32(8)}, diag.Unsupported, "llama.expert_count 8 is not supported"},
		"window":            {"llama", map[string]any{"llama.attention.sliding_window": uint32(128)}, diag.Unsupported, "a sliding window (128) is not supported"},
		"value width":       {"llama", map[string]any{"llama.attention.key_length": uint32(16), "llama.attention.value_length": uint32(8)}, diag.Unsupported, "value_length 8 is not supported (16 is)"},
		"not causal":        {"qwen3", map[string]any{"qwen3.attention.causal": false}, diag.Unsupported, "attention that is not causal"},
		"partial rotation":  {"llama", map[string]any{"llama.rope.dimension_count": uint32(8)}, diag.Unsupported, "partial rotation (8 of 16)"},
		"rotation too wide": {"llama", map[string]any{"llama.rope.dimension_count": uint32(32)}, diag.Format, "32 rotary dimensions do not fit a head of 16"},
		"scaling":           {"llama", map[string]any{"llama.rope.scaling.type": "longrope"}, diag.Unsupported, `the rope scaling "longrope" is not supported`},
		"yarn alone":        {"llama", map[string]any{"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": float32(4)}, diag.Format, "original_context_length is missing"},
		"factor alone":      {"llama", map[string]any{"llama.rope.scaling.factor": float32(4)}, diag.Unsupported, "a factor of 4 without a scaling type"},
		"no blocks":         {"qwen35", map[string]any{"qwen35.nextn_predict_layers": uint32(4)}, diag.Format, "4 blocks, of which 4 predict further tokens"},
		"inner size":        {"qwen35", hybrid, diag.Format, "inner_size 30 is no multiple of time_step_rank 4"},
		"gating":            {"qwen3moe", map[string]any{"qwen3moe.expert_count": uint32(8), "qwen3moe.expert_used_count": uint32(2), "qwen3moe.expert_feed_forward_length": uint32(32), "qwen3moe.expert_gating_func": uint32(2)}, diag.Unsupported, "expert_gating_func 2 is not supported"},
	} {
		_, err := FromGGUF(metadata(c.arch, c.changes))
		if !diag.Is(err, c.code) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v (%s), want %s", name, err, diag.CodeOf(err), c.want)
		}
	}
}

// listed is the metadata with each integer of its architecture as a list of equal ones, of the type that list makes.
func listed(m *Metadata, list func(v int64) any) *Metadata {
	out := *m
	out.Values = maps.Clone(m.Values)
	for key := range m.Values {
		if v, ok := m.Int(key); ok && strings.HasPrefix(key, m.Arch()+".") {
			out.Values[key] = list(v)
		}
	}
	return &out
}

// TestAListOfEqualIntegersIsOne: every key that is an integer may be a list of it, of any width.
func TestAListOfEqualIntegersIsOne(t *testing.T) {
	yarn := map[string]any{"mistral3.rope.scaling.type": "yarn", "mistral3.rope.scaling.factor": float32(4), "mistral3.rope.scaling.original_context_length": uint32(64),
		"mistral3.attention.temperature_scale": float32(0.1), "mistral3.attention.temperature_length": uint32(64)}
	experts := map[string]any{"qwen3moe.expert_count": uint32(8), "qwen3moe.expert_used_count": uint32(2), "qwen3moe.expert_feed_forward_length": uint32(32)}
	hybrid := map[string]any{"qwen35.ssm.conv_kernel": uint32(4), "qwen35.ssm.state_size": uint32(16), "qwen35.ssm.group_count": uint32(2),
		"qwen35.ssm.time_step_rank": uint32(4), "qwen35.ssm.inner_size": uint32(32), "qwen35.nextn_predict_layers": uint32(1), "qwen35.full_attention_interval": uint32(2)}
	for arch, changes := range map[string]map[string]any{"llama": {"llama.attention.sliding_window": uint32(512)}, "mistral3": yarn, "qwen3moe": experts, "qwen35": hybrid} {
		m := metadata(arch, changes)
		want, err := FromGGUF(m)
		if err != nil {
			t.Fatal(err)
		}
		for name, list := range map[string]func(v int64) any{
			"u16": func(v int64) any { return []uint16{uint16(v), uint16(v)} }, "i16": func(v int64) any { return []int16{int16(v)} },
			"u32": func(v int64) any { return []uint32{uint32(v), uint32(v)} }, "i32": func(v int64) any { return []int32{int32(v), int32(v)} },
			"u64": func(v int64) any { return []uint64{uint64(v)} }, "i64": func(v int64) any { return []int64{v, v, v} },
		} {
			if got, err := FromGGUF(listed(m, list)); err != nil || !reflect.DeepEqual(got.Tree, want.Tree) {
				t.Errorf("%s in lists of %s: %v", arch, name, err)
			}
		}
	}
	m := &Metadata{Values: map[string]any{"u8": []uint8{7}, "i8": []int8{-7, -7}, "mixed": []int32{1, 2}, "none": []int32{}, "text": []string{"1"}}}
	for key, want := range map[string]int64{"u8": 7, "i8": -7, "mixed": 0, "none": 0, "text": 0, "absent": 0} {
		if v, ok := m.Uniform(key); v != want || ok != (want != 0) {
			t.Errorf("%s is %d, %v", key, v, ok)
		}
	}
}

// llama3Factors are the wavelength factors that a converter writes.
func llama3Factors(theta, factor, low, high float64, n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		wave := 2 * math.Pi * math.Pow(theta, float64(i)/float64(n))
		f := 1.0
		if wave > 8192/low {
			f = factor
		} else if wave > 8192/high {
			smooth := (8192/wave - low) / (high - low)
			f = 1 / ((1-smooth)/factor + smooth)
		}
		out[i] = float32(f)
	}
	return out
}

func TestLlama3ScalingIsFoundFromItsFactors(t *testing.T) {
	for _, factor := range []float64{8, 32} {
		m := metadata("llama", map[string]any{"llama.rope.freq_base": float32(500000)})
		m.RopeFreqs = llama3Factors(500000, factor, 1, 4, 64)
		c, err := FromGGUF(m)
		if err != nil {
			t.Fatal(err)
		}
		f, _ := c.Tree.Get("rope_parameters.factor")
		if v, _ := f.Float(); v != factor {
			t.Errorf("factor %v found as %v", factor, v)
		}
	}
	m := metadata("llama", map[string]any{"llama.rope.freq_base": float32(500000)})
	m.RopeFreqs = llama3Factors(500000, 8, 1, 2, 64)
	if _, err := FromGGUF(m); !diag.Is(err, diag.Unsupported) || !strings.Contains(err.Error(), "are not those of Llama 3") {
		t.Errorf("other bands: %v", err)
	}
}

func TestFromGGUFDefaultsAndLinearScaling(t *testing.T) {
	c, err := FromGGUF(metadata("llama", map[string]any{"llama.rope.freq_base": nil, "llama.attention.head_count_kv": nil,
		"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": float32(2), "llama.rope.scaling.finetuned": true,
		"general.sampling.temp": float32(0.7), "general.sampling.top_k": int32(20)}))
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"rope_parameters.rope_theta": "10000", "num_key_value_heads": "4", "head_dim": "16",
		"rope_parameters.rope_type": "linear", "rope_parameters.factor": "2", "tie_word_embeddings": "true", "vocab_size": "40"} {
		if n, _ := c.Tree.Get(path); n.Literal() != want {
			t.Errorf("%s is %s, want %s", path, n.Literal(), want)
		}
	}
	if *c.Generation.Temperature != 0.7 || *c.Generation.TopK != 20 || c.Quant != nil {
		t.Errorf("%+v", c)
	}
}
