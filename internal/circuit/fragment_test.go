// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/kernels"
)

// TestFragment: ops without a model become launches; what comes in and what is left goes through ports.
func TestFragment(t *testing.T) {
	lib, err := circuit.LoadLibrary(kernels.FS)
	if err != nil {
		t.Fatal(err)
	}
	f := circuit.Fragment{Name: "f", Inputs: []circuit.FragmentInput{{Name: "x", Size: 64}, {Name: "angles", Size: 16}},
		States: []circuit.FragmentState{{Name: "k", Axes: []int64{32}}, {Name: "c", Kind: plan.Slot, Axes: []int64{64, 3}}},
		Ops: []circuit.FragmentOp{
			{Op: "linear", In: []string{"x"}, Out: []string{"a"}, Weights: map[string][]int64{"w": {64, 64}}},
			{Op: "linear", In: []string{"x"}, Out: []string{"b"}, Weights: map[string][]int64{"w": {32, 64}}},
			{Op: "rope", In: []string{"b", "angles"}, Out: []string{"r"}, Attrs: map[string]any{"heads": 2, "head_dim": 16, "rot": 16, "style": "half"}},
			{Op: "append", In: []string{"r"}, States: map[string]string{"pool": "k"}},
			{Op: "conv", In: []string{"a"}, Out: []string{"y"}, Weights: map[string][]int64{"w": {64, 4}}, States: map[string]string{"state": "c"}, Attrs: map[string]any{"kernel": 4, "act": "silu"}},
		}}
	in, err := f.Instance()
	if err != nil {
		t.Fatal(err)
	}
	p, err := in.Lower(lib, in.SyntheticCatalog(tensor.BF16), circuit.Options{Class: "cpu", Compute: circuit.Float32, NoFusion: true,
		Limits: plan.Limits{Rows: 4, Seqs: 1, Outs: 1, PageSize: 16, Pages: 1}})
	if err != nil {
		t.Fatal(err)
	}
	var names, ports []string
	for i := range p.Launches {
		names = append(names, p.Launches[i].Kernel)
	}
	for _, b := range p.Buffers {
		if b.Port.Name != "" {
			ports = append(ports, b.Port.Name)
		}
	}
	slices.Sort(ports)
	slices.Sort(names)
	if got := strings.Join(names, " ") + "; " + strings.Join(ports, " "); got != "append conv linear linear rope; angles x y" {
		t.Error(got)
	}
}

// TestFragmentFaults: what fits no op is refused.
func TestFragmentFaults(t *testing.T) {
	x := []circuit.FragmentInput{{Name: "x", Size: 64}}
	for want, op := range map[string]circuit.FragmentOp{
		"there is no such op with 1 inputs and 1 outputs": {Op: "none", In: []string{"x"}, Out: []string{"y"}},
		"nothing before it writes z":                      {Op: "act", In: []string{"z"}, Out: []string{"y"}, Attrs: map[string]any{"act": "silu"}},
		"attribute act is missing":                        {Op: "act", In: []string{"x"}, Out: []string{"y"}},
		"attribute act cannot be tanh":                    {Op: "act", In: []string{"x"}, Out: []string{"y"}, Attrs: map[string]any{"act": "tanh"}},
		"attribute eps cannot be [1]":                     {Op: "rms_norm", In: []string{"x"}, Out: []string{"y"}, Attrs: map[string]any{"eps": []int{1}, "group": 64}},
		"n%(group*span) must be 0":                        {Op: "rms_norm", In: []string{"x"}, Out: []string{"y"}, Attrs: map[string]any{"eps": 1e-6, "group": 48}},
		`there is no state "k" for pool`:                  {Op: "append", In: []string{"x"}, States: map[string]string{"pool": "k"}},
		"fragments have no constants":                     {Op: "rope_angles", Out: []string{"y"}},
		`unknown dim "N"`:                                 {Op: "linear", In: []string{"x"}, Out: []string{"y"}},
	} {
		f := circuit.Fragment{Name: "f", Inputs: x, Ops: []circuit.FragmentOp{op}}
		if _, err := f.Instance(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}
