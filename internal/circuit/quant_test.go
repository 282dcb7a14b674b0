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

// separated is the store of a checkpoint that is quantised as its config says.
func separated(t testing.TB, in *Instance, q *modelconf.Quant) (weights.Store, error) {
	t.Helper()
	cat := in.QuantisedCatalog()
	var list []tensor.Info
	for _, name := range cat.Names() {
		x, _ := cat.Lookup(name)
		list = append(list, x)
	}
	s, err := weights.Dummy(weights.Separate(list, q))
	if err != nil {
		t.Fatal(err)
	}
	return weights.Quantised(s, q)
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
