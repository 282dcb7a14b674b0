// SPDX-License-Identifier: MIT OR Apache-2.0

package linear

import (
	"github.com/metrale/metrale/internal/gpu/cpu/vec"
	"github.com/metrale/metrale/internal/tensor"
)

// Pool runs n independent tasks on all workers and waits; worker is 0 to Workers()-1.
type Pool interface {
	Workers() int
	Run(n int, task func(i, worker int))
}

// Weight is a packed matrix [N, K].
type Weight struct {
	D    tensor.DType // stored type
	N, K int
	Data []byte // PackedSize(D, N, K) bytes, 4-byte aligned (64 is faster)
}

// Compute says how products are made.
type Compute uint8

const (
	F32 Compute = iota // float32 activations times exactly dequantised weights
	Q16                // activations of two int8 digits for weights of integer codes; the others compute as F32
)

// Mode says what happens to Y.
type Mode uint8

const (
	Store Mode = iota // y = x·wᵀ·scale + b
	Add               // y += x·wᵀ·scale + b
)

// Call is up to four products of the same activations.
type Call struct {
	X       []float32 // [Rows, K]
	Rows    int
	W       []Weight    // all of the same K
	Scale   [][]float32 // one [N] for each weight, which multiplies its products, or nil for none; or nil
	Bias    [][]float32 // the same, added after that
	Y       [][]float32 // [Rows, N] for each weight
	Mode    Mode
	Glu     vec.Act // if not None: Y[0] = act(x·W[0]ᵀ) * (x·W[1]ᵀ), and Mode is Store
	Limit   float32 // of both, with Glu; 0: none
	Compute Compute
}

// ExpertsCall is a mixture of experts: y = sum over slots, in order, of weight · down(act(gate(x))·up(x)), or without a gate of
// weight · down(act(up(x))).
type ExpertsCall struct {
	X        []float32 // [Rows, H]
	Rows     int
	Slots    int       // experts of each row
	IDs      []int32   // [Rows, Slots]
	Weights  []float32 // [Rows, Slots]
	Experts  int
	Identity int // ids from Experts on give x itself
	Gated    bool
	GateUp   Weight // N = 2I (gate's rows first), or I of up if not Gated; K = H; Data holds the matrices of all experts
	Down     Weight // N = H, K = I
	Y        []float32
	Act      vec.Act
	Limit    float32 // of gate and up, if Gated; 0: none

	GateUpScale, DownScale []float32 // [Experts, N], or nil: multiply products
	GateUpBias, DownBias   []float32 // the same, added after that
	Compute                Compute
}

// GroupCall is a block-diagonal product: y_g = x_g w_gᵀ for each group g of a row.
type GroupCall struct {
	X       []float32 // [Rows, Groups·K]
	Rows    int
	Groups  int
	W       Weight    // [N, K]; Data holds the matrices of all groups
	Scale   []float32 // [Groups, N], or nil
	Y       []float32 // [Rows, Groups·N]
	Compute Compute
}
