// SPDX-License-Identifier: MIT OR Apache-2.0

package modelconf

import (
	"fmt"
	"os"
	"sort"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/fixture"
)

// checkpoint is a config.json with its hf_quant_config.json, if there is one.
func checkpoint(t testing.TB, name string) map[string][]byte {
	all := fixture.Files(t, fixture.Configs)
	files := map[string][]byte{"config.json": all[name+"_config.json"]}
	if hf, ok := all[name+"_hf_quant_config.json"]; ok {
		files["hf_quant_config.json"] = hf
	}
	return files
}

func leaves(n *Node) int {
	if n.Kind() != Object && n.Kind() != Array {
		return 1
	}
	sum := 0
	for _, c := range n.Items() {
		sum += leaves(c)
	}
	return sum
}

// labels are the names that the makers give to schemes.
var labels = map[string]string{
	"modelopt: e4m3[*x*]·f32, input e4m3[*x*]·f32":             "FP8",
	"modelopt: e2m1[1x16]·e4m3·f32, input e2m1[1x16]·e4m3·f32": "NVFP4",
	"modelopt: e2m1[1x16]·e4m3·f32":                            "W4A16_NVFP4",
	"modelopt: e4m3[1x32]·e8m0, input e4m3[1x32]·e8m0 dynamic": "MXFP8",
	"fp8: e4m3[128x128]·f32, input e4m3[1x128]·f32 dynamic":    "FP8_BLOCK",
	"fp8: e4m3[128x128]·e8m0, input e4m3[1x128]·e8m0 dynamic":  "FP8_BLOCK",
	"fp8: e2m1[1x32]·e8m0, input e4m3[1x128]·e8m0 dynamic":     "MXFP4",
	"mxfp4: e2m1[1x32]·e8m0":                                   "MXFP4",
	"compressed-tensors: int4[1x32]":                           "pack-quantized",
	"compressed-tensors: e2m1[1x32]·e8m0":                      "mxfp4-pack-quantized",
}

// summary is the part of a golden row that is about quantisation.
func summary(q *Quant) string {
	if q == nil {
		return "- - - - -"
	}
	kv, rest, alone, named := "-", "-", 0, map[string]int{}
	if q.KV.Format != "" {
		kv = q.KV.Format
	}
	for _, r := range q.Rules {
		label, ok := labels[r.Scheme.String()]
		switch {
		case r.Scheme.Method == "" && r.Pos.File != "":
			alone++
		case r.Scheme.Method == "": // implied
		case !ok:
			label = r.Scheme.String()
			fallthrough
		case r.Pattern != "*":
			named[label]++
		default:
			rest = label
		}
	}
	var list []string
	for l, n := range named {
		list = append(list, fmt.Sprintf("%s:%d", l, n))
	}
	sort.Strings(list)
	if len(list) == 0 {
		list = []string{"-"}
	}
	return fmt.Sprint(q.Method, " ", kv, " ", strings.Join(list, ","), " ", alone, " ", rest)
}

// TestEveryRealConfigReads: the tree has every leaf, and the typed parts say what plain reading of the JSON says
// (tools/vectors/make_configs.py).
func TestEveryRealConfigReads(t *testing.T) {
	golden, err := os.ReadFile("testdata/configs.txt")
	if err != nil {
		t.Fatal(err)
	}
	rows := strings.Split(strings.TrimSpace(string(golden)), "\n")
	if len(rows) != 113 || len(fixture.Files(t, fixture.Configs)) != 113 {
		t.Fatalf("%d rows, %d files", len(rows), len(fixture.Files(t, fixture.Configs)))
	}
	for _, row := range rows {
		file := strings.Fields(row)[0]
		tree, err := ParseJSON(file, fixture.Files(t, fixture.Configs)[file])
		if err != nil {
			t.Error(err)
			continue
		}
		got := fmt.Sprint(file, " ", leaves(tree))
		if !strings.HasSuffix(file, "hf_quant_config.json") {
			c, err := Read(checkpoint(t, strings.TrimSuffix(file, "_config.json")))
			if err != nil {
				t.Errorf("%s: %v", file, err)
				continue
			}
			hidden, ok := c.Tree.Get("hidden_size")
			if !ok {
				hidden, _ = c.Tree.Get("text_config.hidden_size")
			}
			got += fmt.Sprint(" ", c.ModelType, " ", hidden.Literal(), " ", summary(c.Quant))
		}
		if got != row {
			t.Errorf("\n got %s\nwant %s", got, row)
		}
	}
}

// TestSchemeOfModules asks real checkpoints for the scheme of single modules.
func TestSchemeOfModules(t *testing.T) {
	for _, c := range []struct{ checkpoint, module, want string }{
		{"deepseek-ai--DeepSeek-V3", "model.layers.3.mlp.experts.7.up_proj", "FP8_BLOCK"},
		{"deepseek-ai--DeepSeek-V3", "model.layers.3.mlp.gate", "none"},
		{"deepseek-ai--DeepSeek-V3", "lm_head", "none"},
		{"deepseek-ai--DeepSeek-V4-Flash", "layers.3.ffn.experts.7.w1", "MXFP4"},
		{"deepseek-ai--DeepSeek-V4-Flash", "layers.3.ffn.shared_experts.w1", "FP8_BLOCK"},
		{"nvidia--DeepSeek-V4-Flash-NVFP4", "layers.3.ffn.experts.7.w1", "NVFP4"},
		{"nvidia--DeepSeek-V4-Flash-NVFP4", "layers.3.attn.wq_a", "FP8_BLOCK"},
		{"MiniMaxAI--MiniMax-M2.7", "model.layers.0.block_sparse_moe.gate", "none"},
		{"MiniMaxAI--MiniMax-M2.7", "model.layers.0.block_sparse_moe.experts.0.w1", "FP8_BLOCK"},
		{"openai--gpt-oss-20b", "model.layers.5.mlp.experts", "MXFP4"},
		{"openai--gpt-oss-20b", "model.layers.5.self_attn.q_proj", "none"},
		{"openai--gpt-oss-20b", "model.layers.5.mlp.router", "none"},
		{"moonshotai--Kimi-K2.5", "language_model.model.layers.5.mlp.experts.3.up_proj", "pack-quantized"},
		{"moonshotai--Kimi-K2.5", "language_model.model.layers.5.self_attn.o_proj", "none"},
		{"moonshotai--Kimi-K2.5", "language_model.model.layers.0.mlp.up_proj", "none"},
		{"moonshotai--Kimi-K2.5", "language_model.lm_head", "none"},
		{"moonshotai--Kimi-K3", "model.layers.5.block_sparse_moe.experts.3.up_proj", "mxfp4-pack-quantized"},
		{"nvidia--GLM-5.1-NVFP4", "model.layers.0.mlp.up_proj", "none"},
		{"nvidia--GLM-5.1-NVFP4", "model.layers.10.self_attn.o_proj", "none"},
		{"nvidia--GLM-5.1-NVFP4", "model.layers.10.mlp.experts.0.up_proj", "NVFP4"},
		{"nvidia--GLM-5-NVFP4", "model.layers.1.self_attn.indexer.wk", "none"},
		{"nvidia--Qwen3.6-35B-A3B-NVFP4", "lm_head", "W4A16_NVFP4"},
		{"nvidia--Qwen3.6-35B-A3B-NVFP4", "model.language_model.layers.0.mlp.experts.17.down_proj", "W4A16_NVFP4"},
		{"nvidia--Qwen3.6-35B-A3B-NVFP4", "model.language_model.layers.0.linear_attn.out_proj", "FP8"},
		{"nvidia--Qwen3.6-35B-A3B-NVFP4", "model.language_model.layers.0.linear_attn.in_proj_a", "none"},
		{"nvidia--Qwen3.6-35B-A3B-NVFP4", "mtp.layers.0.mlp.experts.0.up_proj", "none"},
		{"nvidia--MiniMax-M3-NVFP4", "language_model.model.layers.0.mlp.down_proj", "MXFP8"},
		{"nvidia--Llama-3.1-70B-Instruct-FP8", "model.layers.0.self_attn.q_proj", "FP8"},
		{"Qwen--Qwen3-8B", "model.layers.0.self_attn.q_proj", "none"},
	} {
		q, err := Read(checkpoint(t, c.checkpoint))
		if err != nil {
			t.Fatal(err)
		}
		s := q.Quant.For(c.module).String()
		got, ok := labels[s]
		if !ok {
			got = s
		}
		if got != c.want {
			t.Errorf("%s: %s is %s, want %s", c.checkpoint, c.module, got, c.want)
		}
	}
}

// TestQuantisationForms reads the forms that the real files do not show.
func TestQuantisationForms(t *testing.T) {
	for _, c := range []struct{ quant, module, want string }{
		{`{"quant_method":"fp8","activation_scheme":"static"}`, "model.layers.0.mlp.up_proj", "fp8: e4m3[*x*]·f32, input e4m3[*x*]·f32"},
		{`{"quant_method":"fp8","activation_scheme":"dynamic"}`, "model.layers.0.mlp.up_proj", "fp8: e4m3[*x*]·f32, input e4m3[1x*]·f32 dynamic"},
		{`{"quant_method":"awq","bits":4,"group_size":128,"zero_point":true,"version":"gemm","modules_to_not_convert":["visual"]}`, "model.layers.0.mlp.up_proj", "awq: int4[1x128]·f16 zero-points"},
		{`{"quant_method":"awq","bits":4,"group_size":128,"modules_to_not_convert":["visual"]}`, "model.visual.blocks.0.mlp", "none"},
		{`{"quant_method":"gptq","bits":4,"group_size":-1,"desc_act":false,"sym":true,"checkpoint_format":"gptq","damp_percent":0.1}`, "model.layers.0.mlp.up_proj", "gptq: int4[1x*]·f16"},
		{`{"quant_method":"gptq","bits":8,"group_size":32,"sym":false}`, "model.layers.0.mlp.up_proj", "gptq: int8[1x32]·f16 zero-points"},
		{`{"quant_method":"compressed-tensors","format":"nvfp4-pack-quantized","ignore":["lm_head","re:.*gate$"],"config_groups":{"group_0":{"targets":["Linear"],
			"weights":{"num_bits":4,"type":"float","strategy":"tensor_group","group_size":16,"symmetric":true,"dynamic":false,"scale_dtype":"torch.float8_e4m3fn"},
			"input_activations":{"num_bits":4,"type":"float","strategy":"tensor_group","group_size":16,"dynamic":"local"}}}}`,
			"model.layers.0.mlp.up_proj", "compressed-tensors: e2m1[1x16]·e4m3·f32, input e2m1[1x16]·e4m3·f32"},
		{`{"quant_method":"compressed-tensors","format":"float-quantized","config_groups":{"group_0":{"targets":["Linear"],
			"weights":{"num_bits":8,"type":"float","strategy":"channel"},"input_activations":{"num_bits":8,"type":"float","strategy":"token","dynamic":true}}}}`,
			"model.layers.0.mlp.up_proj", "compressed-tensors: e4m3[1x*], input e4m3[1x*] dynamic"},
		{`{"quant_method":"compressed-tensors","format":"mixed-precision","config_groups":{
			"a":{"targets":["Linear"],"format":"pack-quantized","weights":{"num_bits":4,"type":"int","strategy":"group","group_size":128,"symmetric":false}},
			"b":{"targets":["re:.*down_proj"],"format":"float-quantized","weights":{"num_bits":8,"type":"float","strategy":"block","block_structure":"128x128"}}}}`,
			"model.layers.0.mlp.down_proj", "compressed-tensors: e4m3[128x128]"},
	} {
		cfg, err := Read(map[string][]byte{"config.json": []byte(`{"model_type":"x","quantization_config":` + c.quant + `}`)})
		if err != nil {
			t.Errorf("%s: %v", c.quant, err)
			continue
		}
		if got := cfg.Quant.For(c.module).String(); got != c.want {
			t.Errorf("%s: %s is %s, want %s", c.quant, c.module, got, c.want)
		}
	}
}

// TestQuantisationIsRefusedByName: unknown or contradictory keys, with file and line.
func TestQuantisationIsRefusedByName(t *testing.T) {
	group := func(weights string) string {
		return `{"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{"g":{"targets":["Linear"],"weights":` + weights + `}}}`
	}
	for _, c := range []struct{ quant, hf, want string }{
		{`{"quant_method":"bitsandbytes"}`, "", `config.json:2: the quantisation method "bitsandbytes" is not supported`},
		{`{}`, `{"quantization":{"quant_algo":"INT2"}}`, `hf_quant_config.json:1:31: quant_algo INT2 is not supported`},
		{`3`, "", "config.json:2: quantization_config is an integer; it must be an object"},
		{`{"quant_method":"fp8","wieght_block_size":[1,1]}`, "", "config.json:2: the quantisation key quantization_config.wieght_block_size is not known"},
		{`{"quant_method":"fp8","fmt":"e5m2"}`, "", "quantization_config.fmt: e5m2 is not supported (e4m3, float8_e4m3fn)"},
		{`{"quant_method":"fp8","weight_block_size":[128]}`, "", "quantization_config.weight_block_size must be two positive integers"},
		{`{"quant_method":"fp8","weight_block_size":[128,128],"activation_scheme":"static"}`, "", "static activation scales contradict weight_block_size"},
		{`{"quant_method":"fp8","modules_to_not_convert":"lm_head"}`, "", "quantization_config.modules_to_not_convert is a string; it must be a list of strings"},
		{`{"quant_method":"fp8","moe_quant_algo":"NVFP4","quant_algo":"MIXED_PRECISION","quantized_layers":{}}`, "", "MIXED_PRECISION without quantized_layers says nothing"},
		{`{"quant_method":"awq","bits":3}`, "", "quantization_config.bits: 3 is not supported (4)"},
		{`{"quant_method":"awq","version":"gemv"}`, "", "quantization_config.version: gemv is not supported"},
		{`{"quant_method":"gptq","bits":2}`, "", "quantization_config.bits: 2 is not supported"},
		{`{"quant_method":"gptq","desc_act":true}`, "", "quantization_config.desc_act is set, which is not supported"},
		{`{"quant_method":"gptq","group_size":0}`, "", "group_size is 0"},
		{`{"quant_method":"modelopt","quant_algo":"NVFP4","group_size":32}`, "", "group_size 32 contradicts NVFP4"},
		{`{"quant_method":"modelopt"}`, "", "quant_algo null is not supported"},
		{`{"quant_method":"modelopt","quant_algo":"FP8","kv_cache_scheme":"FP4"}`, "", "quantization_config.kv_cache_scheme: FP4 is not supported"},
		{`{"quant_method":"modelopt","quant_algo":"MIXED_PRECISION","ignore":["a*"],"quantized_layers":{"ab":{"quant_algo":"FP8"}}}`, "", "a* excludes ab, which quantized_layers quantises"},
		{`{"quant_method":"modelopt","quant_algo":"MIXED_PRECISION","quantized_layers":{"ab":{"quant_algo":"FP8","bits":8}}}`, "", "quantization_config.quantized_layers.ab.bits is not known"},
		{`{"quant_method":"modelopt","quant_algo":"FP8","config_groups":{"g":{"targets":["Linear"],"weights":{"num_bits":4,"type":"float","group_size":16}}}}`, "",
			"quantization_config.config_groups.g (weights float 4 16, input none) contradicts the algorithm of every layer"},
		{`{"quant_method":"modelopt","quant_algo":"FP8","ignore":["a"]}`, `{"quantization":{"quant_algo":"FP8","exclude_modules":["b"]}}`, "contradict each other about b"},
		{`{"quant_method":"modelopt","quant_algo":"FP8"}`, `{"quantization":{"quant_algo":"NVFP4"}}`, "contradict each other about *"},
		{`{"quant_method":"modelopt","quant_algo":"FP8","kv_cache_scheme":"FP8"}`, `{"quantization":{"quant_algo":"FP8","kv_cache_quant_algo":"NVFP4"}}`, "contradict each other about the KV cache"},
		{`{"quant_method":"modelopt","quant_algo":"FP8"}`, `{"quantization":{"quant_algo":"FP8"},"extra":1}`, "hf_quant_config.json:1:46: the quantisation key extra is not known"},
		{`{"quant_method":"modelopt","quant_algo":"FP8"}`, `{}`, "hf_quant_config.json:1:1: quantization is missing"},
		{group(`{"num_bits":3,"type":"int","strategy":"channel"}`), "", "weights of 3 bits and type \"int\" are not supported"},
		{group(`{"num_bits":4,"type":"float","strategy":"tensor_group","group_size":16}`), "", "the format pack-quantized contradicts weights of e2m1[1x16]·e4m3·f32"},
		{group(`{"num_bits":4,"type":"int","strategy":"group","group_size":32,"actorder":"group"}`), "", "weights.actorder: group is not supported"},
		{group(`{"num_bits":4,"type":"int","strategy":"group","group_size":32,"dynamic":"local"}`), "", "weights.dynamic is local"},
		{strings.Replace(group(`{"num_bits":4,"type":"float","strategy":"tensor_group","group_size":-1}`), "pack", "nvfp4-pack", 1), "", "weights: the strategy tensor_group needs a group_size of at least 1"},
		{group(`null`), "", "quantization_config.config_groups.g quantises no weights"},
		{`{"quant_method":"compressed-tensors","format":"pack-quantized","quantization_status":"initialized"}`, "", "quantization_status: initialized is not supported"},
		{`{"quant_method":"compressed-tensors","format":"pack-quantized"}`, "", "config_groups is missing or empty"},
		{`{"quant_method":"compressed-tensors","format":"pack-quantized","ignore":["re:(?!x)y"],"config_groups":{"g":{"targets":["Linear"],"weights":{"num_bits":4,"type":"int","strategy":"channel"}}}}`, "",
			`quantization_config.ignore.0: "(?!x)y" is no regular expression`},
		{`{"quant_method":"mxfp4"},"text_config":{"quantization_config":{"quant_method":"mxfp4"}}`, "", "quantisation is described twice"},
	} {
		files := map[string][]byte{"config.json": []byte("{\"model_type\":\"x\",\n\"quantization_config\":" + c.quant + "}")}
		if c.hf != "" {
			files["hf_quant_config.json"] = []byte(c.hf)
		}
		_, err := Read(files)
		e, ok := diag.As(err)
		if !ok || e.Pos.Line == 0 {
			t.Errorf("%s %s: no position: %v", c.quant, c.hf, err)
			continue
		}
		// Columns are checked only where the row gives one.
		flat := strings.Replace(err.Error(), fmt.Sprintf(":%d:%d:", e.Pos.Line, e.Pos.Col), fmt.Sprintf(":%d:", e.Pos.Line), 1)
		if !strings.Contains(err.Error(), c.want) && !strings.Contains(flat, c.want) {
			t.Errorf("%s %s:\n got %v\nwant %s", c.quant, c.hf, err, c.want)
		}
	}
}

func TestReadRefusesWhatIsNoConfig(t *testing.T) {
	for text, want := range map[string]string{
		`[]`:                                     "config.json:1:1: it is a list",
		`{}`:                                     "config.json:1:1: model_type is missing",
		`{"model_type":3}`:                       "config.json:1:15: model_type is missing or no string",
		`{"model_type":"x","architectures":3}`:   "config.json:1:35: architectures is an integer; it must be a list of strings",
		`{"model_type":"x","architectures":[3]}`: "architectures.0 is an integer; it must be a string",
		`{"model_type":"x","eos_token_id":"</s>"}`: "eos_token_id must be a token id or a list of them",
	} {
		if _, err := Read(map[string][]byte{"config.json": []byte(text)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	if _, err := Read(nil); !diag.Is(err, diag.NotFound) {
		t.Errorf("no config.json: %v", err)
	}
}

func TestGeneration(t *testing.T) {
	read := func(config, generation string) (Generation, error) {
		files := map[string][]byte{"config.json": []byte(config)}
		if generation != "" {
			files["generation_config.json"] = []byte(generation)
		}
		c, err := Read(files)
		if err != nil {
			return Generation{}, err
		}
		return c.Generation, nil
	}
	g, err := read(`{"model_type":"x","eos_token_id":7,"text_config":{"bos_token_id":4}}`,
		`{"temperature":0.6,"top_k":20,"do_sample":true,"eos_token_id":[1,2],"pad_token_id":-1,"top_p":null}`)
	if err != nil {
		t.Fatal(err)
	}
	if *g.Temperature != 0.6 || *g.TopK != 20 || !*g.DoSample || g.TopP != nil || fmt.Sprint(g.EOS) != "[1 2]" || *g.BOS != 4 || g.Pad != nil {
		t.Errorf("%+v", g)
	}
	if g, _ := read(`{"model_type":"x","text_config":{"eos_token_id":9}}`, ""); fmt.Sprint(g.EOS) != "[9]" || g.Temperature != nil {
		t.Errorf("from config.json: %+v", g)
	}
	for text, want := range map[string]string{
		`{"temperature":"hot"}`:    "generation_config.json:1:16: temperature must be a number",
		`{"top_k":1.5}`:            "top_k must be an integer",
		`[]`:                       "generation_config.json:1:1: it is a list",
		`{"eos_token_id":[1,"a"]}`: "eos_token_id must be a token id or a list of them",
	} {
		if _, err := read(`{"model_type":"x"}`, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"", "", true}, {"*", "", true}, {"*", "abc", true}, {"a*c", "abbc", true}, {"a*c", "abb", false}, {"a?c", "abc", true}, {"a?c", "ac", false},
		{"*.attn.*", "layers.0.attn.wq", true}, {"*.attn.*", "attn.wq", false}, {"mtp*", "mtp", true}, {"a*b*c", "axbxbxc", true}, {"abc", "abcd", false},
	} {
		if glob(c.pattern, c.s) != c.want {
			t.Errorf("glob(%q, %q) is %v", c.pattern, c.s, !c.want)
		}
	}
}

// TestRulesAreLookedUpAsTheyAreSaid holds Rule against its definition: the first rule that matches, tried one by one.
func TestRulesAreLookedUpAsTheyAreSaid(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.SampledFrom([]string{"a", "b", "ab", "*", "a*"})
		plain := rapid.SampledFrom([]string{"a", "b", "ab", "ba"})
		q := &Quant{}
		for i := range rapid.IntRange(0, 6).Draw(t, "rules") {
			r := Rule{Kind: rapid.SampledFrom([]Match{Under, Within, Glob}).Draw(t, "kind"), Scheme: Scheme{Method: fmt.Sprint(i)}}
			words := word
			if r.Kind == Under {
				words = plain
			}
			r.Pattern = strings.Join(rapid.SliceOfN(words, 1, 3).Draw(t, "pattern"), ".")
			q.Rules = append(q.Rules, r)
		}
		if err := q.compile(); err != nil {
			t.Fatal(err)
		}
		name := rapid.SliceOfN(plain, 1, 5).Draw(t, "module")
		module, want := strings.Join(name, "."), Rule{}
		for _, r := range q.Rules {
			matches := map[Match]bool{
				Under:  strings.HasPrefix(module+".", r.Pattern+"."),
				Within: within(strings.Split(r.Pattern, "."), name),
				Glob:   glob(r.Pattern, module),
			}
			if matches[r.Kind] {
				want = r
				break
			}
		}
		if got := q.Rule(module); got != want {
			t.Fatalf("%s of %v: %v, want %v", module, q.Rules, got, want)
		}
	})
}

func BenchmarkForOfManyRules(b *testing.B) {
	c, err := Read(checkpoint(b, "zai-org--GLM-5-FP8"))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		c.Quant.For("model.layers.77.mlp.experts.255.down_proj")
	}
}

// FuzzRead: whatever the files say, no panic, and every refusal is typed.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"moonshotai--Kimi-K2.5", "Qwen--Qwen3-32B-FP8-Static-PerTensor", "openai--gpt-oss-20b", "nvidia--DeepSeek-V4-Flash-NVFP4"} {
		c := checkpoint(f, name)
		f.Add(c["config.json"], c["hf_quant_config.json"], []byte(`{"eos_token_id":[1,2]}`))
	}
	f.Add([]byte(`{"model_type":"x","quantization_config":{"quant_method":"gptq","bits":4}}`), []byte(nil), []byte(nil))
	f.Fuzz(func(t *testing.T, config, hf, generation []byte) {
		files := map[string][]byte{"config.json": config}
		if len(hf) > 0 {
			files["hf_quant_config.json"] = hf
		}
		if len(generation) > 0 {
			files["generation_config.json"] = generation
		}
		c, err := Read(files)
		if err != nil {
			if _, ok := diag.As(err); !ok {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		_ = c.Quant.For("model.layers.0.mlp.experts.0.up_proj").String()
	})
}
