// SPDX-License-Identifier: MIT OR Apache-2.0

package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"sort"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/tensor"
)

// NamedTensor is a tensor with its bytes, row-major and little-endian.
type NamedTensor struct {
	Name  string
	DType tensor.DType
	Shape tensor.Shape
	Data  []byte
}

// Write writes a file. Tensors are laid out by element size, largest first, then by name, so that all are aligned; the
// header is padded with spaces to a multiple of 8. Errors: Invalid for tensors that cannot be written, IO from w.
func Write(w io.Writer, tensors []NamedTensor) error {
	infos, data := make([]tensor.Info, len(tensors)), make(map[string][]byte, len(tensors))
	for i, t := range tensors {
		if size, why := byteSize(t.DType, t.Shape); why == "" && size != int64(len(t.Data)) {
			dtype, _ := DTypeName(t.DType)
			return diag.Errorf(diag.Invalid, "tensor %s: shape %v of %s does not match its data", t.Name, t.Shape, dtype).For(t.Name)
		}
		infos[i], data[t.Name] = tensor.Info{Name: t.Name, DType: t.DType, Shape: t.Shape}, t.Data
	}
	return Stream(w, infos, func(name string, off int64, dst []byte) error {
		copy(dst, data[name][off:])
		return nil
	})
}

// streamBytes is how much Stream asks for at a time.
const streamBytes = 4 << 20

// Stream is Write of tensors whose bytes read gives, part after part.
func Stream(w io.Writer, tensors []tensor.Info, read func(name string, off int64, dst []byte) error) error {
	ts := append([]tensor.Info(nil), tensors...)
	sort.Slice(ts, func(i, j int) bool {
		_, a := ts[i].DType.Block()
		_, b := ts[j].DType.Block()
		if a != b {
			return a > b
		}
		return ts[i].Name < ts[j].Name
	})
	type info struct {
		DType   string       `json:"dtype"`
		Shape   tensor.Shape `json:"shape"`
		Offsets [2]int64     `json:"data_offsets"`
	}
	header := make(map[string]info, len(ts)) // encoding/json sorts the keys
	var off int64
	for _, t := range ts {
		dtype, ok := DTypeName(t.DType)
		if !ok {
			return diag.Errorf(diag.Invalid, "tensor %s: %s cannot be stored in safetensors", t.Name, dtype).For(t.Name)
		}
		size, why := byteSize(t.DType, t.Shape)
		if why != "" {
			return diag.Errorf(diag.Invalid, "tensor %s: shape %v of %s %s", t.Name, t.Shape, dtype, why).For(t.Name)
		}
		if _, dup := header[t.Name]; dup || t.Name == "" || t.Name == "__metadata__" {
			return diag.Errorf(diag.Invalid, "the tensor name %q is taken, reserved or empty", t.Name).For(t.Name)
		}
		if t.Shape == nil {
			t.Shape = tensor.Shape{}
		}
		header[t.Name] = info{dtype, t.Shape, [2]int64{off, off + size}}
		off += size
	}
	text, err := json.Marshal(header)
	if err != nil {
		return diag.Errorf(diag.Internal, "encoding the header failed").Because(err)
	}
	text = append(text, bytes.Repeat([]byte(" "), (8-len(text)%8)%8)...)
	for _, c := range [][]byte{binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text} {
		if _, err := w.Write(c); err != nil {
			return diag.Errorf(diag.IO, "writing safetensors failed").Because(err)
		}
	}
	var buf []byte
	for _, t := range ts {
		size := header[t.Name].Offsets[1] - header[t.Name].Offsets[0]
		for at := int64(0); at < size; at += streamBytes {
			n := min(streamBytes, size-at)
			if int64(len(buf)) < n {
				buf = make([]byte, n)
			}
			if err := read(t.Name, at, buf[:n]); err != nil {
				return err
			}
			if _, err := w.Write(buf[:n]); err != nil {
				return diag.Errorf(diag.IO, "writing safetensors failed").Because(err)
			}
		}
	}
	return nil
}
