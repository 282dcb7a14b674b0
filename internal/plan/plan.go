// SPDX-License-Identifier: MIT OR Apache-2.0

package plan

import "github.com/metrale/metrale/internal/tensor"

// Names of the axes whose extent varies from step to step, in the order of the step block's head.
const (
	Rows = "rows"
	Seqs = "seqs"
	Outs = "outs"
)

// Pool names the leading axis of an array that comes in through a port: rows that were written outside of the plan.
const Pool = "pool"

// Plan is what a circuit instance becomes on a hardware class for steps of at most Limits.Rows rows.
type Plan struct {
	Circuit  string       // circuit and variant: "llama/mistral"
	Part     string       // of the model: "" is the decoder, "mtp" a draft head, "vision" a vision tower
	Class    string       // hardware class: "cpu"
	Compute  string       // precision policy: "float32" or "declared"
	KV       tensor.DType // element type of paged K and V
	Limits   Limits
	Dims     []Dim // the dims of the instance that are not 0, by name
	Consts   []Const
	Weights  []Weight
	States   []State
	Buffers  []Buffer
	Launches []Launch
	Arena    int64 // bytes that the buffers span
	Logits   int   // index of the buffer that holds the logits [outs, vocab]; -1: none
}

// Limits bounds a step.
type Limits struct {
	Rows, Seqs, Outs int64
	PageSize         int64 // tokens in a KV page
	Pages            int64 // most pages of one sequence
}

// Dim is a resolved size of the instance.
type Dim struct {
	Name string
	Size int64
}

// Axis is a named extent; for Rows, Seqs and Outs it is the upper bound.
type Axis struct {
	Name string
	Size int64
}

// Axes is a shape in named axes, outermost first.
type Axes []Axis

// Shape drops the names.
func (a Axes) Shape() tensor.Shape {
	s := make(tensor.Shape, len(a))
	for i, x := range a {
		s[i] = x.Size
	}
	return s
}

// Split says how an array is divided over devices: Axis is the index of the divided axis, or -1 when every device has it
// all; Mesh names the group of devices ("tp", "ep").
type Split struct {
	Axis int
	Mesh string
}

// Replicated is the split of an array that every device has whole.
var Replicated = Split{Axis: -1}

// Const is a small float32 array that the compiler computed, as inverse frequencies.
type Const struct {
	Name   string
	Values []float32
}

// Weight is an array that comes from the checkpoint.
type Weight struct {
	Name    string // canonical, unique: "L03.attn.q"
	Axes    Axes
	DType   tensor.DType // as stored in the checkpoint
	Layout  string       // how the class wants it in memory (the kernel's manifest says): "f32", "panel", … "" as stored
	Sources []string     // checkpoint tensors, or pieces of them (Piece), whose rows follow each other; usually one
	Split   Split
}

// StateKind tells how state is addressed.
type StateKind uint8

const (
	Paged StateKind = iota // by token: page*page_size + offset
	Slot                   // by sequence: state slot
)

// State outlives steps. Axes are those of one token (Paged) or one slot (Slot).
type State struct {
	Name  string // "L03.k"
	Kind  StateKind
	DType tensor.DType
	Axes  Axes
	Split Split
	Every int64 // of Paged: tokens that share an entry, kept where the last of them is; 0 and 1: each has its own
}

// PageEntries is how many entries a page of that many tokens holds.
func (s *State) PageEntries(pageSize int64) int64 { return max(1, pageSize/max(1, s.Every)) }

// Buffer is an intermediate array in the arena, or an array outside that a port names.
type Buffer struct {
	Name   string
	Axes   Axes
	DType  tensor.DType
	Offset int64 // bytes from the arena's start, 64-byte aligned; 0 with a port
	Port   Port
	Split  Split
}

// Port says that a buffer is memory of its own, which all plans of a model that name it share: by ports, parts of a model
// and the host hand over values. The zero value is no port.
type Port struct {
	Name string // "hidden"
	Dir  Access // In: written before the plan runs; Out: left for whoever comes next
}

// ArgKind tells which list of the plan an argument indexes.
type ArgKind uint8

const (
	ArgBuffer ArgKind = iota
	ArgWeight
	ArgConst
	ArgState
	ArgStep // a field of the step block, by name
)

// Access tells what a kernel does to an argument.
type Access uint8

const (
	In Access = iota
	Out
	InOut
)

// Arg binds a kernel's parameter.
type Arg struct {
	Param  string // the kernel's name for it
	Kind   ArgKind
	Index  int    // into the plan's list; unused for ArgStep
	Step   string // the field, for ArgStep
	Access Access
}

// Attr is a scalar that a launch passes: exactly one of the values, by Kind.
type Attr struct {
	Name  string
	Kind  AttrKind
	Int   int64
	Float float64
	Str   string
}

// AttrKind is the type of an Attr.
type AttrKind uint8

const (
	IntAttr AttrKind = iota
	FloatAttr
	StrAttr
)

// Numerics relates a launch to running its ops one by one.
type Numerics string

const (
	Reference    Numerics = "reference"     // this kernel defines the numbers
	BitIdentical Numerics = "bit_identical" // the same bytes as the unfused chain
	Differs      Numerics = "differs"       // other numbers, by an opted-in lever
)

// Launch is one kernel launch.
type Launch struct {
	Name     string   // unique: "L03.attn.q"
	Kernel   string   // entry in the class's manifest
	Ops      []string // the circuit's nodes that it covers
	Rule     string   // the lowering rule
	Numerics Numerics
	Args     []Arg
	Attrs    []Attr
	Grid     []string // launch expressions of the manifest, for classes that have them: grid x, y, z, block, shared bytes of each launch
}
