// SPDX-License-Identifier: MIT OR Apache-2.0

package safetensors

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/tensor"
)

// file builds a file from header text and a number of data bytes.
func file(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

func read(b []byte) (*Header, error) {
	return ReadHeader("m.safetensors", bytes.NewReader(b), int64(len(b)))
}

func TestWrittenFilesReadBack(t *testing.T) {
	in := []NamedTensor{
		{"b", tensor.E2M1, tensor.Shape{2, 4}, []byte{1, 2, 3, 4}},
		{"a", tensor.F32, tensor.Shape{1, 2}, []byte{0, 0, 128, 63, 0, 0, 0, 64}},
		{"s", tensor.I64, nil, []byte{7, 0, 0, 0, 0, 0, 0, 0}},
		{"empty", tensor.BF16, tensor.Shape{0, 5}, nil},
	}
	var w bytes.Buffer
	if err := Write(&w, in); err != nil {
		t.Fatal(err)
	}
	h, err := read(w.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Tensors) != len(in) || h.Tensors[0].Name != "s" {
		t.Fatalf("%+v", h.Tensors)
	}
	for _, want := range in {
		for _, got := range h.Tensors {
			if got.Name == want.Name && (got.DType != want.DType || !got.Shape.Equal(want.Shape) || !bytes.Equal(w.Bytes()[got.Begin:got.End], want.Data)) {
				t.Errorf("%s came back as %+v", want.Name, got)
			}
		}
	}
	if h.Tensors[0].Begin%8 != 0 {
		t.Errorf("data begins at %d", h.Tensors[0].Begin)
	}
}

func TestWriteRefusesWhatItCannotStore(t *testing.T) {
	for _, c := range []struct {
		t    NamedTensor
		want string
	}{
		{NamedTensor{"q", tensor.Q4_0, tensor.Shape{32}, make([]byte, 18)}, "tensor q: Q4_0 cannot be stored in safetensors"},
		{NamedTensor{"a", tensor.F32, tensor.Shape{2}, make([]byte, 4)}, "tensor a: shape [2] of F32 does not match its data"},
		{NamedTensor{"", tensor.F32, nil, make([]byte, 4)}, `the tensor name "" is taken, reserved or empty`},
	} {
		if err := Write(&bytes.Buffer{}, []NamedTensor{c.t}); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
	}
}

// TestHeaderFaults: one fault each; the message names the file and, where one is at fault, the tensor.
func TestHeaderFaults(t *testing.T) {
	one := func(dtype, shape, offsets string) string {
		return `{"x":{"dtype":"` + dtype + `","shape":` + shape + `,"data_offsets":` + offsets + `}}`
	}
	for name, c := range map[string]struct {
		file  []byte
		want  string
		param string
	}{
		"empty file":          {nil, "0 bytes are too few for a safetensors file", ""},
		"seven bytes":         {make([]byte, 7), "7 bytes are too few", ""},
		"huge header":         {binary.LittleEndian.AppendUint64(nil, 1<<60), "claims 1152921504606846976 bytes; at most", ""},
		"header past the end": {binary.LittleEndian.AppendUint64(nil, 99), "claims 99 bytes, but the file has 8", ""},
		"no header":           {make([]byte, 8), "the header claims 0 bytes; the shortest has 2", ""},
		"not JSON":            {file(`{nope}`, 0), "header, byte 2: expected a key in quotes", ""},
		"not an object":       {file(`[]`, 0), "does not start with '{'", ""},
		"duplicate tensor":    {file(`{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2), `duplicate key "x"`, ""},
		"duplicate field":     {file(`{"x":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}}`, 1), `duplicate key "dtype"`, ""},
		"name not UTF-8":      {file("{\"\xff\":{}}", 0), "no valid UTF-8", ""},
		"empty name":          {file(`{"":{}}`, 0), "has no name", ""},
		"not described":       {file(`{"x":3}`, 0), "tensor x: its description is an integer", "x"},
		"unknown field":       {file(`{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"strides":[1]}}`, 1), `tensor x: unknown key "strides"`, "x"},
		"no dtype":            {file(`{"x":{"shape":[1],"data_offsets":[0,1]}}`, 1), "tensor x: dtype is missing", "x"},
		"unknown dtype":       {file(one("F7", "[1]", "[0,1]"), 1), `tensor x: dtype "F7" is not supported`, "x"},
		"unsupported dtype":   {file(one("U32", "[1]", "[0,4]"), 4), `tensor x: dtype "U32" is not supported`, "x"},
		"no shape":            {file(`{"x":{"dtype":"U8","data_offsets":[0,1]}}`, 1), "tensor x: shape is missing", "x"},
		"negative extent":     {file(one("U8", "[-1]", "[0,1]"), 1), "tensor x: shape has the extent -1", "x"},
		"fractional extent":   {file(one("U8", "[1.0]", "[0,1]"), 1), "tensor x: shape has the extent 1.0", "x"},
		"extent over 64 bits": {file(one("U8", "[18446744073709551616]", "[0,1]"), 1), "tensor x: shape has the extent", "x"},
		"size overflows":      {file(one("F32", "[4611686018427387905,4]", "[0,16]"), 16), "has more bytes than can be counted", "x"},
		"product wraps to 1":  {file(one("U8", "[4294967296,4294967296]", "[0,0]"), 0), "has more bytes than can be counted", "x"},
		"no offsets":          {file(`{"x":{"dtype":"U8","shape":[1]}}`, 1), "tensor x: data_offsets is missing", "x"},
		"three offsets":       {file(one("U8", "[1]", "[0,1,2]"), 1), "tensor x: data_offsets is missing or no list of two", "x"},
		"reversed offsets":    {file(one("U8", "[1]", "[1,0]"), 1), "tensor x: data_offsets [1, 0] are no range", "x"},
		"out of range":        {file(one("U8", "[2]", "[0,2]"), 1), "tensor x: data_offsets [0, 2] reach beyond the 1 bytes", "x"},
		"size mismatch":       {file(one("F32", "[2]", "[0,4]"), 4), "tensor x: shape [2] of F32 takes 8 bytes, but data_offsets give 4", "x"},
		"half a byte":         {file(one("F4", "[2,3]", "[0,3]"), 3), "tensor x: shape [2 3] of F4 splits a byte", "x"},
		"hole in front":       {file(one("U8", "[1]", "[1,2]"), 2), "tensor x: a hole of 1 bytes", "x"},
		"trailing bytes":      {file(one("U8", "[1]", "[0,1]"), 2), "1 bytes trail behind the last tensor (x)", ""},
		"data without tensor": {file(`{}`, 2), "2 bytes trail behind", ""},
		"hole between": {file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}`, 3),
			"tensor b: a hole of 1 bytes lies between it and a", "b"},
		"overlap": {file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 3),
			"tensor b: its bytes [1, 3] overlap those of a, which end at 2", "b"},
		"the same bytes twice": {file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 2),
			"tensor b: its bytes [0, 2] overlap", "b"},
		"misaligned": {file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F16","shape":[1],"data_offsets":[1,3]}}`, 3),
			"tensor b: its data begins at offset 1, no multiple of the element size 2", "b"},
		"metadata of numbers": {file(`{"__metadata__":{"format":1}}`, 0), "__metadata__.format is an integer", ""},
		"metadata a list":     {file(`{"__metadata__":[]}`, 0), "__metadata__ is a list", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := read(c.file)
			if err == nil || !strings.HasPrefix(err.Error(), "m.safetensors: ") || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %s", err, c.want)
			}
			if e, _ := diag.As(err); e.Code != diag.Format || e.Param != c.param {
				t.Errorf("code %s, param %q", e.Code, e.Param)
			}
		})
	}
}

func TestOddButLegalHeaders(t *testing.T) {
	for name, b := range map[string][]byte{
		"no tensors":             file(`{}`, 0),
		"padded header":          file(`{"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}   `, 1),
		"zero-sized in between":  file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"z":{"dtype":"U8","shape":[0],"data_offsets":[1,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2),
		"zero times the largest": file(`{"z":{"dtype":"F32","shape":[0,9223372036854775807],"data_offsets":[0,0]}}`, 0),
		"metadata":               file(`{"__metadata__":{"format":"pt"}}`, 0),
	} {
		if _, err := read(b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestIndex(t *testing.T) {
	ix, err := ParseIndex("i.json", []byte(`{"metadata":{"total_size":3},"weight_map":{"b":"2.safetensors","a":"1.safetensors","c":"2.safetensors"}}`))
	if err != nil || strings.Join(ix.Shards, " ") != "2.safetensors 1.safetensors" || ix.Where["c"] != "2.safetensors" {
		t.Fatalf("%+v %v", ix, err)
	}
	for text, want := range map[string]string{
		`{}`:                               "i.json:1:1: weight_map is missing",
		`{"weight_map":{}}`:                "i.json:1:15: weight_map names no tensor",
		`{"weight_map":{"a":1}}`:           "the shard of tensor a is an integer",
		`{"weight_map":{"a":"../../x"}}`:   "is no plain file name",
		`{"weight_map":{"a":"/x"}}`:        "is no plain file name",
		`{"weight_map":{"a":"x","a":"y"}}`: `duplicate key "a"`,
	} {
		if _, err := ParseIndex("i.json", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

// FuzzReadHeader: whatever the bytes, no panic; and what is accepted lies inside the file and tiles it.
func FuzzReadHeader(f *testing.F) {
	f.Add(file(`{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"__metadata__":{"a":"b"}}`, 4))
	f.Add(file(`{"a":{"dtype":"F4","shape":[2],"data_offsets":[0,1]}}`, 1))
	f.Add(file(`{"z":{"dtype":"U8","shape":[0,1],"data_offsets":[0,0]}}`, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := read(b)
		if err != nil {
			if _, ok := diag.As(err); !ok {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		end := int64(8) + int64(binary.LittleEndian.Uint64(b))
		for _, x := range h.Tensors {
			if x.Begin != end || x.End-x.Begin != x.DType.Bytes(x.Shape.Elems()) {
				t.Fatalf("%+v accepted at %d", x, end)
			}
			end = x.End
		}
		if end != int64(len(b)) {
			t.Fatalf("tensors end at %d of %d", end, len(b))
		}
	})
}
