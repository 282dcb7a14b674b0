// SPDX-License-Identifier: MIT OR Apache-2.0

package modelconf

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/tensor"
)

// Metadata is what a GGUF file says besides its tensors' data.
type Metadata struct {
	File      string                  // for messages
	Values    map[string]any          // uint8 … int64, float32, float64, bool, string, or slices of one of them
	Tensors   map[string]tensor.Shape // by GGUF's names, row-major
	Quantized bool                    // some tensor is stored in blocks
	RopeFreqs []float32               // data of rope_freqs.weight, if it is there: factors on the rotary wavelengths
}

// Arch is general.architecture.
func (m *Metadata) Arch() string { s, _ := m.Str("general.architecture"); return s }

// Str is a string value.
func (m *Metadata) Str(key string) (string, bool) { s, ok := m.Values[key].(string); return s, ok }

// Strings is a list of strings.
func (m *Metadata) Strings(key string) ([]string, bool) {
	s, ok := m.Values[key].([]string)
	return s, ok
}

// Bool is a truth value.
func (m *Metadata) Bool(key string) (v, ok bool) { v, ok = m.Values[key].(bool); return v, ok }

// Int is the value of an integer of any width.
func (m *Metadata) Int(key string) (int64, bool) {
	switch v := m.Values[key].(type) {
	case uint8:
		return int64(v), true
	case int8:
		return int64(v), true
	case uint16:
		return int64(v), true
	case int16:
		return int64(v), true
	case uint32:
		return int64(v), true
	case int32:
		return int64(v), true
	case uint64:
		return int64(v), v <= math.MaxInt64
	case int64:
		return v, true
	}
	return 0, false
}

// Ints is a list of integers of any width.
func (m *Metadata) Ints(key string) ([]int64, bool) {
	switch v := m.Values[key].(type) {
	case []uint32:
		return widen(v), true
	case []int32:
		return widen(v), true
	case []uint64:
		return widen(v), true
	case []int64:
		return v, true
	case []uint16:
		return widen(v), true
	case []int16:
		return widen(v), true
	case []uint8:
		return widen(v), true
	case []int8:
		return widen(v), true
	}
	return nil, false
}

// Uniform is the value of an integer, or of all elements of a list of them: some converters write one for each layer.
func (m *Metadata) Uniform(key string) (int64, bool) {
	list, ok := m.Ints(key)
	if !ok {
		return m.Int(key)
	}
	if len(list) == 0 || slices.ContainsFunc(list, func(v int64) bool { return v != list[0] }) {
		return 0, false
	}
	return list[0], true
}

func widen[T uint8 | int8 | uint16 | int16 | uint32 | int32 | uint64](in []T) []int64 {
	out := make([]int64, len(in))
	for i, v := range in {
		out[i] = int64(v)
	}
	return out
}

// Float is the value of a number; a float32 gives the shortest decimal that it stands for (1e-05, not 9.99…e-06).
func (m *Metadata) Float(key string) (float64, bool) {
	switch v := m.Values[key].(type) {
	case float32:
		f, err := strconv.ParseFloat(strconv.FormatFloat(float64(v), 'g', -1, 32), 64)
		return f, err == nil
	case float64:
		return v, true
	}
	i, ok := m.Int(key)
	return float64(i), ok
}

// ggufArchs are the architectures that are translated: GGUF's name → model_type and class of Hugging Face.
var ggufArchs = map[string]struct {
	modelType, class string
	fill             func(*synth)
}{
	"llama":     {"llama", "LlamaForCausalLM", (*synth).llama},
	"mistral3":  {"ministral3", "Ministral3ForCausalLM", (*synth).mistral3},
	"qwen2":     {"qwen2", "Qwen2ForCausalLM", func(*synth) {}},
	"qwen3":     {"qwen3", "Qwen3ForCausalLM", (*synth).qwen3},
	"qwen3moe":  {"qwen3_moe", "Qwen3MoeForCausalLM", (*synth).qwen3moe},
	"qwen35":    {"qwen3_5_text", "Qwen3_5ForCausalLM", (*synth).qwen35},
	"qwen35moe": {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", (*synth).qwen35moe},
}

// GGUFArchitectures are the supported values of general.architecture, sorted.
func GGUFArchitectures() []string {
	var out []string
	for a := range ggufArchs {
		out = append(out, a)
	}
	sort.Strings(out)
	return out
}

// FromGGUF translates GGUF metadata into the config.json of the same model. Positions of the tree's nodes name the GGUF key
// instead of a line. An unknown architecture (Unsupported) or key of the architecture (Format) is refused by name.
func FromGGUF(m *Metadata) (*Config, error) {
	arch, ok := ggufArchs[m.Arch()]
	if !ok {
		return nil, diag.Errorf(diag.Unsupported, "general.architecture %q is not supported (%s are)", m.Arch(), strings.Join(GGUFArchitectures(), ", ")).
			At(diag.Pos{File: m.File}).For("general.architecture")
	}
	s := &synth{m: m, arch: m.Arch(), tree: newObject(diag.Pos{File: m.File}), used: map[string]bool{}}
	s.put("model_type", arch.modelType, "general.architecture")
	classes := &Node{kind: Array, pos: s.at("general.architecture")}
	classes.push(s.scalar(arch.class, "general.architecture"))
	s.tree.add("architectures", classes)
	s.common()
	arch.fill(s)
	s.rope()
	if err := s.finish(); err != nil {
		return nil, err
	}
	c := &Config{Tree: s.tree, ModelType: arch.modelType, Architectures: []string{arch.class}, Source: "gguf"}
	c.Generation.fromGGUF(m)
	if m.Quantized {
		c.Quant = &Quant{Method: "gguf"}
	}
	return c, nil
}

// fromGGUF takes token ids of the vocabulary and the recommended sampling.
func (g *Generation) fromGGUF(m *Metadata) {
	for _, key := range []string{"eos", "eot", "eom"} {
		id, ok := m.Int("tokenizer.ggml." + key + "_token_id")
		if ok && (len(g.EOS) == 0 || g.EOS[0] != id) {
			g.EOS = append(g.EOS, id)
		}
	}
	integer := func(p **int64, key string) {
		if v, ok := m.Int(key); ok {
			*p = &v
		}
	}
	float := func(p **float64, key string) {
		if v, ok := m.Float(key); ok {
			*p = &v
		}
	}
	integer(&g.BOS, "tokenizer.ggml.bos_token_id")
	integer(&g.Pad, "tokenizer.ggml.padding_token_id")
	integer(&g.TopK, "general.sampling.top_k")
	float(&g.TopP, "general.sampling.top_p")
	float(&g.MinP, "general.sampling.min_p")
	float(&g.Temperature, "general.sampling.temp")
	float(&g.RepetitionPenalty, "general.sampling.penalty_repeat")
}

// synth builds the tree and keeps count of the keys that it used, and the first error.
type synth struct {
	m    *Metadata
	arch string
	tree *Node
	used map[string]bool
	err  error
}

// at is the position of a key: the file and the key.
func (s *synth) at(key string) diag.Pos { return diag.Pos{File: s.m.File + ": " + key} }

func (s *synth) fail(code diag.Code, key, format string, args ...any) {
	if s.err == nil {
		s.err = diag.Errorf(code, format, args...).At(s.at(key)).For(key)
	}
}

// scalar makes a node of an int64, float64, bool or string.
func (s *synth) scalar(v any, key string) *Node {
	n := &Node{pos: s.at(key)}
	switch v := v.(type) {
	case int64:
		n.kind, n.text = Int, strconv.FormatInt(v, 10)
	case float64:
		n.kind, n.text = Float, strconv.FormatFloat(v, 'g', -1, 64)
	case bool:
		n.kind, n.text = Bool, strconv.FormatBool(v)
	case string:
		n.kind, n.text = String, v
	default:
		panic(fmt.Sprintf("modelconf: no node for %T", v))
	}
	return n
}

// put sets name in the tree, from key.
func (s *synth) put(name string, v any, key string) { s.tree.add(name, s.scalar(v, key)) }

// key is the architecture's key for a suffix, and marks it used.
func (s *synth) key(suffix string) string {
	k := s.arch + "." + suffix
	s.used[k] = true
	return k
}

// intOr is an integer of the architecture; a list counts if all its elements are equal. ok is false if it is absent.
func (s *synth) intOr(suffix string, def int64) (v int64, ok bool) {
	key := s.key(suffix)
	raw, there := s.m.Values[key]
	if !there {
		return def, false
	}
	v, ok = s.m.Uniform(key)
	switch list, _ := s.m.Ints(key); {
	case !ok && len(list) > 0:
		s.fail(diag.Unsupported, key, "%s differs between layers", key)
	case !ok || v < 0:
		s.fail(diag.Format, key, "%s is %v; it must be an integer of at least 0", key, raw)
	}
	return v, true
}

// need is an integer that must be there and positive.
func (s *synth) need(suffix string) int64 {
	v, ok := s.intOr(suffix, 0)
	if !ok || v == 0 {
		s.fail(diag.Format, s.arch+"."+suffix, "%s.%s is missing or 0", s.arch, suffix)
		return 1
	}
	return v
}

// value is what get gives of a key of the architecture; a value that it does not take is refused. ok is false if it is absent.
func value[T any](s *synth, suffix, kind string, get func(key string) (T, bool)) (v T, ok bool) {
	key := s.key(suffix)
	raw, there := s.m.Values[key]
	if !there {
		return v, false
	}
	if v, ok = get(key); !ok {
		s.fail(diag.Format, key, "%s is %v; it must be %s", key, raw, kind)
	}
	return v, true
}

func (s *synth) float(suffix string) (float64, bool) {
	return value(s, suffix, "a number", s.m.Float)
}

func (s *synth) bool(suffix string) (v, ok bool) {
	return value(s, suffix, "true or false", s.m.Bool)
}

// copyInt puts a needed integer under name.
func (s *synth) copyInt(name, suffix string) int64 {
	v := s.need(suffix)
	s.put(name, v, s.arch+"."+suffix)
	return v
}

// only refuses a value that this architecture is not supported with.
func (s *synth) only(suffix string, want int64) {
	if v, ok := s.intOr(suffix, want); ok && v != want {
		s.fail(diag.Unsupported, s.arch+"."+suffix, "%s.%s %d is not supported (%d is)", s.arch, suffix, v, want)
	}
}

// common puts what every architecture has.
func (s *synth) common() {
	hidden := s.copyInt("hidden_size", "embedding_length")
	layers, nextn := s.need("block_count"), int64(0)
	if n, ok := s.intOr("nextn_predict_layers", 0); ok {
		nextn = n
	}
	if layers <= nextn {
		s.fail(diag.Format, s.arch+".block_count", "%d blocks, of which %d predict further tokens, leave none", layers, nextn)
	}
	s.put("num_hidden_layers", layers-nextn, s.arch+".block_count")
	if nextn > 0 {
		s.put("mtp_num_hidden_layers", nextn, s.arch+".nextn_predict_layers")
	}
	heads := s.copyInt("num_attention_heads", "attention.head_count")
	kv, _ := s.intOr("attention.head_count_kv", heads)
	s.put("num_key_value_heads", kv, s.arch+".attention.head_count_kv")
	dim, ok := s.intOr("attention.key_length", hidden/heads)
	s.put("head_dim", dim, s.arch+".attention.key_length")
	if ok {
		s.only("attention.value_length", dim)
	}
	s.copyInt("max_position_embeddings", "context_length")
	eps, ok := s.float("attention.layer_norm_rms_epsilon")
	if !ok {
		s.fail(diag.Format, s.arch+".attention.layer_norm_rms_epsilon", "attention.layer_norm_rms_epsilon is missing")
	}
	s.put("rms_norm_eps", eps, s.arch+".attention.layer_norm_rms_epsilon")
	if ff, ok := s.intOr("feed_forward_length", 0); ok && ff > 0 {
		s.put("intermediate_size", ff, s.arch+".feed_forward_length")
	}
	s.put("hidden_act", "silu", "general.architecture")
	s.vocabulary(hidden)
	if causal, ok := s.bool("attention.causal"); ok && !causal {
		s.fail(diag.Unsupported, s.arch+".attention.causal", "attention that is not causal is not supported")
	}
}

// vocabulary puts the size of the vocabulary, which the embedding has, and whether the output shares it.
func (s *synth) vocabulary(hidden int64) {
	const key = "token_embd.weight"
	emb := s.m.Tensors[key]
	if len(emb) != 2 || emb[1] != hidden {
		s.fail(diag.Format, key, "%s has the shape %v; [vocabulary, %d] is expected", key, emb, hidden)
		return
	}
	if v, ok := s.intOr("vocab_size", emb[0]); ok && v != emb[0] {
		s.fail(diag.Format, s.arch+".vocab_size", "%s.vocab_size %d contradicts the %d rows of %s", s.arch, v, emb[0], key)
	}
	if t, ok := s.m.Strings("tokenizer.ggml.tokens"); ok && int64(len(t)) > emb[0] {
		s.fail(diag.Format, "tokenizer.ggml.tokens", "%d tokens do not fit the %d rows of %s", len(t), emb[0], key)
	}
	s.put("vocab_size", emb[0], key)
	_, own := s.m.Tensors["output.weight"]
	s.put("tie_word_embeddings", !own, "output.weight")
	for _, id := range []string{"bos", "eos"} {
		if v, ok := s.m.Int("tokenizer.ggml." + id + "_token_id"); ok {
			s.put(id+"_token_id", v, "tokenizer.ggml."+id+"_token_id")
		}
	}
}

// finish refuses keys of the architecture that nobody used.
func (s *synth) finish() error {
	var unknown []string
	for key := range s.m.Values {
		if strings.HasPrefix(key, s.arch+".") && !s.used[key] {
			unknown = append(unknown, key)
		}
	}
	sort.Strings(unknown)
	if len(unknown) > 0 {
		s.fail(diag.Unsupported, unknown[0], "the key %s is not known for this architecture", unknown[0])
	}
	return s.err
}
