// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda_test

import (
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/kernels"
)

// A ring's slot of a launch of quantised rows, as linear/rows_quantised.cu and experts/rows_quantised.cu cut it.
type ringCut struct {
	part    string // of the entry's name
	units   int64  // of 128 values
	panels  int64  // of 8 rows of weights
	streams int64  // rows of x
}

var ringCuts = []ringCut{{"_streamed_", 1, 4, 8}, {"_rows_long_", 1, 2, 0}, {"_down_", 2, 2, 0}, {"_8", 1, 2, 0}, {"_4", 2, 2, 0}} // of four bits, _4 has twice as many units

// TestRingsHaveTwoSlots: whatever rows, K and format a kernel takes, each warp's ring has two slots beside x, within what a multiprocessor
// has: with one it waits for memory, with none for ever.
func TestRingsHaveTwoSlots(t *testing.T) {
	tree, err := kernel.Load(kernels.FS)
	if err != nil {
		t.Fatal(err)
	}
	units := map[tensor.DType]int64{tensor.E4M3: 1024, tensor.E4M3_B128: 1056, tensor.NVFP4: 576, tensor.MXFP4: 544}
	seen := map[string]bool{}
	for name, k := range tree.Classes["hopper"].Kernels {
		if k.Family != "rows_quantised" && k.Family != "experts_rows_quantised" {
			continue
		}
		for d, unit := range units {
			for _, rows := range []int64{1, 2, 3, 4, 5, 6, 7, 8, 20} {
				for K := int64(512); K <= 16384; K += 256 {
					env := kernel.NewEnv(map[string]int64{"rows": rows, "R": rows, "outs": rows, "K": K, "H": K, "N": 4096, "N0": 4096, "N1": 1024, "N2": 1024, "N3": 0,
						"E": 128, "I": 768, "S": 0, "k": 8, "gated": 0, "sms": 132})
					for i := range k.Args {
						env.Sizes[k.Args[i].Name+kernel.Bits] = d.Bits()
					}
					if !holds(t, k, env) {
						continue
					}
					for _, l := range k.Launches() {
						eval := func(x string) int64 {
							v, err := tensor.Eval(x, env.Sizes)
							if err != nil {
								t.Fatalf("kernel %s: %v", name, err)
							}
							return v
						}
						entry, err := kernel.Expand(l.Entry, func(x string) (string, error) {
							if strings.HasSuffix(x, ".dtype") || x == "act" {
								return "any", nil
							}
							return string(rune('0' + eval(x))), nil
						})
						if err != nil {
							t.Fatal(err)
						}
						for _, c := range ringCuts {
							if !strings.Contains(entry+"_", c.part) && !strings.HasSuffix(entry, c.part) {
								continue
							}
							if c.part == "_4" && d.Bits() == 4 {
								c.units *= 2
							}
							slot := c.units*c.panels*unit + c.streams*(c.units*512+16)
							ring, _ := strings.CutPrefix(l.Params[len(l.Params)-1], "i32:")
							seen[c.part] = true
							if warps := eval(l.Block) / 32; eval(ring) < 2*warps*slot || eval(l.Shared) > 232448 {
								t.Fatalf("kernel %s, %d rows, K %d, %v: %d bytes of rings for %d warps with slots of %d, %d in all", name, rows, K, d, eval(ring), warps, slot, eval(l.Shared))
							}
							break
						}
					}
				}
			}
		}
	}
	if len(seen) != len(ringCuts) {
		t.Error("only these entries were seen: ", seen)
	}
}

// holds says whether all of a kernel's conditions do.
func holds(t *testing.T, k *kernel.Kernel, env *kernel.Env) bool {
	t.Helper()
	for _, c := range k.Where {
		ok, err := env.Holds(c)
		if err != nil {
			t.Fatalf("kernel %s: %v", k.Name, err)
		}
		if !ok {
			return false
		}
	}
	return true
}
