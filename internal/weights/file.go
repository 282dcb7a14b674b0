// SPDX-License-Identifier: MIT OR Apache-2.0

package weights

import (
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/metrale/metrale/internal/diag"
)

// file is an open checkpoint file, mapped or not.
type file struct {
	name   string // as messages show it
	f      readerAt
	size   int64
	mapped []byte // nil if not mapped
}

// readerAt is a file that is read at any place.
type readerAt interface {
	fs.File
	io.ReaderAt
}

// openFile opens a file of fsys. A mapping that fails is no error: the file is then read.
func openFile(fsys fs.FS, name string, mmap bool) (*file, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, osError(name, err)
	}
	st, err := f.Stat()
	at, ok := f.(readerAt)
	if err == nil && (!ok || !st.Mode().IsRegular()) {
		err = errors.New("not a regular file")
	}
	if err != nil {
		f.Close()
		return nil, osError(name, err)
	}
	o := &file{name: name, f: at, size: st.Size()}
	if file, ok := f.(*os.File); ok && mmap && o.size > 0 && int64(int(o.size)) == o.size {
		o.mapped, _ = mapFile(file, int(o.size))
	}
	return o, nil
}

// readAt fills dst from off on.
func (f *file) readAt(dst []byte, off int64) error {
	n, err := f.f.ReadAt(dst, off)
	if n == len(dst) {
		return nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // shorter than when it was opened
	}
	return osError(f.name, err)
}

// drop advises that the pages wholly inside [begin, end) are not needed.
func (f *file) drop(begin, end int64) {
	page := int64(os.Getpagesize())
	begin = (begin + page - 1) / page * page
	if end < f.size {
		end = end / page * page
	}
	if f.mapped != nil && begin < end {
		dropPages(f.mapped[begin:end])
	}
}

func (f *file) close() error {
	if f.mapped != nil {
		unmapFile(f.mapped)
		f.mapped = nil
	}
	return f.f.Close()
}

// osError types an error of the operating system.
func osError(name string, err error) error {
	e := diag.Errorf(diag.IO, "reading failed").At(diag.Pos{File: name}).Because(err)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Code, e.Msg = diag.NotFound, "no such file or directory"
	case errors.Is(err, fs.ErrPermission):
		e.Code, e.Msg = diag.Denied, "permission denied"
	case errors.Is(err, io.ErrUnexpectedEOF):
		e.Msg = "the file is shorter than when it was opened"
	case errors.Is(err, fs.ErrClosed):
		e.Code, e.Msg = diag.Internal, "read after close"
	}
	return e
}
