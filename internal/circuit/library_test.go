// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/fixture"
	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/kernels"
)

// tree is the kernel tree as a map that can be edited.
func tree(t testing.TB) fstest.MapFS {
	t.Helper()
	out := fstest.MapFS{}
	err := fs.WalkDir(kernels.FS, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		src, err := fs.ReadFile(kernels.FS, name)
		out[name] = &fstest.MapFile{Data: src}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// atLine replaces @ by the line of the edited text, @+2 by the second after it.
func atLine(want, src, old string) string {
	line := 1 + strings.Count(src[:strings.Index(src, old)], "\n")
	return regexp.MustCompile(`@([+-]\d+)?`).ReplaceAllStringFunc(want, func(at string) string {
		more, _ := strconv.Atoi(strings.TrimPrefix(at[1:], "+"))
		return strconv.Itoa(line + more)
	})
}

// TestFaultsInTheTreeAreNamed edits one file of the tree at a time.
func TestFaultsInTheTreeAreNamed(t *testing.T) {
	const (
		block   = "circuits/blocks/mlp.toml"
		llama   = "circuits/llama.toml"
		config  = "circuits/llama.config.toml"
		fusions = "cpu/common/FUSIONS.toml"
		refused = "circuits/REFUSED.toml"
	)
	for _, c := range []struct{ file, old, new, want string }{
		{block, `op = "glu"`, `op = "blend"`, `circuits/blocks/mlp.toml:@:1: node act: "blend" is no op`},
		{block, `in = ["gate", "up"]`, `in = ["gate"]`, `circuits/blocks/mlp.toml:@:1: node act: glu(g[R,n] u[R,n]) -> y[R,n] takes 2 edges, not 1`},
		{block, `in = ["gate", "up"]`, `in = ["gate", "upp"]`, `circuits/blocks/mlp.toml:@:1: node act: edge upp is bound by no earlier node`},
		{block, `attrs = { act = "$act", limit`, `attrs = { akt = "$act", limit`, `circuits/blocks/mlp.toml:@:11: node act: glu(g[R,n] u[R,n]) -> y[R,n] has no attribute akt`},
		{block, `id = "act"`, `id = "act"` + "\nwidth = 3", `circuits/blocks/mlp.toml:@+1:1: unknown key node.width`},
		{block, `weights.bias = { axes = ["inter"]`, `weights.b = { axes = ["inter"]`, `circuits/blocks/mlp.toml:@:1: node gate: linear(x[R,K]; w[N,K] bias?[N] scale?[N]) -> y[R,N] has no weight b`},
		{block, `from = [["{L}.{mlp}.gate_proj.weight"]]`, `from = []`, `circuits/blocks/mlp.toml:@:1: node gate: weight w needs axes and from`},
		{"circuits/blocks/attention.toml", `k_pool = "k"`, `k_pool = "kk"`, `circuits/blocks/attention.toml:@:12: node append: the block declares no state kk`},
		{"circuits/blocks/attention.toml", `dtype = "kv"`, `dtype = "kw"`, `circuits/blocks/attention.toml:@-3:2: state k: "kw" is no element type and not kv`},
		{llama, `use = "mlp"`, `use = "mlq"`, `circuits/llama.toml:@-1:3: there is no block "mlq"`},
		{llama, `path = "{P}layers.{i}"`, ``, `circuits/llama.toml:@-1:2: layers need path, count and at least one kind`},
		{config, `circuit = "llama"`, `circuit = "lama"`, `circuits/llama.config.toml:@:1: there is no circuit "lama"`},
		{config, `"decoder"]`, `"decode"]`, `circuits/llama.config.toml:@:22: there is no key set "decode"`},
		{config, `{ dim = "inter" }`, `{ dim = "inter", switch = "x" }`, `circuits/llama.config.toml:@:1: key intermediate_size has 2 classes; exactly one of dim, switch, param, variant, kinds, layers, per_layer, rope, accept, ignore, quant is given`},
		{config, `{ dim = "inter" }`, `{ dim = "inter", must = true }`, `circuits/llama.config.toml:@:1: key intermediate_size must be there; that is said of accept, kinds, layers and rope, others go without a default`},
		{"circuits/qwen3.config.toml", `[variant.qwen3]`, `[variant.llama]`, `circuits/qwen3.config.toml:@:2: model_type llama is mapped twice`},
		{refused, `op = "index_blocks"`, `op = "index"`, `circuits/REFUSED.toml:@-1:3: op index is there`},
		{refused, `dim = "out_gate"`, `dim = "mla_bias"`, `circuits/REFUSED.toml:@-2:3: block mla with mla_bias is there`},
		{refused, `op = "glu"`, `op = "glue"`, `circuits/REFUSED.toml:@-1:3: there is no op glue that could lack act`},
		{refused, `part = "encoder"`, `part = "vision"`, `circuits/REFUSED.toml:@-1:3: part vision is there`},
		{refused, `key = "block_configs"`, `key = "block_configs"` + "\nop = \"x\"", `circuits/REFUSED.toml:@-1:3: one of op (with attr, and word of it), block (with dim), part and key is missing, and why`},
		{refused, `"kimi_k3"`, `"kimi_k2"`, `circuits/REFUSED.toml:@:1: model_type kimi_k2 is mapped`},
		{refused, `"kimi_k3"`, `"llama4"`, `circuits/REFUSED.toml:@:1: model_type llama4 is refused twice`},
		{fusions, `match = ["y = rope(x, angles)"]`, `match = ["y = rope(x)"]`, `"y = rope(x)": the op is rope(`},
		{fusions, `kernel = "linear_add"`, `kernel = "linear_sub"`, `rule linear_add: class cpu has no kernel "linear_sub"`},
		{fusions, `match = ["d = linear(x)", "z = add(y, d)"]`, `match = ["d = linear(h)", "z = add(y, d)"]`, `rule linear_add: argument x of kernel linear_add (in buffer) has no variable`},
		{fusions, `microtest = "TestRowKernels"`, ``, `rule add_rms_norm: bit_identical needs the microtest that shows it`},
		{fusions, `bind = { z = "x" }`, ``, `rule add_rms_norm: argument x of kernel add_rms_norm (inout buffer) has no variable`},
		{fusions, `settings = { fuse = "on" }`, `settings = { fuze = "on" }`, `cpu/common/FUSIONS.toml:@:14: rule linear_glu: there is no setting fuze; there are compute, fuse`},
		{fusions, `settings = { fuse = "on" }`, `settings = { fuse = "On" }`, `cpu/common/FUSIONS.toml:@:14: rule linear_glu: setting fuse is never "On"; it is on or off`},
		{fusions, `settings = { fuse = "on" }`, `settings = { compute = "fast" }`, `cpu/common/FUSIONS.toml:@:14: rule linear_glu: setting compute is never "fast"; it is float32 or declared`},
		{fusions, `name = "linear_add"`, "name = \"linear_add\"\nrows = { min = 8, max = 2 }", `cpu/common/FUSIONS.toml:@+1:1: rule linear_add: no plan has rows from 8 to 2`},
		{fusions, `name = "linear_add"`, "name = \"linear_add\"\nrows = { min = -1 }", `cpu/common/FUSIONS.toml:@+1:1: rule linear_add: no plan has rows from -1 to 0`},
		{fusions, `bind = { z = "y" }`, `bind = { z = "y", zz = "x" }`, `cpu/common/FUSIONS.toml:@:19: rule linear_add: no line gives zz`},
		{fusions, `bind = { z = "y" }`, `bind = { z = "y", d = "x" }`, `cpu/common/FUSIONS.toml:@:19: rule linear_add: x is no argument that kernel linear_add writes`},
		{fusions, `bind = { z = "y" }`, `bind = { z = "y", d = "out" }`, `cpu/common/FUSIONS.toml:@:19: rule linear_add: out is no argument that kernel linear_add writes`},
		{fusions, `bind = { z = "y" }`, `bind = { z = "y", d = "y" }`, `cpu/common/FUSIONS.toml:@:10: rule linear_add: argument y is bound to d already`},
		{fusions, `max = 4, count = "n" }`, `max = 4, count = "m" }`, `cpu/common/FUSIONS.toml:@:30: rule linear_n: kernel linear_n has no integer attribute m`},
		{fusions, "name = \"conv\"\nkernel = \"conv\"\nnumerics = \"reference\"", "name = \"conv\"\nkernel = \"conv\"\nnumerics = \"reference\"\nsettings = { fuse = \"on\" }", `class cpu has no reference rule for op conv`},
	} {
		files := tree(t)
		src := string(files[c.file].Data)
		if !strings.Contains(src, c.old) {
			t.Fatalf("%s has no %q", c.file, c.old)
		}
		files[c.file] = &fstest.MapFile{Data: []byte(strings.Replace(src, c.old, c.new, 1))}
		_, err := LoadLibrary(files)
		c.want = atLine(c.want, src, c.old)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %q:\n got %v\nwant %s", c.file, c.new, err, c.want)
			continue
		}
		if e, ok := diag.As(err); ok && e.Pos.Line == 0 && !strings.Contains(c.want, "no reference rule") {
			t.Errorf("%s with %q: no line", c.file, c.new)
		}
	}
}

// TestNamesThatNothingReads: a misspelt parameter of a config map is found by Check, with its line.
func TestNamesThatNothingReads(t *testing.T) {
	const config = "circuits/llama.config.toml"
	for _, c := range []struct{ old, new, want string }{
		{`{ dim = "inter" }`, `{ dim = "inter" }`, ""},
		{`dims = { window = "0" }`, `dims = { windw = "0" }`, `circuits/llama.config.toml:@:10: nothing in circuit llama reads windw`},
		{`{ switch = "mlp_bias", default = false }`, `{ switch = "mlpbias", default = false }`, `circuits/llama.config.toml:@:1: nothing in circuit llama reads mlpbias`},
		{`also = ["o_bias"]`, `also = ["o_bais"]`, `circuits/llama.config.toml:@:1: nothing in circuit llama reads o_bais`},
		{`{ dim = "inter" }`, `{ dim = "kda_heads" }`, `circuits/llama.config.toml:@:1: nothing in circuit llama reads kda_heads`},
	} {
		files := tree(t)
		src := string(files[config].Data)
		files[config] = &fstest.MapFile{Data: []byte(strings.Replace(src, c.old, c.new, 1))}
		if _, err := LoadLibrary(files); err != nil {
			t.Fatal(err)
		}
		got, want := "", atLine(c.want, src, c.old)
		if err := Check(files); err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, want) || (want == "") != (got == "") {
			t.Errorf("%s:\n got %q\nwant %q", c.new, got, want)
		}
	}
}

// TestFaultsThatAConfigShows are those that need a config to be seen; they name the block's line all the same.
func TestFaultsThatAConfigShows(t *testing.T) {
	cfg, _ := tiny(t, "llama")
	for _, c := range []struct{ file, old, new, want string }{
		{"circuits/blocks/mlp.toml", `axes = ["inter", "hidden"]`, `axes = ["intel", "hidden"]`, `circuits/blocks/mlp.toml:@:1: node L00.mlp.gate: expression "intel": unknown dim "intel"`},
		{"circuits/blocks/mlp.toml", `when = "mlp_bias"`, `when = "bias"`, `circuits/blocks/mlp.toml:@:1: node L00.mlp.gate: when: expression "bias": unknown dim "bias"`},
		{"circuits/blocks/mlp.toml", `act = "$act"`, `act = "$activation"`, `circuits/blocks/mlp.toml:@:1: node L00.mlp.act: attribute act: the config gives no activation`},
		{"circuits/blocks/mlp.toml", `split = "inter"`, `split = "outer"`, `circuits/blocks/mlp.toml:@:1: node L00.mlp.gate: no axis of [inter hidden] is named by outer`},
		{"circuits/blocks/mlp.toml", `["hidden", "inter"]`, `["hidden", "hidden"]`, `no axis of [hidden hidden] is named by inter`},
		{"circuits/blocks/attention.toml", `attrs = { heads = "heads", head_dim = "head_dim", rot`, `attrs = { heads = "kv_heads", head_dim = "head_dim", rot`, `the config does not fit circuit llama: node L00.attn.q_rope: x: axis 1 is heads*head_dim=64, expected heads*head_dim=32`},
		{"circuits/llama.config.toml", `attention_bias = {`, "acme = { accept = [1], must = true, alias = [\"acme_version\"], why = \"x\" }\nattention_bias = {", `config.json:1:1: key acme is missing; model_type llama needs it`},
		{"circuits/llama.config.toml", `dims = { window = "0" }`, `dims = { window = "0+" }`, `circuits/llama.config.toml:@:10: dim window: expression "0+": ends too early`},
		{"circuits/blocks/embedding.toml", `embed_scale = "1"`, `embed_scale = "one"`, `circuits/blocks/embedding.toml:@:12: param embed_scale: "one" is no number, no param and no sqrt(dims) or rsqrt(dims)`},
	} {
		files := tree(t)
		src := string(files[c.file].Data)
		if !strings.Contains(src, c.old) {
			t.Fatalf("%s has no %q", c.file, c.old)
		}
		files[c.file] = &fstest.MapFile{Data: []byte(strings.Replace(src, c.old, c.new, 1))}
		l, err := LoadLibrary(files)
		if err != nil {
			t.Errorf("%s with %q: %v", c.file, c.new, err)
			continue
		}
		c.want = atLine(c.want, src, c.old)
		if _, err := Instantiate(l, cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %q:\n got %v\nwant %s", c.file, c.new, err, c.want)
		}
	}
}

// TestAKeyCanBeDemanded: what must be there may have any of its spellings.
func TestAKeyCanBeDemanded(t *testing.T) {
	cfg, _ := tiny(t, "llama")
	for _, c := range []struct{ old, new, want string }{
		{`rope_parameters = { rope = true }`, `rope_parameters = { rope = true, must = true }`, ""},
		{`rope_scaling = { rope = true }`, `rope_scaling = { rope = true, must = true }`, "key rope_scaling is missing; model_type llama needs it"},
		{`hidden_act = {`, "acme = { accept = [\"silu\"], alias = [\"hidden_act\"], must = true, why = \"x\" }\nact = {", ""},
		{`hidden_act = {`, "acme = { accept = [\"silu\"], must = true, why = \"x\" }\nhidden_act = {", "key acme is missing; model_type llama needs it"},
	} {
		files := tree(t)
		src := string(files["circuits/keys/decoder.toml"].Data)
		files["circuits/keys/decoder.toml"] = &fstest.MapFile{Data: []byte(strings.Replace(src, c.old, c.new, 1))}
		l, err := LoadLibrary(files)
		if err != nil {
			t.Fatal(err)
		}
		_, err = Instantiate(l, cfg)
		if got := fmt.Sprint(err); (err != nil) != (c.want != "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %v", c.new, err)
		}
	}
}

// TestSigmaIsWellFormed: every row says what it does and costs, and its cost is an expression over its own names.
func TestSigmaIsWellFormed(t *testing.T) {
	for name, op := range sigma {
		if op.Doc == "" || op.Flops == "" {
			t.Errorf("op %s has no doc or cost", name)
		}
		if len(op.out)+len(op.states) == 0 {
			t.Errorf("op %s has no effect", name)
		}
	}
	// All ops occur in some family's instance, so that their costs are evaluated by the report tests.
	used := map[string]bool{}
	for _, family := range fixture.Families(t) {
		cfg, cat := tiny(t, family)
		for _, in := range serve(t, cfg).all() {
			if !in.Stored(cat) {
				continue
			}
			p := lower(t, in, cat, true)
			costs, err := in.Costs(p, Load{Rows: 3, Seqs: 2, Outs: 1, Context: 40})
			if err != nil {
				t.Fatal(err)
			}
			for i, c := range costs {
				if c.Bytes <= 0 || c.Flops < 0 || c.WeightBytes > c.Bytes {
					t.Errorf("%s, launch %s: %+v", family, p.Launches[i].Name, c)
				}
			}
			for _, n := range in.Nodes {
				used[n.Op.Name] = true
			}
		}
	}
	for name := range sigma {
		if !used[name] {
			t.Errorf("op %s is used by no family", name)
		}
	}
}

// TestARuleHasItsNameAlone: in all files of a class.
func TestARuleHasItsNameAlone(t *testing.T) {
	files := tree(t)
	files["cpu/common/linear/FUSIONS.toml"] = &fstest.MapFile{Data: []byte("[[rule]]\nname = \"linear_add\"\n")}
	if _, err := LoadLibrary(files); err == nil || err.Error() != `cpu/common/linear/FUSIONS.toml:1:3: rule "linear_add" has no name of its own` {
		t.Error(err)
	}
}

// TestRulesHaveConditions: a rule serves the row buckets and settings that it names, and a nearer class overrides it, also from a file of a folder.
func TestRulesHaveConditions(t *testing.T) {
	const fusions = "cpu/common/FUSIONS.toml"
	files := tree(t)
	src := string(files[fusions].Data)
	files[fusions] = &fstest.MapFile{Data: []byte(strings.Replace(src, "name = \"linear_add\"\n", "name = \"linear_add\"\nrows = { min = 2, max = 8 }\n", 1))}
	files["leaf/HARDWARE.toml"] = &fstest.MapFile{Data: []byte("[hardware]\nclass = \"leaf\"\nvendor = \"any\"\ninherits = \"cpu\"\n")}
	files["leaf/common/linear/FUSIONS.toml"] = &fstest.MapFile{Data: []byte("[defaults]\nnumerics = \"differs\"\nlever = \"glu\"\nsettings = { compute = \"declared\" }\n" +
		"[[rule]]\nname = \"linear_glu\"\nkernel = \"linear_glu\"\npriority = 60\nmatch = [\"g = linear(x, w=wg, bias=-)\", \"u = linear(x, w=wu, bias=-)\", \"y = glu(g, u)\"]\n")}
	l, err := LoadLibrary(files)
	if err != nil {
		t.Fatal(err)
	}
	cfg, cat := tiny(t, "llama")
	in := instantiate(t, cfg)
	count := func(class string, rows int64, kernel string) (n int) {
		limits := small
		limits.Rows = rows
		p, err := in.Lower(l, cat, Options{Class: class, Compute: Float32, Limits: limits})
		if err != nil {
			t.Fatal(err)
		}
		for _, launch := range p.Launches {
			if launch.Kernel == kernel {
				n++
			}
		}
		return n
	}
	for _, c := range []struct {
		class  string
		rows   int64
		kernel string
		want   int
	}{{"cpu", 1, "linear_add", 0}, {"cpu", 2, "linear_add", 4}, {"cpu", 8, "linear_add", 4}, {"cpu", 16, "linear_add", 0},
		{"cpu", 16, "add_rms_norm", 3}, {"cpu", 1, "linear_glu", 2}, {"leaf", 1, "linear_glu", 0}, {"leaf", 1, "linear_n", 4}} {
		if got := count(c.class, c.rows, c.kernel); got != c.want {
			t.Errorf("class %s, %d rows: %d launches of %s, expected %d", c.class, c.rows, got, c.kernel, c.want)
		}
	}
}

func BenchmarkLoadLibrary(b *testing.B) {
	for b.Loop() {
		if _, err := LoadLibrary(kernels.FS); err != nil {
			b.Fatal(err)
		}
	}
}

// TestATargetsKernelsReplaceItsClass: launches that are lowered for a leaf have the constants of the leaf.
func TestATargetsKernelsReplaceItsClass(t *testing.T) {
	class := lib(t).Tree.Classes["cpu"]
	mine := *class.Kernels["linear"]
	mine.Launch = &kernel.Launch{Grid: []string{"7"}, Block: "64", Shared: "0"}
	target := &kernel.Target{Class: class, Kernels: maps.Clone(class.Kernels)}
	target.Kernels["linear"] = &mine
	cfg, cat := tiny(t, "llama")
	in := instantiate(t, cfg)
	grids := func(l *Library) (n int) {
		p, err := in.Lower(l, cat, Options{Class: "cpu", Compute: Float32, Limits: small, NoFusion: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range p.Launches {
			if x.Kernel == "linear" && slices.Equal(x.Grid, []string{"7", "1", "1", "64", "0"}) {
				n++
			}
		}
		return n
	}
	if own, class := grids(lib(t).For(target)), grids(lib(t)); own == 0 || class != 0 {
		t.Errorf("%d launches of the target's kernel, and %d of it without the target", own, class)
	}
}
