// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/fixture"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/tensor"
)

// edited is a copy of a catalog with tensors removed, added or reshaped.
func edited(c *Synthetic, remove []string, set map[string]tensor.Shape) *Synthetic {
	out := &Synthetic{dtypes: maps.Clone(c.dtypes), shapes: maps.Clone(c.shapes)}
	for _, n := range remove {
		delete(out.shapes, n)
	}
	for n, s := range set {
		out.shapes[n] = s
		if _, ok := out.dtypes[n]; !ok {
			out.dtypes[n] = tensor.BF16
		}
	}
	out.names = slices.Sorted(maps.Keys(out.shapes))
	return out
}

func TestReferenceCheckpointsFit(t *testing.T) {
	for _, family := range fixture.Families(t) {
		cfg, cat := tiny(t, family)
		in := serve(t, cfg)
		var read []string
		for _, part := range in.all() {
			if part.Stored(cat) {
				read = append(read, sources(lower(t, part, cat, false))...)
			}
		}
		slices.Sort(read)
		pre := preflight{in: in, prefix: in.prefix(cat)}
		if want := slices.DeleteFunc(slices.Clone(cat.Names()), pre.ignored); !slices.Equal(slices.Compact(read), want) {
			t.Errorf("%s reads %d tensors, the checkpoint has %d", family, len(read), len(want))
		}
	}
}

// TestPreflightListsEverything: all that is wrong with a checkpoint's tensors comes in one error.
func TestPreflightListsEverything(t *testing.T) {
	cfg, cat := tiny(t, "qwen3_moe")
	bad := edited(cat,
		[]string{"model.norm.weight", "model.layers.1.mlp.experts.5.up_proj.weight"},
		map[string]tensor.Shape{
			"model.layers.0.self_attn.q_proj.weight":           {128, 32},
			"model.layers.0.mlp.experts.3.down_proj.weight":    {32, 64},
			"model.layers.0.self_attn.q_proj.bias":             {128},
			"model.layers.0.self_attn.rotary_emb.inv_freq":     {16},
			"model.layers.1.post_attention_layernorm.weight_2": {64},
		})
	bad.dtypes["model.layers.1.mlp.experts.2.gate_proj.weight"] = tensor.F16
	_, err := instantiate(t, cfg).Lower(lib(t), bad, Options{Class: "cpu", Compute: Float32, Limits: small})
	want := `the checkpoint's tensors do not fit circuit qwen3_moe/qwen3_moe
missing (2):
  model.layers.1.mlp.experts.5.up_proj.weight
  model.norm.weight
mis-shaped (3):
  model.layers.0.mlp.experts.3.down_proj.weight is [32 64], expected [64 32] (expert_width, moe_inter)
  model.layers.0.self_attn.q_proj.weight is [128 32], expected [128 64] (heads*head_dim, hidden)
  model.layers.1.mlp.experts.2.gate_proj.weight is f16, but model.layers.1.mlp.experts.0.gate_proj.weight is bf16
unexpected (2):
  model.layers.0.self_attn.q_proj.bias
  model.layers.1.post_attention_layernorm.weight_2`
	if err == nil || err.Error() != want || !diag.Is(err, diag.Format) {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

// TestFormsOfOneWeight: experts as one tensor or as one each, prefixes with and without a wrapper, a tied head.
func TestFormsOfOneWeight(t *testing.T) {
	cfg, each := tiny(t, "qwen3_5_moe_text")
	in := instantiate(t, cfg)
	fused := in.SyntheticCatalog(tensor.BF16)
	if len(fused.Names()) >= len(each.Names()) {
		t.Fatal("the first form has a tensor per expert")
	}
	a, b := lower(t, in, each, false), lower(t, in, fused, false)
	for i := range a.Weights {
		if a.Weights[i].Name != b.Weights[i].Name || !a.Weights[i].Axes.Shape().Equal(b.Weights[i].Axes.Shape()) {
			t.Errorf("%v and %v", a.Weights[i], b.Weights[i])
		}
	}
	turned := map[string]tensor.Shape{} // as Qwen3-VL's published checkpoints have them
	for n, s := range fused.shapes {
		if strings.HasSuffix(n, "mlp.experts.down_proj") { // gate_up is square
			turned[n] = tensor.Shape{s[0], s[2], s[1]}
		}
	}
	for _, w := range lower(t, in, edited(fused, nil, turned), false).Weights {
		if _, ok := turned[strings.TrimSuffix(w.Sources[0], "#0^T")]; ok != strings.HasSuffix(w.Sources[0], "#0^T") {
			t.Errorf("%s is made of %s", w.Name, w.Sources[0])
		}
	}
	wrapped := &Synthetic{dtypes: map[string]tensor.DType{}, shapes: map[string]tensor.Shape{}}
	for _, n := range each.names {
		w := strings.Replace(n, "model.", "model.language_model.", 1)
		wrapped.dtypes[w], wrapped.shapes[w] = each.dtypes[n], each.shapes[n]
		wrapped.names = append(wrapped.names, w)
	}
	if p := lower(t, in, wrapped, false); !strings.HasPrefix(p.Weights[1].Sources[0], "model.language_model.layers.0.") {
		t.Errorf("sources %v", p.Weights[1].Sources)
	}
	cfg, named := tiny(t, "deepseek_v4") // as transformers writes it; published checkpoints have other names
	published := &Synthetic{dtypes: map[string]tensor.DType{}, shapes: map[string]tensor.Shape{}}
	rename := strings.NewReplacer("model.embed_tokens.", "embed.", "model.hc_head.hc_", "hc_head_", "model.", "", "attn.norm.", "attn.kv_norm.")
	for _, n := range named.names {
		p := rename.Replace(n)
		published.dtypes[p], published.shapes[p] = named.dtypes[n], named.shapes[n]
		published.names = append(published.names, p)
	}
	in = instantiate(t, cfg)
	if a, b := lower(t, in, named, false), lower(t, in, published, false); len(a.Weights) != len(b.Weights) || b.Weights[0].Sources[0] != "embed.weight" {
		t.Errorf("%d weights under one set of names, %d under the other, first %v", len(a.Weights), len(b.Weights), b.Weights[0])
	}
	cfg, cat := tiny(t, "qwen3") // tied
	p := lower(t, instantiate(t, cfg), edited(cat, nil, map[string]tensor.Shape{"lm_head.weight": {512, 64}}), false)
	for _, w := range p.Weights {
		if w.Name == "logits.w" {
			t.Error("a tied head is a weight of its own")
		}
	}
	if l := p.Launches[len(p.Launches)-1]; p.Weights[l.Args[2].Index].Sources[0] != "model.embed_tokens.weight" {
		t.Errorf("the logits read %v", p.Weights[l.Args[2].Index])
	}
}

func TestUnsupportedTypesAreNamed(t *testing.T) {
	cfg, cat := tiny(t, "llama")
	cat.dtypes["model.layers.0.self_attn.q_proj.weight"] = tensor.E5M2
	_, err := instantiate(t, cfg).Lower(lib(t), cat, Options{Class: "cpu", Compute: Float32, Limits: small})
	if err == nil || !diag.Is(err, diag.Unsupported) || !strings.Contains(err.Error(), "L00.attn.q.w of type e5m2") {
		t.Errorf("got %v", err)
	}
	for _, o := range []Options{{Class: "hopper", Compute: Float32, Limits: small}, {Class: "cpu", Compute: "fast", Limits: small}, {Class: "cpu", Compute: Float32}} {
		if p, err := instantiate(t, cfg).Lower(lib(t), cat, o); err == nil || p != nil {
			t.Errorf("%+v lowers", o)
		}
	}
}

// TestSwitchesAddNodes follows optional parts of blocks from the config into the instance.
func TestSwitchesAddNodes(t *testing.T) {
	src := fixture.Files(t, fixture.Tiny("llama"))["config.json"]
	has := func(in *Instance, weight string) bool {
		return slices.ContainsFunc(in.Weights, func(w Weight) bool { return w.Name == weight })
	}
	plain := instantiate(t, readConfig(t, src))
	biased := instantiate(t, readConfig(t, replaceJSON(t, src, `"attention_bias": false`, `"attention_bias": true`, `"mlp_bias": false`, `"mlp_bias": true`)))
	for _, w := range []string{"L00.attn.q.bias", "L00.attn.o.bias", "L01.mlp.down.bias"} {
		if has(plain, w) || !has(biased, w) {
			t.Errorf("%s: %v without the switch, %v with it", w, has(plain, w), has(biased, w))
		}
	}
	p := lower(t, biased, biased.SyntheticCatalog(tensor.BF16), false)
	if got := len(p.Launches); got != len(lower(t, plain, plain.SyntheticCatalog(tensor.BF16), false).Launches)+2 {
		t.Errorf("%d launches; biases keep act apart from gate and up, nothing else", got)
	}
	qwen2, err := modelconf.Read(map[string][]byte{"config.json": []byte(`{"model_type": "qwen2", "hidden_size": 64, "num_hidden_layers": 1,
		"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 512, "max_position_embeddings": 256}`)})
	if err != nil {
		t.Fatal(err)
	}
	in := instantiate(t, qwen2)
	if !has(in, "L00.attn.k.bias") || has(in, "L00.attn.o.bias") || in.Dim("head_dim") != 16 {
		t.Errorf("qwen2: %v", in.Dims)
	}
}

// TestPlaceFillsNames covers the placeholders of tensor names.
func TestPlaceFillsNames(t *testing.T) {
	for _, c := range []struct {
		name, prefix string
		e            int64
		want         string
	}{
		{"{P}norm.weight", "model.", 0, "model.norm.weight"},
		{"{R}lm_head.weight", "model.", 0, "lm_head.weight"},
		{"{R}lm_head.weight", "language_model.model.", 0, "language_model.lm_head.weight"},
		{"{P}e.{e}.w", "", 12, "e.12.w"},
	} {
		if got := place(c.name, c.prefix, c.e); got != c.want {
			t.Errorf("%v: %s", c, got)
		}
	}
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{{"mtp.*", "mtp.fc.weight", true}, {"mtp.*", "model.mtp.fc", false}, {"a.*.b.*.c", "a.1.b.2.c", true}, {"a.*.b", "a.b", false}, {"x", "x", true}, {"x", "xy", false}} {
		if wildcard(c.pattern, c.s) != c.want {
			t.Error(fmt.Sprint(c))
		}
	}
}
