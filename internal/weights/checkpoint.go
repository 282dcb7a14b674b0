// SPDX-License-Identifier: MIT OR Apache-2.0

package weights

import (
	"errors"
	"sort"

	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights/gguf"
)

// checkpoint is the Store over files: each tensor is a range of one of them.
type checkpoint struct {
	names []string
	by    map[string]source
	files []*file
	total int64
}

// source is where a tensor's bytes lie: at begin of file; in the order and form of view, if that is not nil.
type source struct {
	tensor.Info
	file  *file
	begin int64
	view  *gguf.View
}

// newCheckpoint builds the Store; it owns the files.
func newCheckpoint(files []*file, sources []source) *checkpoint {
	c := &checkpoint{by: make(map[string]source, len(sources)), files: files}
	for _, s := range sources {
		c.names = append(c.names, s.Name)
		c.by[s.Name] = s
		c.total += s.Size()
	}
	sort.Strings(c.names)
	return c
}

func (c *checkpoint) Names() []string { return c.names }

func (c *checkpoint) Lookup(name string) (tensor.Info, bool) { s, ok := c.by[name]; return s.Info, ok }

func (c *checkpoint) Read(name string, off int64, dst []byte) error {
	s, ok := c.by[name]
	if !ok {
		return missing(name)
	}
	if err := inRange(name, off, len(dst), s.Size()); err != nil {
		return err
	}
	if s.view != nil {
		return s.readView(off, dst)
	}
	return s.file.readAt(dst, s.begin+off)
}

func (c *checkpoint) Bytes(name string) ([]byte, bool) {
	s, ok := c.by[name]
	if !ok || s.file.mapped == nil || s.view != nil {
		return nil, false
	}
	if elems, unit := s.DType.Block(); elems == 1 && s.begin%int64(unit) != 0 {
		return nil, false // the file's header is not padded; a caller may want to see the bytes as numbers
	}
	end := s.begin + s.Size()
	return s.file.mapped[s.begin:end:end], true
}

func (c *checkpoint) Drop(name string) {
	if s, ok := c.by[name]; ok && s.view == nil {
		s.file.drop(s.begin, s.begin+s.Size())
	}
}

func (c *checkpoint) TotalBytes() int64 { return c.total }

func (c *checkpoint) Close() error { return closeAll(c.files) }

func closeAll(files []*file) error {
	var errs []error
	for _, f := range files {
		errs = append(errs, f.close())
	}
	return errors.Join(errs...)
}
