// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/metrale/metrale/internal/fixture"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/kernels"
)

// TestHopperDecodesInFewLaunchesALayer: five, or four where experts and their router are one, of few rows under the declared policy; everything
// else is the portable rules'.
func TestHopperDecodesInFewLaunchesALayer(t *testing.T) {
	configs := fixture.Files(t, fixture.Configs)
	own := func(p *plan.Plan) (n int) {
		for _, l := range p.Launches {
			if strings.HasSuffix(l.Kernel, "_rows") && lib(t).Tree.Classes["hopper"].Kernels[l.Kernel] != nil && lib(t).Tree.Classes["cuda"].Kernels[l.Kernel] == nil {
				n++
			}
		}
		return n
	}
	for _, m := range []struct {
		config   string
		launches int // of its layers
		hidden   int
	}{{"meta-llama--Meta-Llama-3.1-8B", 5 * 32, 4096}, {"Qwen--Qwen3-30B-A3B", 4 * 48, 2048}, {"Qwen--Qwen3.5-35B-A3B", 4 * 40, 2048}, {"Qwen--Qwen3-8B", 5 * 36, 4096}} {
		in := instantiate(t, readConfig(t, configs[m.config+"_config.json"]))
		lower := func(l *Library, rows int64, compute string, kv tensor.DType, noFusion bool) *plan.Plan {
			p, err := in.Lower(l, in.SyntheticCatalog(tensor.BF16), Options{Class: "hopper", Compute: compute, KV: kv, NoFusion: noFusion,
				Limits: plan.Limits{Rows: rows, Seqs: rows, Outs: rows, PageSize: 16, Pages: 64}})
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		for _, rows := range []int64{1, 2} {
			// Before the layers the embedding and the angles, after them the logits.
			if p := lower(lib(t), rows, Declared, tensor.BF16, false); len(p.Launches) != m.launches+3 || own(p) != m.launches+1 {
				t.Errorf("%s: %d launches, %d of them Hopper's", m.config, len(p.Launches), own(p))
			}
		}
		has := func(p *plan.Plan, kernel string) bool {
			return slices.ContainsFunc(p.Launches, func(l plan.Launch) bool { return l.Kernel == kernel })
		}
		// Large matrices of 3 and 4 rows are narrow's.
		for _, rows := range []int64{3, 4} {
			if p := lower(lib(t), rows, Declared, tensor.BF16, false); has(p, "norm_linear_outs_rows") || has(p, "linear_n_rows") || has(p, "linear_add_rows") != (m.hidden < 4096) {
				t.Errorf("%s: kernels of %d rows", m.config, rows)
			}
		}
		// Linears of more rows are narrow's, attention is not.
		if p := lower(lib(t), 8, Declared, tensor.BF16, false); has(p, "linear_add_rows") || !has(p, "attention_step_rows") {
			t.Errorf("%s: kernels of 8 rows", m.config)
		}
		if p := lower(lib(t), 2, Declared, tensor.F16, false); has(p, "attention_step_rows") || own(p) == 0 {
			t.Errorf("%s: of a float16 cache %d launches are Hopper's", m.config, own(p))
		}
		portable, _ := lib(t).Carrying("hopper", func(module string) bool {
			return !strings.HasSuffix(module, "rows") && !slices.Contains([]string{"attention/decode", "experts/layer", "linear/queue"}, module)
		})
		for i, p := range []*plan.Plan{lower(lib(t), 2, Float32, tensor.BF16, false), lower(lib(t), 2, Declared, tensor.BF16, true), lower(portable, 2, Declared, tensor.BF16, false)} {
			if own(p) != 0 {
				t.Errorf("%s, case %d: %d launches are Hopper's", m.config, i, own(p))
			}
		}
		if p := lower(lib(t), 65, Declared, tensor.BF16, false); own(p) != 0 {
			t.Errorf("%s: %d launches of 65 rows are Hopper's", m.config, own(p))
		}
	}
}

// TestHopperAttendsInTiles: many rows under the declared policy, with norms, rotation and the linear behind where rows are enough for its
// tiles; what the tiles do not fit is the portable kernel's. Delta nets go by chunks.
func TestHopperAttendsInTiles(t *testing.T) {
	configs := fixture.Files(t, fixture.Configs)
	for config, layers := range map[string]int{"meta-llama--Meta-Llama-3.1-8B": 32, "Qwen--Qwen3-30B-A3B": 48, "Qwen--Qwen3.5-35B-A3B": 10} {
		in := instantiate(t, readConfig(t, configs[config+"_config.json"]))
		for _, c := range []struct {
			limits  plan.Limits
			compute string
			kv      tensor.DType
			kernel  string
		}{
			{plan.Limits{Rows: 64, Seqs: 1, Outs: 1, PageSize: 16, Pages: 64}, Declared, tensor.BF16, "attention_turn_half_tiles"},
			{plan.Limits{Rows: 2048, Seqs: 1024, Outs: 1024, PageSize: 32, Pages: 64}, Declared, tensor.BF16, "attention_turn_linear_add_tiles"},
			{plan.Limits{Rows: 8, Seqs: 1, Outs: 1, PageSize: 8, Pages: 64}, Declared, tensor.BF16, "attention"},
			{plan.Limits{Rows: 9, Seqs: 9, Outs: 9, PageSize: 16, Pages: 64}, Declared, tensor.BF16, "attention_turn_half_tiles"},
			{plan.Limits{Rows: 2048, Seqs: 2048, Outs: 1, PageSize: 16, Pages: 64}, Declared, tensor.BF16, "attention"},
			{plan.Limits{Rows: 64, Seqs: 1, Outs: 1, PageSize: 8, Pages: 64}, Declared, tensor.BF16, "attention"},
			{plan.Limits{Rows: 64, Seqs: 1, Outs: 1, PageSize: 16, Pages: 64}, Declared, tensor.F16, "attention"},
			{plan.Limits{Rows: 64, Seqs: 1, Outs: 1, PageSize: 16, Pages: 64}, Float32, tensor.BF16, "attention"},
		} {
			p, err := in.Lower(lib(t), in.SyntheticCatalog(tensor.BF16), Options{Class: "hopper", Compute: c.compute, KV: c.kv, Limits: c.limits})
			if err != nil {
				t.Fatal(err)
			}
			count := map[string]int{}
			for _, l := range p.Launches {
				count[l.Kernel]++
			}
			if chunks := count["delta_mix_chunks"]; (chunks > 0) != (layers == 10 && c.limits.Rows >= 32 && c.compute == Declared) || chunks > 0 && chunks != 30 {
				t.Errorf("%s, %+v: %d launches of delta_mix_chunks", config, c, chunks)
			}
			if count[c.kernel] != layers {
				t.Errorf("%s, %+v: %v", config, c, count)
			}
		}
	}
}

// TestEveryFamilyLowersForHopper: a rule whose kernel wants other sizes than the model has leaves its nodes to others. Mistral 4's
// shared expert stands where others have a scale of one row.
func TestEveryFamilyLowersForHopper(t *testing.T) {
	for _, family := range fixture.Families(t) {
		in := instantiate(t, readConfig(t, fixture.Files(t, fixture.Tiny(family))["config.json"]))
		for _, rows := range []int64{1, 8, 64, 2048} {
			limits := plan.Limits{Rows: rows, Seqs: min(rows, 8), Outs: min(rows, 8), PageSize: 16, Pages: 256}
			if _, err := in.Lower(lib(t), in.SyntheticCatalog(tensor.BF16), Options{Class: "hopper", Compute: Declared, KV: tensor.BF16, Limits: limits}); err != nil {
				t.Errorf("%s, %d rows: %v", family, rows, err)
			}
		}
	}
}

// TestQuantisedWeightsStayOnHopper: whatever the number of rows, no quantised matrix of these models becomes float32.
func TestQuantisedWeightsStayOnHopper(t *testing.T) {
	configs := fixture.Files(t, fixture.Configs)
	for _, name := range []string{"Qwen--Qwen3-30B-A3B-FP8", "Qwen--Qwen3-32B-FP8", "nvidia--Llama-3.1-70B-Instruct-FP8", "nvidia--Qwen3-235B-A22B-NVFP4", "openai--gpt-oss-20b"} {
		beside := map[string][]byte{"config.json": experts.ReplaceAll(configs[name+"_config.json"], []byte(`"$1": 24`))}
		if hf, ok := configs[name+"_hf_quant_config.json"]; ok {
			beside["hf_quant_config.json"] = hf
		}
		cfg, err := modelconf.Read(beside)
		if err != nil {
			t.Fatal(name, err)
		}
		in := instantiate(t, cfg)
		store, err := separated(t, in, cfg.Quant)
		if err != nil {
			t.Fatal(name, err)
		}
		for _, rows := range []int64{1, 5, 8, 9, 16, 33, 80, 300, 2048} {
			p, err := in.Lower(lib(t), store, Options{Class: "hopper", Compute: Declared, KV: tensor.BF16,
				Limits: plan.Limits{Rows: rows, Seqs: min(rows, 8), Outs: min(rows, 8), PageSize: 16, Pages: 256}})
			if err != nil {
				t.Fatal(name, err)
			}
			for _, w := range p.Weights {
				switch w.DType {
				case tensor.E4M3, tensor.E4M3_B128, tensor.NVFP4, tensor.MXFP4:
					if w.Layout != "rows" {
						t.Errorf("%s, %d rows: %s is %v in layout %q", name, rows, w.Name, w.DType, w.Layout)
					}
				}
			}
		}
	}
}

// TestCarryingNamesWhatIsLeftOut: a kernel goes with its module, and so do its rules, none else's.
func TestCarryingNamesWhatIsLeftOut(t *testing.T) {
	l, lacking := lib(t).Carrying("hopper", func(module string) bool { return module != "experts/rows" })
	if !slices.Equal(lacking, []string{"experts_act_add_rows", "experts_act_rows", "experts_add_rows"}) || len(lib(t).Rules["hopper"])-len(l.Rules["hopper"]) != 6 {
		t.Errorf("%v; %d of %d rules are left", lacking, len(l.Rules["hopper"]), len(lib(t).Rules["hopper"]))
	}
	if _, lacking = lib(t).Carrying("hopper", func(string) bool { return true }); len(lacking) != 0 {
		t.Error(lacking)
	}
}

// TestRulesRefuseAttributesThatCannotBe: what a line says of attributes is held against op and kernel.
func TestRulesRefuseAttributesThatCannotBe(t *testing.T) {
	for _, c := range []struct{ line, rest, want string }{
		{"y = rms_norm(x, scale=half)", "attrs = { scale = 1 }", "kernel rms_norm has no attribute half"},
		{"y = rms_norm(x, colour=red)", "", "the op is rms_norm("},
		{"y = rms_norm(x, scale=half)", "", "attribute scale of kernel rms_norm is an attribute of no op"},
		{"y = rms_norm(x, group=2*m)", "attrs = { group = 4 }", "no axis, int attribute or launch name is called m"},
		{"y = rms_norm(x, group=n)", "", "attribute group of kernel rms_norm is an attribute of no op"},
		{"y = rms_norm(x)", "attrs = { depth = 3 }", "kernel rms_norm has no attribute depth of that type"},
		{"y = rms_norm(x)", `attrs = { group = "wide" }`, "kernel rms_norm has no attribute group of that type"},
	} {
		tree := fstest.MapFS{}
		if err := fs.WalkDir(kernels.FS, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.HasPrefix(name, "bin/") {
				return err
			}
			data, err := fs.ReadFile(kernels.FS, name)
			tree[name] = &fstest.MapFile{Data: data}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		tree["cpu/common/FUSIONS.toml"].Data = append(slices.Clone(tree["cpu/common/FUSIONS.toml"].Data),
			[]byte("\n[[rule]]\nname = \"odd\"\nkernel = \"rms_norm\"\nnumerics = \"reference\"\npriority = 5\nmatch = [\""+c.line+"\"]\n"+c.rest+"\n")...)
		if _, err := LoadLibrary(tree); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "cpu/common/FUSIONS.toml:") {
			t.Errorf("%s %s: %v, want %q", c.line, c.rest, err, c.want)
		}
	}
}
