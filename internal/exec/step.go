// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import "github.com/metrale/metrale/internal/plan"

// Step is one ragged batch as the host describes it; see plan's step block. Slices may be reused by the caller.
type Step struct {
	Part string // of the model that runs: "" is the decoder

	Tokens, Positions, RowSeq, Slots []int32   // [rows]
	CuRows                           []int32   // [seqs+1]
	Pages                            [][]int32 // [seqs][pages of the sequence]
	StateSlot, Fresh                 []int32   // [seqs]
	OutRows                          []int32   // [outs]

	// Of models with further parts. A vision tower has none of the above but RowSeq and CuRows.
	HiddenRow  []int32    // [rows] of a draft head
	FeatureRow []int32    // [rows]; nil: no row has features
	Coords     [][3]int32 // [rows]; nil: all are at their position
	Grids      [][3]int32 // [seqs] of a vision tower
	Outs       int        // of a vision tower
	Inputs     []Input    // written before the step

	// Of Start.
	Feed  []int32 // [rows]: seat whose newest token the row takes; -1: Tokens has it; nil: all are in Tokens
	Draws []Draw  // at most one for each of OutRows
}

// Limits are a model's sizes.
type Limits struct {
	plan.Limits     // of the largest plan
	Vocab       int // width of the logits
	NumPages    int // KV pages in all
	NumSlots    int // recurrent-state slots in all; 0 when the model has no such state
}

// Runner runs steps. Model is the real one; tests and overhead benchmarks script their own.
type Runner interface {
	Limits() Limits
	// Run computes a step and gives the logits [outs][vocab], valid until the next Run.
	Run(*Step) ([][]float32, error)
	Close() error
}

// Drawer is a Runner that draws tokens, if Draws says so; Model documents the methods.
type Drawer interface {
	Runner
	Draws() bool
	Seat(at int, g *Seating) error
	Start(*Step) error
	Finish([]Drawn) ([]Drawn, error)
}
