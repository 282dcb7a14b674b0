// SPDX-License-Identifier: MIT OR Apache-2.0

package weights

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights/gguf"
)

// splitName is the name of one part of a split GGUF file: prefix, number, count.
var splitName = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.gguf$`)

// ggufParts are the file names of all parts of the file at path.
func ggufParts(path string) ([]string, error) {
	dir, base := filepath.Split(path)
	m := splitName.FindStringSubmatch(base)
	if m == nil {
		return []string{path}, nil
	}
	count, _ := strconv.Atoi(m[3])
	if n, _ := strconv.Atoi(m[2]); n < 1 || n > count {
		return nil, diag.Errorf(diag.Format, "part %d of %d cannot be", n, count).At(diag.Pos{File: base})
	}
	parts := make([]string, count)
	for i := range parts {
		parts[i] = filepath.Join(dir, fmt.Sprintf("%s-%05d-of-%05d.gguf", m[1], i+1, count))
	}
	return parts, nil
}

// soleGGUF is the GGUF file that path means: itself, or the only one of a directory without safetensors; empty if there is
// none.
func soleGGUF(path string, isDir bool) (string, error) {
	if !isDir {
		if strings.HasSuffix(path, ".gguf") {
			return path, nil
		}
		return "", nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return "", osError(path, err)
	}
	var found []string
	for _, e := range entries {
		name := e.Name()
		if strings.HasSuffix(name, ".safetensors") {
			return "", nil
		}
		if m := splitName.FindStringSubmatch(name); strings.HasSuffix(name, ".gguf") && (m == nil || m[2] == "00001") {
			found = append(found, name)
		}
	}
	switch len(found) {
	case 0:
		return "", nil
	case 1:
		return filepath.Join(path, found[0]), nil
	}
	return "", diag.Errorf(diag.Invalid, "it has several GGUF files; choose one of: %s", strings.Join(found, ", ")).At(diag.Pos{File: path})
}

// openGGUF opens a GGUF file, or all parts of a split one.
func openGGUF(path string, o Options) (_ Store, _ *Files, err error) {
	parts, err := ggufParts(path)
	if err != nil {
		return nil, nil, err
	}
	var files []*file
	defer func() {
		if err != nil {
			_ = closeAll(files)
		}
	}()
	meta := &modelconf.Metadata{Tensors: map[string]tensor.Shape{}}
	var stored []gguf.Tensor
	home := map[string]*file{} // stored tensor → file
	for i, part := range parts {
		f, err := openFile(folder(filepath.Dir(part)), filepath.Base(part), o.Mmap)
		if err != nil {
			return nil, nil, err
		}
		files = append(files, f)
		h, err := gguf.Read(f.name, f.f, f.size)
		if err != nil {
			return nil, nil, err
		}
		if i == 0 {
			meta.File, meta.Values = f.name, h.Metadata
		}
		if err := checkPart(f.name, h, i, len(parts)); err != nil {
			return nil, nil, err
		}
		for _, t := range h.Tensors {
			if first, dup := home[t.Name]; dup {
				return nil, nil, diag.Errorf(diag.Format, "tensor %s is also in %s", t.Name, first.name).At(diag.Pos{File: f.name}).For(t.Name)
			}
			home[t.Name] = f
			stored = append(stored, t)
			meta.Tensors[t.Name] = t.Shape
			if block, _ := t.DType.Block(); block > 1 {
				meta.Quantized = true
			}
			if t.Name == "rope_freqs.weight" {
				if meta.RopeFreqs, err = readFloats(f, t); err != nil {
					return nil, nil, err
				}
			}
		}
	}
	if want, ok := meta.Int("split.tensors.count"); ok && want != int64(len(stored)) {
		return nil, nil, diag.Errorf(diag.Format, "%d tensors are promised, but the parts have %d", want, len(stored)).At(diag.Pos{File: meta.File}).For("split.tensors.count")
	}
	views, err := gguf.Views(stored, meta)
	if err != nil {
		return nil, nil, err
	}
	sources := make([]source, len(views))
	for i := range views {
		v := &views[i]
		sources[i] = source{tensor.Info{Name: v.Name, DType: v.DType, Shape: v.Shape}, home[v.Source.Name], v.Source.Begin, v}
		if v.Plain() {
			sources[i].view = nil
		}
	}
	return newCheckpoint(files, sources), &Files{Path: path, Side: map[string][]byte{}, GGUF: meta}, nil
}

// checkPart checks what a part of a split file says about itself against its place.
func checkPart(name string, h *gguf.File, i, count int) error {
	m := &modelconf.Metadata{Values: h.Metadata}
	for key, want := range map[string]int{"split.no": i, "split.count": count} {
		got, ok := m.Int(key)
		if ok && int(got) != want && (count > 1 || got > 1) || !ok && count > 1 {
			return diag.Errorf(diag.Format, "%s is %d, but the file's name says %d: has it been renamed?", key, got, want).At(diag.Pos{File: name}).For(key)
		}
	}
	return nil
}

// readFloats reads a small tensor as float32.
func readFloats(f *file, t gguf.Tensor) ([]float32, error) {
	raw := make([]byte, t.End-t.Begin)
	if err := f.readAt(raw, t.Begin); err != nil {
		return nil, err
	}
	out := make([]float32, t.Shape.Elems())
	return out, Dequantize(out, t.DType, raw)
}

// batchBytes is about how much of a view is put together at a time.
const batchBytes = 1 << 20

// readView is Read for a tensor whose rows, columns or values are not as stored; the range has been checked.
func (s *source) readView(off int64, dst []byte) error {
	width := s.Shape[len(s.Shape)-1] // elements of a row
	if len(s.view.Source.Shape) == 1 {
		width = 1
	}
	rowBytes := s.DType.Bytes(width)
	batch := max(1, batchBytes/rowBytes)
	for len(dst) > 0 {
		row, skip := off/rowBytes, off%rowBytes
		rows := min(batch, (skip+int64(len(dst))+rowBytes-1)/rowBytes)
		out := dst
		if skip != 0 || rows*rowBytes > int64(len(dst)) {
			out = make([]byte, rows*rowBytes) // only a part of it is wanted
		}
		out = out[:rows*rowBytes]
		if err := s.viewRows(row, rows, width, out); err != nil {
			return err
		}
		n := int64(len(out)) - skip
		if &out[0] != &dst[0] {
			n = int64(copy(dst, out[skip:]))
		}
		dst, off = dst[n:], off+n
	}
	return nil
}

// viewRows writes rows of the view into out.
func (s *source) viewRows(row, rows, width int64, out []byte) error {
	v := s.view
	stored := v.Source.DType.Bytes(width)
	if v.Cols == nil && v.Value == nil {
		return s.gather(row, rows, stored, out)
	}
	raw := make([]byte, rows*stored)
	if err := s.gather(row, rows, stored, raw); err != nil {
		return err
	}
	if !v.Computed() { // heads are whole blocks: move them
		elems, unit := v.DType.Block()
		for r := int64(0); r < rows; r++ {
			from, to := raw[r*stored:], out[r*stored:]
			for i := int64(0); i < width; i += int64(elems) {
				j := v.Cols.Stored(i)
				at, by := i/int64(elems)*int64(unit), j/int64(elems)*int64(unit)
				copy(to[at:at+int64(unit)], from[by:])
			}
		}
		return nil
	}
	x := make([]float32, rows*width)
	if err := Dequantize(x, v.Source.DType, raw); err != nil {
		return err
	}
	for i := range x {
		r, c := int64(i)/width, int64(i)%width
		y := x[r*width+v.Cols.Stored(c)]
		if v.Value != nil {
			y = v.Value(y)
		}
		binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(y))
	}
	return nil
}

// gather reads the stored rows that rows of the view come from, in the view's order. Where they lie close together, they
// are read at once.
func (s *source) gather(row, rows, rowBytes int64, out []byte) error {
	order := s.view.Rows
	low, high := order.Stored(row), order.Stored(row)
	for r := row; r < row+rows; r++ {
		low, high = min(low, order.Stored(r)), max(high, order.Stored(r))
	}
	span := (high - low + 1) * rowBytes
	if order != nil && (span <= batchBytes || span <= 4*rows*rowBytes) {
		raw := make([]byte, span)
		if err := s.file.readAt(raw, s.begin+low*rowBytes); err != nil {
			return err
		}
		for r := range rows {
			copy(out[r*rowBytes:(r+1)*rowBytes], raw[(order.Stored(row+r)-low)*rowBytes:])
		}
		return nil
	}
	for r := int64(0); r < rows; {
		first, n := order.Stored(row+r), int64(1)
		for r+n < rows && order.Stored(row+r+n) == first+n {
			n++
		}
		if err := s.file.readAt(out[r*rowBytes:(r+n)*rowBytes], s.begin+first*rowBytes); err != nil {
			return err
		}
		r += n
	}
	return nil
}
