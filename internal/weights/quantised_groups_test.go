// SPDX-License-Identifier: MIT OR Apache-2.0

package weights

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/metrale/metrale/internal/tensor"
)

// TestGroupsOfAnySize: whatever number of values shares a scale, a weight is what its tensors say: blocks that have one scale each, or
// float32.
func TestGroupsOfAnySize(t *testing.T) {
	r := maker{rand.New(rand.NewPCG(13, 14))}
	const n, k = 8, 256
	for _, size := range []int64{1, 2, 7, 8, 16, 24, 32, 48, 64, 100, 128, 160, 255, 256, 257, 1 << 62, math.MaxInt64} {
		g, high := min(size, k), min(size, n)
		count := (k + g - 1) / g
		// blocks is the first type whose blocks have one scale each.
		blocks := func(types ...tensor.DType) tensor.DType {
			for _, d := range types {
				if elems, _ := d.Block(); g == k || g%int64(elems) == 0 {
					return d
				}
			}
			return tensor.F32
		}
		with := func(config string, shown tensor.DType, group [2]int64, tensors ...made) layer {
			return layer{config: config, name: "m.q.weight", tensors: tensors, group: group, shape: tensor.Shape{n, k}, shown: shown}
		}
		i4 := func(b byte) float64 { return float64(b) - 8 }
		row, byColumn := [2]int64{1, g}, fmt.Sprintf(`"bits": 4, "group_size": %d`, size)
		nvfp4 := with(ctNVFP4By(size), blocks(tensor.NVFP4), row, r.nibbles("m.q.weight_packed", tensor.U8, e2m1Value, n, k/2),
			r.scales("m.q.weight_scale", tensor.E4M3, n, count), r.scales("m.q.weight_global_scale", tensor.F32, 1))
		nvfp4.global, nvfp4.divides, nvfp4.rows = 2, true, nvfp4.shown == tensor.NVFP4
		for name, l := range map[string]layer{
			"nvfp4": nvfp4,
			"mxfp4": with(ctMXFP4By(size), blocks(tensor.MXFP4), row, r.nibbles("m.q.weight_packed", tensor.U8, e2m1Value, n, k/2), r.scales("m.q.weight_scale", tensor.U8, n, count)),
			"int4":  with(ctInt4(size), blocks(tensor.INT4_B32), row, r.nibbles("m.q.weight_packed", tensor.I32, i4, n, k/8), r.scales("m.q.weight_scale", tensor.BF16, n, count)),
			"fp8": with(fmt.Sprintf(`{"quant_method": "fp8", "weight_block_size": [%d, %[1]d]}`, size), blocks(tensor.E4M3_B128, tensor.E4M3_B32), [2]int64{high, g},
				r.values("m.q.weight", n, k), r.scales("m.q.weight_scale_inv", tensor.F32, (n+high-1)/high, count)),
			"awq":             byColumns(`{"quant_method": "awq", `+byColumn+`, "zero_point": true, "version": "gemm"}`, n, k, int(g), blocks(tensor.Q5_0)),
			"gptq, symmetric": byColumns(`{"quant_method": "gptq", `+byColumn+`, "sym": true, "checkpoint_format": "gptq"}`, n, k, int(g), blocks(tensor.Q4_0)),
		} {
			t.Run(fmt.Sprintf("%s by %d", name, size), l.check)
		}
	}
}
