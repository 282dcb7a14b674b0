// SPDX-License-Identifier: MIT OR Apache-2.0

package gpu

import (
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// Info describes a device.
type Info struct {
	Name    string // "AMD EPYC, 2 cores, avx512-vnni-bf16"
	Class   string // hardware class whose manifests it runs: "cpu"
	Memory  int64  // bytes in all
	Free    int64  // bytes that were free when the device was opened; 0 where that is not known
	Threads int    // parallel workers or multiprocessors
}

// Device computes.
type Device interface {
	Info() Info
	Alloc(name string, bytes int64) (Buffer, error) // zeroed, 64-byte aligned
	// Layout gives the packer of a weight layout that this device's kernels want.
	Layout(name string) (Layout, error)
	// Bind checks a launch against its kernel and prepares it.
	Bind(Binding) (Launch, error)
	Stream() Stream
	Close() error
}

// Buffer is device memory.
type Buffer interface {
	Size() int64
	Write(off int64, src []byte) error
	Read(off int64, dst []byte) error
	Free()
}

// HostBuffer is a buffer whose bytes the host may touch between Sync and the next Launch.
type HostBuffer interface {
	Buffer
	Bytes() []byte
	Float32s() []float32 // the same memory
}

// Layout turns a stored weight into the form that kernels read.
type Layout interface {
	// Size is the packed size in bytes of a weight of that format and shape, or an error naming what is not supported.
	Size(d tensor.DType, shape tensor.Shape) (int64, error)
	// Pack writes rows [row, row+n) of matrix m, whose stored bytes are src, into dst at off. A weight of up to two axes is
	// one matrix [rows, last axis]; with three axes the leading one counts matrices (experts). row is a multiple of Rows, n
	// too unless it ends at the matrix's last row. Safe for concurrent disjoint calls.
	Pack(dst Buffer, off int64, d tensor.DType, shape tensor.Shape, m, row, n int64, src []byte) error
	// Rows is the granularity of Pack.
	Rows() int64
	// DType is the element type that kernels see of a weight stored as d.
	DType(d tensor.DType) tensor.DType
}

// Arg is a bound array argument.
type Arg struct {
	Param  string
	Buf    Buffer
	Off    int64 // bytes into Buf
	DType  tensor.DType
	Axes   plan.Axes // bounds; an axis named rows, seqs or outs has its real extent in the step block's head
	Layout string    // of weights
	Access plan.Access
}

// Binding is a launch to be prepared.
type Binding struct {
	Name   string // the plan's launch, for errors
	Kernel string
	Args   []Arg
	Attrs  []plan.Attr
	Grid   []string // expressions of grid x, y, z, block, shared bytes of each launch, as the plan has them; nil on classes without
	Limits plan.Limits
}

// Arg gives the argument of that name.
func (b *Binding) Arg(param string) (Arg, bool) {
	for _, a := range b.Args {
		if a.Param == param {
			return a, true
		}
	}
	return Arg{}, false
}

// Launch is a prepared launch of the device that made it.
type Launch interface{}

// Stream runs launches in order.
type Stream interface {
	Launch(Launch) error
	Sync() error
}

// The interfaces below are what a device with memory of its own may offer; exec asks for them by type assertion.

// Pinner has host memory that it copies from and to by itself.
type Pinner interface {
	Pinned(name string, bytes int64) (Pinned, error)
}

// Pinned is such memory. The host must not touch bytes that a queued copy reads or writes before Sync.
type Pinned interface {
	Bytes() []byte
	Float32s() []float32                     // the same memory
	Upload(dst Buffer, off, n int64) error   // queues a copy of the first n bytes to dst at off, in order with launches
	Download(src Buffer, off, n int64) error // queues a copy into the first n bytes
	Free()                                   // waits for the queued copies
}

// RowLayout is a layout whose packed rows follow each other, so that the host can pack them anywhere.
type RowLayout interface {
	Layout
	// Keeps says that rows stay as the checkpoint has them.
	Keeps(d tensor.DType) bool
	// PackRows packs stored rows of k values; their number is a multiple of Rows, or they end a matrix.
	PackRows(dst []byte, d tensor.DType, k int64, src []byte) error
}

// Stager copies weights in the background: while one stage is on its way, others are filled. Its layouts are RowLayouts.
type Stager interface {
	Stage(name string, bytes int64) (Stage, error)
}

// Stage is memory that is filled and sent. It may be filled by several goroutines at a time.
type Stage interface {
	Bytes() []byte
	// Send queues a copy of the first n bytes to dst at off. They must not be touched before Wait.
	Send(dst Buffer, off, n int64) error
	Wait() error
	Free() // waits too
}

// Neighbour is a device that some processors are nearer to than others.
type Neighbour interface {
	// Near keeps the calling thread on those, for as long as it lives. It says whether there are such.
	Near() bool
}

// Generator makes random weights in its own memory.
type Generator interface {
	// Generate fills runs of dst, which do not meet, and waits.
	Generate(dst Buffer, runs []Run) error
}

// Run is Bytes of Words from byte First on, at Off of a buffer.
type Run struct {
	Off, First, Bytes int64
	Words             tensor.Words
}

// Grapher records launches so that one call starts them all.
type Grapher interface {
	// Graph records launches, each of which has run before. The result may have a method Free.
	Graph(name string, launches []Launch) (Launch, error)
}

// Marker marks places in the stream, so that the host can wait for one while more is queued behind it.
type Marker interface {
	Mark() (Mark, error)
}

// Mark is a place in the stream; it may be set again after it was waited for.
type Mark interface {
	Set() error  // behind what was queued so far
	Wait() error // until all of that has run
	Free()
}
