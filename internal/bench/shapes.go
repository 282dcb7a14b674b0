// SPDX-License-Identifier: MIT OR Apache-2.0

package bench

import (
	"fmt"
	"math"

	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// shape is a piece of a layer at one size, of one sequence. tools/hopper/micro_torch.py has the same list under the same names.
type shape struct {
	name     string
	rows     int
	behind   int  // tokens before the first row
	further  bool // not of the 32: for comparison
	variants []variant
}

// variant is a way to compute a shape; several are tried, and the fastest counts.
type variant struct {
	note     string       // what it does beyond the shape
	stored   tensor.DType // type of its matrices; None: bf16
	fragment circuit.Fragment
	ranges   map[string][2]float32 // of inputs that are not within ±1
}

// matrices is the type that they are stored in.
func (v *variant) matrices() tensor.DType {
	if v.stored == tensor.None {
		return tensor.BF16
	}
	return v.stored
}

type (
	op    = circuit.FragmentOp
	input = circuit.FragmentInput
	state = circuit.FragmentState
	attrs = map[string]any
	sizes = map[string][]int64
)

// given begins the names of arrays that a shape gets from others: what writes them is not measured.
const given = "given."

// The shapes are those of a hybrid model: hidden 2048, 16 query and 2 KV heads of 256, 16 key and 32 value heads of 128 in delta
// nets, 256 experts of 512, 10 of them for each row.
const (
	hidden                   = 2048
	qHeads, kvHeads, headDim = 16, 2, 256
	kHeads, vHeads, deltaDim = 16, 32, 128
	experts, chosen, inner   = 256, 10, 512
)

// shapes32 are the 32, and others beside them: two in bf16 beside those of four bits, and Mamba-2's scan at the sizes of Nemotron 3 Nano.
func shapes32() (list []shape) {
	for _, n := range []int{32, 128, 256, 512} {
		list = append(list, shape{name: fmt.Sprintf("prefill_attn seq=%d", n), rows: n, variants: []variant{attend(), attendAll()}})
	}
	for _, n := range []int{64, 256, 1024, 4096} {
		list = append(list, shape{name: fmt.Sprintf("decode_attn hist=%d", n), rows: 1, behind: n - 1, variants: []variant{attend(), attendAll()}})
	}
	for _, s := range [][3]int{{80, 2048, 512}, {80, 512, 2048}, {16, 2048, 256}, {256, 256, 256}} {
		list = append(list, shape{name: fmt.Sprintf("gemm [%d,%d]x[%d,%d]", s[0], s[1], s[1], s[2]), rows: s[0], variants: []variant{matmul(s[1], s[2], tensor.BF16)}})
	}
	list = append(list,
		shape{name: "w4a16 [80,2048]x[2048,1024]", rows: 80, variants: []variant{matmul(2048, 1024, tensor.NVFP4), matmul(2048, 1024, tensor.INT4_B32)}},
		shape{name: "moe_w4a16 256exp 80tok", rows: 80, variants: []variant{moe(tensor.NVFP4), moe(tensor.INT4_B32)}},
	)
	for _, n := range []int{32, 128, 512} {
		list = append(list, shape{name: fmt.Sprintf("conv1d_prefill dim=8192 seq=%d", n), rows: n, variants: []variant{convolve(8192)}})
	}
	list = append(list,
		shape{name: "conv1d_decode dim=8192", rows: 1, behind: 16, variants: []variant{convolve(8192)}},
		shape{name: "gdr_decode 32vh dim=128", rows: 1, behind: 16, variants: []variant{delta(), deltaAll()}},
	)
	for _, n := range []int{32, 128} {
		list = append(list, shape{name: fmt.Sprintf("gdr_prefill seq=%d", n), rows: n, variants: []variant{delta(), deltaAll()}})
	}
	for _, n := range []int{1, 16, 80} {
		list = append(list, shape{name: fmt.Sprintf("rmsnorm [%d,2048]", n), rows: n, variants: []variant{norm(hidden)}})
	}
	for _, n := range []int{2048, 8192} {
		list = append(list, shape{name: fmt.Sprintf("gated_rmsnorm dim=%d", n), rows: 1, variants: []variant{gatedNorm(n)}})
	}
	for _, n := range []int{16, 80, 800} {
		list = append(list, shape{name: fmt.Sprintf("silu_mul [%d,512]", n), rows: n, variants: []variant{siluMul(512)}})
	}
	for _, n := range []int{32, 128, 512} {
		list = append(list, shape{name: fmt.Sprintf("rope seq=%d 16:2", n), rows: n, variants: []variant{rotate()}})
	}
	for _, n := range []int{1, 16, 64, 256, 2048} {
		list = append(list, shape{name: fmt.Sprintf("ssd 64x64x128 seq=%d", n), rows: n, further: true, variants: []variant{scan(64, 8, 64, 128)}})
	}
	return append(list,
		shape{name: "bf16 [80,2048]x[2048,1024]", rows: 80, further: true, variants: []variant{matmul(2048, 1024, tensor.BF16)}},
		shape{name: "moe_bf16 256exp 80tok", rows: 80, further: true, variants: []variant{moe(tensor.BF16)}})
}

func matmul(k, n int, stored tensor.DType) variant {
	return variant{stored: stored, fragment: circuit.Fragment{Name: "linear", Inputs: []input{{Name: "x", Size: int64(k)}},
		Ops: []op{{Op: "linear", In: []string{"x"}, Out: []string{"y"}, Weights: sizes{"w": {int64(n), int64(k)}}}}}}
}

func moe(stored tensor.DType) variant {
	return variant{stored: stored, fragment: circuit.Fragment{Name: "experts",
		Inputs: []input{{Name: "x", Size: hidden}, {Name: "ids", Size: chosen, DType: tensor.I32}, {Name: "weights", Size: chosen}},
		Ops: []op{{Op: "experts", In: []string{"x", "ids", "weights"}, Out: []string{"y"}, Attrs: attrs{"k": chosen, "act": "silu"},
			Weights: sizes{"gate_up": {experts, 2 * inner, hidden}, "down": {experts, hidden, inner}}}}}}
}

var (
	pools     = []state{{Name: "k_pool", Axes: []int64{kvHeads * headDim}}, {Name: "v_pool", Axes: []int64{kvHeads * headDim}}}
	inPools   = map[string]string{"k_pool": "k_pool", "v_pool": "v_pool"}
	attention = attrs{"heads": qHeads, "kv_heads": kvHeads, "head_dim": headDim, "v_dim": headDim, "scale": 0.0625}
)

// attend is attention alone: K and V are in their pages.
func attend() variant {
	return variant{fragment: circuit.Fragment{Name: "attention", Inputs: []input{{Name: "q", Size: qHeads * headDim}}, States: pools,
		Ops: []op{{Op: "attention", In: []string{"q"}, Out: []string{"y"}, States: inPools, Attrs: attention}}}}
}

// attendAll is what a layer does between its projections.
func attendAll() variant {
	const rot = 64
	rope := func(x string, heads int) op {
		return op{Op: "rope", In: []string{given + x, "angles"}, Out: []string{x + ".turned"}, Attrs: attrs{"heads": heads, "head_dim": headDim, "rot": rot, "style": "half"}}
	}
	return variant{note: "with rotation and append", ranges: map[string][2]float32{"angles": eighth}, fragment: circuit.Fragment{Name: "attention_all",
		Inputs: []input{{Name: "q", Size: qHeads * headDim}, {Name: "k", Size: kvHeads * headDim}, {Name: "v", Size: kvHeads * headDim}, {Name: "angles", Size: rot}}, States: pools,
		Ops: []op{take("q", qHeads*headDim), take("k", kvHeads*headDim), rope("q", qHeads), rope("k", kvHeads),
			{Op: "kv_append", In: []string{"k.turned", "v"}, States: inPools, Attrs: attrs{"kv_heads": kvHeads, "head_dim": headDim, "v_dim": headDim}},
			{Op: "attention", In: []string{"q.turned"}, Out: []string{"y"}, States: inPools, Attrs: attention}}}}
}

// eighth of a turn is what rotations turn by, so that values keep their size however often they are turned.
var eighth = [2]float32{math.Sqrt2 / 2, math.Sqrt2 / 2}

// take copies an input, for ops that overwrite it.
func take(x string, n int) op {
	return op{Op: "slice", In: []string{x}, Out: []string{given + x}, Attrs: attrs{"from": 0, "n": n}}
}

func rotate() variant {
	rope := func(x string, heads int) op {
		return op{Op: "rope", In: []string{given + x, "angles"}, Out: []string{x + ".turned"}, Attrs: attrs{"heads": heads, "head_dim": headDim, "rot": headDim, "style": "half"}}
	}
	return variant{ranges: map[string][2]float32{"angles": eighth}, fragment: circuit.Fragment{Name: "rope",
		Inputs: []input{{Name: "q", Size: qHeads * headDim}, {Name: "k", Size: kvHeads * headDim}, {Name: "angles", Size: headDim}},
		Ops:    []op{take("q", qHeads*headDim), take("k", kvHeads*headDim), rope("q", qHeads), rope("k", kvHeads)}}}
}

func convolve(n int64) variant {
	return variant{fragment: circuit.Fragment{Name: "conv", Inputs: []input{{Name: "x", Size: n}}, States: []state{{Name: "conv", Kind: plan.Slot, Axes: []int64{n, 3}}},
		Ops: []op{{Op: "conv", In: []string{"x"}, Out: []string{"y"}, Weights: sizes{"w": {n, 4}}, States: map[string]string{"state": "conv"}, Attrs: attrs{"kernel": 4, "act": "silu"}}}}}
}

var (
	memory  = []state{{Name: "memory", Kind: plan.Slot, Axes: []int64{vHeads, deltaDim, deltaDim}}}
	decay   = map[string][2]float32{"g": {-0.5, 0}, "beta": {0, 1}}
	recur   = op{Op: "delta_rule", In: []string{"q", "k", "v", "g", "beta"}, Out: []string{"o"}, States: map[string]string{"state": "memory"}, Attrs: attrs{"k_heads": kHeads, "v_heads": vHeads, "k_dim": deltaDim, "v_dim": deltaDim}}
	unitQ   = op{Op: "l2_norm", In: []string{"q0"}, Out: []string{"q"}, Attrs: attrs{"eps": 1e-6, "group": deltaDim, "scale": 1 / math.Sqrt(deltaDim)}}
	unitK   = op{Op: "l2_norm", In: []string{"k0"}, Out: []string{"k"}, Attrs: attrs{"eps": 1e-6, "group": deltaDim}}
	keySize = int64(kHeads * deltaDim)
	valSize = int64(vHeads * deltaDim)
)

// delta is the gated delta rule with norms of q and k.
func delta() variant {
	return variant{ranges: decay, fragment: circuit.Fragment{Name: "delta_rule", States: memory,
		Inputs: []input{{Name: "q0", Size: keySize}, {Name: "k0", Size: keySize}, {Name: "v", Size: valSize}, {Name: "g", Size: vHeads}, {Name: "beta", Size: vHeads}},
		Ops:    []op{unitQ, unitK, recur}}}
}

// deltaAll is what a layer does between its convolution and its output projection.
func deltaAll() variant {
	return variant{note: "with gates and gated norm", fragment: circuit.Fragment{Name: "delta_rule_all", States: memory,
		Inputs: []input{{Name: "qkv", Size: 2*keySize + valSize}, {Name: "a", Size: vHeads}, {Name: "b", Size: vHeads}, {Name: "z", Size: valSize}},
		Ops: []op{
			{Op: "split", In: []string{"qkv"}, Out: []string{"q0", "kv"}, Attrs: attrs{"groups": 1, "a": int(keySize), "b": int(keySize + valSize)}},
			{Op: "split", In: []string{"kv"}, Out: []string{"k0", "v"}, Attrs: attrs{"groups": 1, "a": int(keySize), "b": int(valSize)}},
			unitQ, unitK,
			{Op: "delta_gates", In: []string{"a", "b"}, Out: []string{"g", "beta"}, Weights: sizes{"a_log": {vHeads}, "dt_bias": {vHeads}}},
			recur,
			{Op: "gated_norm", In: []string{"o", "z"}, Out: []string{"y"}, Weights: sizes{"w": {deltaDim}}, Attrs: attrs{"eps": 1e-6, "group": deltaDim, "act": "silu"}},
		}}}
}

func scan(heads, groups, headDim, stateDim int64) variant {
	return variant{fragment: circuit.Fragment{Name: "ssd", States: []state{{Name: "scan", Kind: plan.Slot, Axes: []int64{heads, headDim, stateDim}}},
		Inputs: []input{{Name: "xbc", Size: heads*headDim + 2*groups*stateDim}, {Name: "dt", Size: heads}},
		Ops: []op{{Op: "ssd", In: []string{"xbc", "dt"}, Out: []string{"y"}, Weights: sizes{"a_log": {heads}, "dt_bias": {heads}, "d": {heads}}, States: map[string]string{"state": "scan"},
			Attrs: attrs{"heads": int(heads), "groups": int(groups), "head_dim": int(headDim), "state_dim": int(stateDim)}}}}}
}

func norm(n int) variant {
	return variant{fragment: circuit.Fragment{Name: "rms_norm", Inputs: []input{{Name: "x", Size: int64(n)}},
		Ops: []op{{Op: "rms_norm", In: []string{"x"}, Out: []string{"y"}, Weights: sizes{"w": {int64(n)}}, Attrs: attrs{"eps": 1e-6, "group": n}}}}}
}

func gatedNorm(n int) variant {
	return variant{fragment: circuit.Fragment{Name: "gated_norm", Inputs: []input{{Name: "x", Size: int64(n)}, {Name: "z", Size: int64(n)}},
		Ops: []op{{Op: "gated_norm", In: []string{"x", "z"}, Out: []string{"y"}, Weights: sizes{"w": {int64(n)}}, Attrs: attrs{"eps": 1e-6, "group": n, "act": "silu"}}}}}
}

func siluMul(n int64) variant {
	return variant{fragment: circuit.Fragment{Name: "glu", Inputs: []input{{Name: "g", Size: n}, {Name: "u", Size: n}},
		Ops: []op{{Op: "glu", In: []string{"g", "u"}, Out: []string{"y"}, Attrs: attrs{"act": "silu"}}}}}
}
