// SPDX-License-Identifier: MIT OR Apache-2.0

package weights

import (
	"sort"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights/safetensors"
)

// Store is a checkpoint: named tensors, read lazily. Safe for concurrent use.
type Store interface {
	// Names are the tensors' names, sorted. The caller must not change the slice.
	Names() []string
	// Lookup describes a tensor; Read can read its Size.
	Lookup(name string) (tensor.Info, bool)
	// Read fills dst with the tensor's bytes from byte off on. Errors: NotFound for the name, Invalid for the range, IO.
	Read(name string, off int64, dst []byte) error
	// Bytes is the whole tensor without copying, if it lies in memory as it is (mapped, rows in order, aligned to its
	// element size); else ok is false and Read must be used. The view is read-only and ends with Close.
	Bytes(name string) (view []byte, ok bool)
	// Drop advises that the pages of the tensor's view are not needed any more. They come back when touched.
	Drop(name string)
	// TotalBytes is the sum of all tensors' sizes.
	TotalBytes() int64
	// Close ends the Store.
	Close() error
}

// memory is a Store over slices.
type memory struct {
	names []string
	by    map[string]safetensors.NamedTensor
	total int64
}

// Memory is a Store over tensors that are in memory, for tests and generated checkpoints. Names must differ, and the data
// must have the size that type and shape give (Invalid otherwise).
func Memory(tensors ...safetensors.NamedTensor) (Store, error) {
	m := &memory{by: make(map[string]safetensors.NamedTensor, len(tensors))}
	for _, t := range tensors {
		if _, dup := m.by[t.Name]; dup {
			return nil, diag.Errorf(diag.Invalid, "tensor %s is given twice", t.Name).For(t.Name)
		}
		if elems, bytes := t.DType.Block(); t.Shape.Elems()/int64(elems)*int64(bytes) != int64(len(t.Data)) {
			return nil, diag.Errorf(diag.Invalid, "tensor %s: %d bytes do not fill %v of %v", t.Name, len(t.Data), t.Shape, t.DType).For(t.Name)
		}
		m.by[t.Name] = t
		m.names = append(m.names, t.Name)
		m.total += int64(len(t.Data))
	}
	sort.Strings(m.names)
	return m, nil
}

func (m *memory) Names() []string { return m.names }

func (m *memory) Lookup(name string) (tensor.Info, bool) {
	t, ok := m.by[name]
	return tensor.Info{Name: t.Name, DType: t.DType, Shape: t.Shape}, ok
}

func (m *memory) Read(name string, off int64, dst []byte) error {
	t, ok := m.by[name]
	if !ok {
		return missing(name)
	}
	if err := inRange(name, off, len(dst), int64(len(t.Data))); err != nil {
		return err
	}
	copy(dst, t.Data[off:])
	return nil
}

func (m *memory) Bytes(name string) ([]byte, bool) { t, ok := m.by[name]; return t.Data, ok }
func (m *memory) Drop(string)                      {}
func (m *memory) TotalBytes() int64                { return m.total }
func (m *memory) Close() error                     { return nil }

func missing(name string) error {
	return diag.Errorf(diag.NotFound, "the checkpoint has no tensor %s", name).For(name)
}

// inRange checks that n bytes from off on lie in a tensor of size bytes.
func inRange(name string, off int64, n int, size int64) error {
	if off < 0 || int64(n) > size || off > size-int64(n) {
		return diag.Errorf(diag.Invalid, "tensor %s: %d bytes at %d are not within its %d bytes", name, n, off, size).For(name)
	}
	return nil
}
