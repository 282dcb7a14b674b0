// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"bytes"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"testing"

	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/gpu/cudatest"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/kernels"
)

// fusedPlans are models of testdata/fused and the tokens of a first step: plans with the kernels that compute several ops at once,
// which no story of the kernels' own tests takes. Large ones are too slow for kernels that the host runs.
var fusedPlans = []struct {
	model  string
	tokens int64
	large  bool
}{
	{"llama", 8, false},
	{"llama-wide", 300, true},
	{"llama-tall", 300, true},
	{"llama-nvfp4", 8, false},
	{"qwen3-moe", 12, false},
	{"qwen3-moe", 40, false},
	{"qwen3-moe-fp8", 8, false},
	{"qwen3-moe-nvfp4", 40, false},
	{"qwen3-moe-nvfp4", 260, true},
	{"minimax-m2", 8, false}, // scores of a router that are sigmoids
	{"minimax-m2", 40, false},
	{"qwen3.5-moe", 8, false},
	{"qwen3.5-moe", 12, false},
	{"qwen3.5-moe", 20, false},
	{"qwen3.5-moe", 40, false},
	{"qwen3.5-moe-tall", 8, true},
	{"qwen3.5-moe-tall", 300, true},
	{"qwen3.5-moe-nvfp4", 8, false},
	{"qwen3.5-moe-all-nvfp4", 8, false},
	{"qwen3.5-moe-wide-nvfp4", 8, false},
	{"nemotron-h", 8, false},
	{"nemotron-h", 40, false},
	{"gpt-oss", 8, false},
	{"gpt-oss", 40, false},
	{"gemma3", 8, false},
	{"gemma4-moe", 8, false},
	{"gemma4-moe", 40, false},
	{"gemma4-moe", 300, true},
	{"gpt-oss", 300, true},
	{"gpt-oss", 1700, true}, // keys of a row in parts, with sinks
}

// untried are kernels that no plan here has, and why.
var untried = map[string]string{
	"norm_linear_outs_rows_quantised": "random weights leave lm_head as it is, as checkpoints do",
}

// TestFusedPlansHaveAllKernels: what has no reference of its own, to be held against launch by launch, is in one of the plans.
func TestFusedPlansHaveAllKernels(t *testing.T) {
	var left map[string]bool
	for _, f := range fusedPlans {
		c, err := openDummy(filepath.Join("testdata", "fused", f.model, "config.json"))
		if err != nil {
			t.Fatalf("%s: %v", f.model, err)
		}
		if left == nil {
			left = map[string]bool{}
			for name, k := range c.library.Tree.Classes["hopper"].Kernels {
				if k.Reference == "" && slices.ContainsFunc(c.library.Rules["hopper"], func(r *circuit.Rule) bool { return r.Kernel == name }) {
					left[name] = true
				}
			}
		}
		for name := range c.launched(t, "hopper", f.tokens) {
			delete(left, name)
		}
		c.store.Close()
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		if untried[name] == "" {
			t.Errorf("kernel %s has no reference and is in none of the plans", name)
		}
	}
}

// launched are the kernels of the plans that a diff of so many tokens runs.
func (c *checkpoint) launched(t *testing.T, class string, tokens int64) map[string]bool {
	t.Helper()
	names, size := map[string]bool{}, c.pageSize(class)
	for _, rows := range []int64{1, 2, tokens} {
		limits := plan.Limits{Rows: rows, Seqs: min(rows, 2), Outs: min(rows, 2), PageSize: size, Pages: (tokens + size) / size}
		p, err := c.instance.Lower(c.library, c.store, circuit.Options{Class: class, Compute: circuit.Declared, KV: tensor.BF16, Limits: limits})
		if err != nil {
			t.Fatalf("%s: %v", c.instance.Circuit, err)
		}
		for i := range p.Launches {
			names[p.Launches[i].Kernel] = true
		}
	}
	return names
}

// TestFusedPlansOnTheDevice: each launch of the plans is held against the ops that it stands for.
func TestFusedPlansOnTheDevice(t *testing.T) {
	if testing.Short() {
		t.Skip("minutes where the host runs the kernels")
	}
	dev := cudatest.Open(t, kernels.FS)
	args := cudatest.Args()
	for _, f := range fusedPlans {
		t.Run(fmt.Sprintf("%s/%d", f.model, f.tokens), func(t *testing.T) {
			if f.large && cudatest.OnHost() {
				t.Skip("too slow for kernels that the host runs")
			}
			var out bytes.Buffer
			status := Main([]string{"circuit", "diff", filepath.Join("testdata", "fused", f.model), "--load-format", "dummy", "--compute", circuit.Declared, "--kv", "bf16",
				"--device", "cuda", "--cuda-library", args[1], "--cuda-modules", args[3], "--tokens", fmt.Sprint(f.tokens), "--summary"}, nil, &out, &out)
			if status != 0 {
				t.Fatalf("status %d\n%s", status, &out)
			}
			c, err := openDummy(filepath.Join("testdata", "fused", f.model, "config.json"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.store.Close()
			for name := range c.launched(t, dev.Class.Name, f.tokens) {
				if dev.Class.Kernels[name].Reference == "" { // the others have stories
					dev.Saw(t, name)
				}
			}
		})
	}
}
