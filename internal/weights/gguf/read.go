// SPDX-License-Identifier: MIT OR Apache-2.0

package gguf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sort"
	"unicode/utf8"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/tensor"
)

// MaxHeader bounds the part before the data, in bytes. The longest seen, vocabularies of 262144 tokens, take 20 MB.
const MaxHeader = 512 << 20

// maxAxes is the most axes that GGUF tensors have.
const maxAxes = 4

// maxNesting bounds arrays of arrays.
const maxNesting = 4

// Tensor is a stored tensor. Its bytes are [Begin, End) of the file.
type Tensor struct {
	Name       string // GGUF's name, as "blk.0.attn_q.weight"
	DType      tensor.DType
	Shape      tensor.Shape // row-major
	Begin, End int64
}

// File is what a GGUF file says before its data.
type File struct {
	Version  uint32
	Keys     []string       // of Metadata, in the order of the file
	Metadata map[string]any // uint8 … int64, float32, float64, bool, string, or a slice of one of them ([]any if nested)
	Tensors  []Tensor       // in the order of the file
}

// reader reads the header: sequentially, counting, and keeping the first error.
type reader struct {
	file string
	r    *bufio.Reader
	at   int64 // bytes read
	size int64 // of the file
	what string
	err  *diag.Error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = diag.Errorf(diag.Format, format, args...).At(diag.Pos{File: r.file})
		if r.what != "" {
			r.err.Msg = r.what + ": " + r.err.Msg
		}
	}
}

// bytes reads n bytes; nil after an error.
func (r *reader) bytes(n uint64) []byte {
	if r.err != nil {
		return nil
	}
	switch left := r.size - r.at; {
	case n > uint64(left):
		r.fail("%d bytes are announced, but only %d are left: the file is cut short or its header wrong", n, left)
		return nil
	case r.at+int64(n) > MaxHeader:
		r.fail("the header is longer than %d bytes", MaxHeader)
		return nil
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r.r, b); err != nil {
		r.fail("reading failed")
		r.err.Code, r.err.Cause = diag.IO, err
		return nil
	}
	r.at += int64(n)
	return b
}

func (r *reader) u32() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (r *reader) str() string { return string(r.bytes(r.u64())) }

// name reads the name of a key or tensor.
func (r *reader) name(kind string, limit int) string {
	s := r.str()
	switch {
	case r.err != nil:
	case s == "":
		r.fail("a %s has no name", kind)
	case len(s) > limit:
		r.fail("the name of a %s has %d bytes; at most %d are allowed", kind, len(s), limit)
	case !utf8.ValidString(s):
		r.fail("the name of a %s, %q, is no valid UTF-8", kind, s)
	}
	return s
}

// value reads a metadata value.
func (r *reader) value(t uint32, depth int) any {
	switch t {
	case vString:
		return r.str()
	case vArray:
		return r.array(depth)
	}
	size := valueSize(t)
	if size == 0 {
		r.fail("unknown value type %d", t)
		return nil
	}
	b := r.bytes(uint64(size))
	if b == nil {
		return nil
	}
	return scalar(t, b, r)
}

func scalar(t uint32, b []byte, r *reader) any {
	le := binary.LittleEndian
	switch t {
	case vUint8:
		return b[0]
	case vInt8:
		return int8(b[0])
	case vUint16:
		return le.Uint16(b)
	case vInt16:
		return int16(le.Uint16(b))
	case vUint32:
		return le.Uint32(b)
	case vInt32:
		return int32(le.Uint32(b))
	case vFloat32:
		return math.Float32frombits(le.Uint32(b))
	case vBool:
		if b[0] > 1 {
			r.fail("%d is neither true nor false", b[0])
		}
		return b[0] == 1
	case vUint64:
		return le.Uint64(b)
	case vInt64:
		return int64(le.Uint64(b))
	default:
		return math.Float64frombits(le.Uint64(b))
	}
}

// array reads an array as a slice of its element type.
func (r *reader) array(depth int) any {
	t, n := r.u32(), r.u64()
	size := valueSize(t)
	switch {
	case r.err != nil:
		return nil
	case size == 0:
		r.fail("unknown element type %d", t)
		return nil
	case depth >= maxNesting:
		r.fail("arrays are nested deeper than %d", maxNesting)
		return nil
	case n > uint64(r.size-r.at)/uint64(size):
		r.fail("%d elements are announced, but only %d bytes are left", n, r.size-r.at)
		return nil
	}
	switch t {
	case vUint8:
		return elements[uint8](r, t, n, depth)
	case vInt8:
		return elements[int8](r, t, n, depth)
	case vUint16:
		return elements[uint16](r, t, n, depth)
	case vInt16:
		return elements[int16](r, t, n, depth)
	case vUint32:
		return elements[uint32](r, t, n, depth)
	case vInt32:
		return elements[int32](r, t, n, depth)
	case vFloat32:
		return elements[float32](r, t, n, depth)
	case vBool:
		return elements[bool](r, t, n, depth)
	case vString:
		return elements[string](r, t, n, depth)
	case vUint64:
		return elements[uint64](r, t, n, depth)
	case vInt64:
		return elements[int64](r, t, n, depth)
	case vFloat64:
		return elements[float64](r, t, n, depth)
	default:
		return elements[any](r, t, n, depth)
	}
}

func elements[T any](r *reader, t uint32, n uint64, depth int) []T {
	out := make([]T, 0, min(n, 1<<16)) // grows with what is really there
	for range n {
		v := r.value(t, depth+1)
		if r.err != nil {
			return nil
		}
		out = append(out, v.(T))
	}
	return out
}

// Read reads and checks everything before the data of a file of size bytes; file is its name in errors (code Format,
// Unsupported for what is known but not taken, or IO).
func Read(file string, f io.ReaderAt, size int64) (*File, error) {
	r := &reader{file: file, size: size, r: bufio.NewReaderSize(io.NewSectionReader(f, 0, size), 1<<18)}
	out := &File{Metadata: map[string]any{}}
	tensors, pairs := r.preamble(&out.Version)
	for range pairs {
		if r.err != nil {
			break
		}
		r.what = ""
		key := r.name("metadata key", 65535)
		if _, dup := out.Metadata[key]; dup {
			r.fail("metadata key %q is given twice", key)
		}
		r.what = key
		v := r.value(r.u32(), 0)
		out.Keys = append(out.Keys, key)
		out.Metadata[key] = v
	}
	r.what = ""
	align := r.alignment(out.Metadata)
	seen := map[string]bool{}
	for range tensors {
		if r.err != nil {
			break
		}
		t := r.tensor(align)
		if seen[t.Name] {
			r.fail("tensor %s is given twice", t.Name)
		}
		seen[t.Name] = true
		out.Tensors = append(out.Tensors, t)
	}
	r.what = ""
	r.place(out.Tensors, align)
	if r.err != nil {
		return nil, r.err
	}
	return out, nil
}

// preamble reads magic, version and counts.
func (r *reader) preamble(version *uint32) (tensors, pairs uint64) {
	if magic := r.bytes(4); magic != nil && string(magic) != "GGUF" {
		r.fail("it does not start with GGUF")
	}
	*version = r.u32()
	switch v := *version; {
	case r.err != nil:
	case v&0xFFFF == 0:
		r.fail("it is big-endian; only little-endian GGUF is supported")
		r.err.Code = diag.Unsupported
	case v != 2 && v != 3:
		r.fail("GGUF version %d is not supported (2 and 3 are)", v)
		r.err.Code = diag.Unsupported
	}
	tensors, pairs = r.u64(), r.u64()
	if left := uint64(r.size - r.at); r.err == nil && (tensors > left/24 || pairs > left/13) {
		r.fail("%d tensors and %d metadata keys cannot fit into %d bytes", tensors, pairs, r.size)
	}
	return tensors, pairs
}

// alignment is the alignment of tensor data, in bytes.
func (r *reader) alignment(m map[string]any) int64 {
	v, ok := m["general.alignment"]
	if !ok {
		return 32
	}
	n, ok := v.(uint32)
	if !ok || n == 0 || n&(n-1) != 0 || n > 1<<20 {
		r.fail("general.alignment is %v; it must be a power of two", v)
		return 32
	}
	return int64(n)
}

// tensor reads a tensor's description; Begin and End count from the start of data.
func (r *reader) tensor(align int64) Tensor {
	t := Tensor{Name: r.name("tensor", 1024)}
	r.what = "tensor " + t.Name
	axes := r.u32()
	if axes == 0 || axes > maxAxes {
		r.fail("it has %d axes; 1 to %d are allowed", axes, maxAxes)
		return t
	}
	t.Shape = make(tensor.Shape, axes)
	elems := int64(1)
	for i := range axes {
		n := r.u64()
		if n == 0 || n > math.MaxInt64 {
			r.fail("an extent is %d", n)
			return t
		}
		if elems > math.MaxInt64/8/int64(n) {
			r.fail("it has more elements than can be counted")
			return t
		}
		elems *= int64(n)
		t.Shape[axes-1-i] = int64(n)
	}
	number, off := r.u32(), r.u64()
	kind, known := types[number]
	switch {
	case r.err != nil:
		return t
	case !known:
		r.fail("unknown element type %d", number)
		return t
	case kind.dtype == tensor.None:
		r.fail("element type %s is not supported", kind.name)
		r.err.Code = diag.Unsupported
		return t
	}
	t.DType = kind.dtype
	if block, _ := t.DType.Block(); t.Shape[axes-1]%int64(block) != 0 {
		r.fail("its rows of %d elements are no whole blocks of %s (%d)", t.Shape[axes-1], kind.name, block)
		return t
	}
	if off > math.MaxInt64 || int64(off)%align != 0 {
		r.fail("its offset %d is no multiple of the alignment %d", off, align)
		return t
	}
	size := t.DType.Bytes(elems)
	t.Begin = int64(off)
	if t.Begin > math.MaxInt64-size {
		r.fail("its offset %d is beyond every file", off)
	}
	t.End = t.Begin + size
	return t
}

// place moves offsets to the start of the file and checks that the tensors lie in it, one after the other, with no more
// than padding between them.
func (r *reader) place(ts []Tensor, align int64) {
	start := (r.at + align - 1) / align * align
	order := make([]*Tensor, len(ts))
	for i := range ts {
		order[i] = &ts[i]
	}
	sort.Slice(order, func(i, j int) bool { return order[i].Begin < order[j].Begin })
	var end int64
	last := "the start of data"
	for _, t := range order {
		if r.err != nil {
			return
		}
		r.what = "tensor " + t.Name
		switch padded := (end + align - 1) / align * align; {
		case t.End > r.size-start:
			r.fail("its bytes end at %d of %d bytes of data: the file is cut short", t.End, max(r.size-start, 0))
		case t.Begin < end:
			r.fail("its bytes overlap those of %s", last)
		case t.Begin > padded:
			r.fail("a hole of %d bytes lies between it and %s", t.Begin-padded, last)
		}
		end, last = t.End, t.Name
		t.Begin += start
		t.End += start
	}
}

// errNoBlocks is returned for formats that are not GGUF's.
var errNoBlocks = errors.New("gguf: not a block format")

// checkBlocks says whether dst and src are the same number of whole blocks of d.
func checkBlocks(d tensor.DType, dst, src int) error {
	elems, size := d.Block()
	if dst%elems != 0 || dst/elems*size != src {
		return fmt.Errorf("gguf: %d elements of %v do not take %d bytes", dst, d, src)
	}
	return nil
}
