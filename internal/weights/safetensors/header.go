// SPDX-License-Identifier: MIT OR Apache-2.0

package safetensors

import (
	"encoding/binary"
	"io"
	"math"
	"sort"
	"strings"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/tensor"
)

// MaxHeader is the longest header that is read, in bytes: the limit of the format's reference implementation.
const MaxHeader = 100_000_000

// dtypes are the format's names for the element types that the engine has.
var dtypes = map[string]tensor.DType{
	"BOOL": tensor.Bool, "U8": tensor.U8, "I8": tensor.I8, "I16": tensor.I16, "I32": tensor.I32, "I64": tensor.I64,
	"F16": tensor.F16, "BF16": tensor.BF16, "F32": tensor.F32, "F64": tensor.F64,
	"F8_E4M3": tensor.E4M3, "F8_E5M2": tensor.E5M2, "F8_E8M0": tensor.E8M0, "F4": tensor.E2M1,
}

// Tensor is one entry of a header. Its bytes are [Begin, End) of the file, row-major and little-endian.
type Tensor struct {
	Name       string
	DType      tensor.DType
	Shape      tensor.Shape
	Begin, End int64
}

// Header is what a file says about its tensors.
type Header struct {
	Tensors  []Tensor // in the order of their bytes
	Metadata map[string]string
}

// ReadHeader reads and checks the header of a file of size bytes; file is its name in errors (code Format, or IO).
func ReadHeader(file string, r io.ReaderAt, size int64) (*Header, error) {
	fault := func(format string, args ...any) error {
		return diag.Errorf(diag.Format, format, args...).At(diag.Pos{File: file})
	}
	if size < 8 {
		return nil, fault("%d bytes are too few for a safetensors file", size)
	}
	var length [8]byte
	if _, err := r.ReadAt(length[:], 0); err != nil {
		return nil, diag.Errorf(diag.IO, "reading the header failed").At(diag.Pos{File: file}).Because(err)
	}
	n := binary.LittleEndian.Uint64(length[:])
	switch {
	case n > MaxHeader:
		return nil, fault("the header claims %d bytes; at most %d are allowed (is this a safetensors file?)", n, MaxHeader)
	case int64(n) > size-8:
		return nil, fault("the header claims %d bytes, but the file has %d: it is cut short", n, size)
	case n < 2:
		return nil, fault("the header claims %d bytes; the shortest has 2", n)
	}
	text := make([]byte, n)
	if _, err := r.ReadAt(text, 8); err != nil {
		return nil, diag.Errorf(diag.IO, "reading the header failed").At(diag.Pos{File: file}).Because(err)
	}
	if text[0] != '{' {
		return nil, fault("the header does not start with '{'")
	}
	root, err := modelconf.ParseJSON(file, text)
	if err != nil {
		if e, ok := diag.As(err); ok {
			return nil, fault("header, byte %d: %s", e.Pos.Col, e.Msg)
		}
		return nil, err
	}
	h := &Header{}
	for i, key := range root.Keys() {
		if key == "__metadata__" {
			if h.Metadata, err = metadata(fault, root.Items()[i]); err != nil {
				return nil, err
			}
			continue
		}
		t, err := entry(key, root.Items()[i], size-8-int64(n))
		if err != nil {
			err.Pos = diag.Pos{File: file}
			return nil, err
		}
		h.Tensors = append(h.Tensors, t)
	}
	if err := h.tile(size - 8 - int64(n)); err != nil {
		err.Pos = diag.Pos{File: file}
		return nil, err
	}
	for i := range h.Tensors {
		h.Tensors[i].Begin += 8 + int64(n)
		h.Tensors[i].End += 8 + int64(n)
	}
	return h, nil
}

func metadata(fault func(string, ...any) error, n *modelconf.Node) (map[string]string, error) {
	if n.Kind() != modelconf.Object {
		return nil, fault("__metadata__ is %v; it must be an object of strings", n.Kind())
	}
	m := make(map[string]string, n.Len())
	for i, key := range n.Keys() {
		s, ok := n.Items()[i].Str()
		if !ok {
			return nil, fault("__metadata__.%s is %v; it must be a string", key, n.Items()[i].Kind())
		}
		m[key] = s
	}
	return m, nil
}

// entry reads one tensor's description; offsets count from the start of data, which has size bytes.
func entry(name string, n *modelconf.Node, size int64) (Tensor, *diag.Error) {
	t := Tensor{Name: name}
	fault := func(format string, args ...any) (Tensor, *diag.Error) {
		e := diag.Errorf(diag.Format, format, args...).For(name)
		e.Msg = "tensor " + name + ": " + e.Msg
		return t, e
	}
	if name == "" {
		return fault("a tensor has no name")
	}
	if n.Kind() != modelconf.Object {
		return fault("its description is %v, not an object", n.Kind())
	}
	for _, key := range n.Keys() {
		switch key {
		case "dtype", "shape", "data_offsets":
		default:
			return fault("unknown key %q", key)
		}
	}
	d, _ := n.Child("dtype")
	dtype, ok := d.Str()
	if !ok {
		return fault("dtype is missing or no string")
	}
	if t.DType, ok = dtypes[dtype]; !ok {
		return fault("dtype %q is not supported", dtype)
	}
	shape, ok := n.Child("shape")
	if !ok || shape.Kind() != modelconf.Array {
		return fault("shape is missing or no list")
	}
	t.Shape = make(tensor.Shape, shape.Len())
	for i, dim := range shape.Items() {
		if t.Shape[i], ok = dim.Int(); !ok || t.Shape[i] < 0 {
			return fault("shape has the extent %s; it must be an integer of at least 0", dim.Literal())
		}
	}
	off, ok := n.Child("data_offsets")
	if !ok || off.Kind() != modelconf.Array || off.Len() != 2 {
		return fault("data_offsets is missing or no list of two")
	}
	var ok0, ok1 bool
	t.Begin, ok0 = off.Items()[0].Int()
	t.End, ok1 = off.Items()[1].Int()
	if !ok0 || !ok1 || t.Begin < 0 || t.End < t.Begin {
		return fault("data_offsets [%s, %s] are no range", off.Items()[0].Literal(), off.Items()[1].Literal())
	}
	if t.End > size {
		return fault("data_offsets [%d, %d] reach beyond the %d bytes of data: the file is cut short or the header wrong", t.Begin, t.End, size)
	}
	want, why := byteSize(t.DType, t.Shape)
	switch {
	case why != "":
		return fault("shape %v of %s %s", t.Shape, dtype, why)
	case want != t.End-t.Begin:
		return fault("shape %v of %s takes %d bytes, but data_offsets give %d", t.Shape, dtype, want, t.End-t.Begin)
	}
	if _, unit := t.DType.Block(); t.Begin%int64(unit) != 0 {
		return fault("its data begins at offset %d, no multiple of the element size %d", t.Begin, unit)
	}
	return t, nil
}

// byteSize is the size of a tensor, or why it has none.
func byteSize(d tensor.DType, s tensor.Shape) (size int64, why string) {
	elems, bytes := d.Block()
	n := int64(bytes)
	for i, dim := range s {
		if i == len(s)-1 {
			if dim%int64(elems) != 0 {
				return 0, "splits a byte at the end of its rows"
			}
			dim /= int64(elems)
		}
		if dim == 0 {
			return 0, ""
		}
		if n > math.MaxInt64/dim {
			return 0, "has more bytes than can be counted"
		}
		n *= dim
	}
	if len(s) == 0 && elems != 1 {
		return 0, "splits a byte"
	}
	return n, ""
}

// tile sorts the tensors by offset and checks that they cover size bytes of data exactly.
func (h *Header) tile(size int64) *diag.Error {
	sort.SliceStable(h.Tensors, func(i, j int) bool {
		a, b := &h.Tensors[i], &h.Tensors[j]
		if a.Begin != b.Begin {
			return a.Begin < b.Begin
		}
		return a.End < b.End
	})
	var end int64
	last := "the start of data"
	for _, t := range h.Tensors {
		switch {
		case t.Begin < end:
			return diag.Errorf(diag.Format, "tensor %s: its bytes [%d, %d] overlap those of %s, which end at %d", t.Name, t.Begin, t.End, last, end).For(t.Name)
		case t.Begin > end:
			return diag.Errorf(diag.Format, "tensor %s: a hole of %d bytes lies between it and %s", t.Name, t.Begin-end, last).For(t.Name)
		}
		end, last = t.End, t.Name
	}
	if end != size {
		return diag.Errorf(diag.Format, "%d bytes trail behind the last tensor (%s)", size-end, last)
	}
	return nil
}

// DTypeName is the format's name of an element type; ok is false for those that it cannot store (GGUF's blocks).
func DTypeName(d tensor.DType) (name string, ok bool) {
	for name, t := range dtypes {
		if t == d {
			return name, true
		}
	}
	return strings.ToUpper(d.String()), false
}
