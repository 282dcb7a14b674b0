// SPDX-License-Identifier: MIT OR Apache-2.0

package kernel

import (
	"bytes"
	"errors"
	"io/fs"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/metrale/metrale/internal/diag"
)

// File is a TOML file that was read; it remembers where each key stands, so that a later check can point at it.
type File struct {
	Name string
	pos  map[string]diag.Pos
}

// ReadTOML decodes a file strictly: a key that into has no field for is an error. Every error has a position.
func ReadTOML(fsys fs.FS, name string, into any) (*File, error) {
	src, err := fs.ReadFile(fsys, name)
	if err != nil {
		return nil, Unread(name, err)
	}
	return DecodeTOML(name, src, into)
}

// Unread is the error of a file of the tree that could not be read: it is not there, or what holds it failed.
func Unread(name string, err error) *diag.Error {
	if errors.Is(err, fs.ErrNotExist) {
		return diag.Errorf(diag.NotFound, "%s: no such file in the kernel tree", name).Because(err)
	}
	return diag.Errorf(diag.IO, "%s cannot be read", name).Because(err)
}

// DecodeTOML is ReadTOML of text that is already there.
func DecodeTOML(name string, src []byte, into any) (*File, error) {
	d := toml.NewDecoder(bytes.NewReader(src))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return nil, decodeError(name, err)
	}
	return &File{Name: name, pos: positions(name, src)}, nil
}

func decodeError(name string, err error) error {
	var strict *toml.StrictMissingError
	if errors.As(err, &strict) && len(strict.Errors) > 0 {
		e := &strict.Errors[0]
		return diag.Errorf(diag.Format, "unknown key %s", strings.Join(e.Key(), ".")).At(place(name, e)).Because(err)
	}
	var bad *toml.DecodeError
	if errors.As(err, &bad) {
		return diag.Errorf(diag.Format, "%s", strings.TrimPrefix(bad.Error(), "toml: ")).At(place(name, bad)).Because(err)
	}
	return diag.Errorf(diag.Format, "%s", err).At(diag.Pos{File: name, Line: 1})
}

func place(name string, e *toml.DecodeError) diag.Pos {
	line, col := e.Position()
	return diag.Pos{File: name, Line: line, Col: col}
}

// positions indexes each key of a valid document by its path: "dims.hidden", "node.3.op".
func positions(name string, src []byte) map[string]diag.Pos {
	out := map[string]diag.Pos{}
	counts := map[string]int{}
	var p unstable.Parser
	p.Reset(src)
	var line lines
	line.init(src)
	at := func(r unstable.Range) diag.Pos { return line.pos(name, int(r.Offset)) }
	// path joins the parts of a key to prefix; below an array of tables it goes into the newest element.
	path := func(prefix string, it unstable.Iterator) (string, diag.Pos) {
		var pos diag.Pos
		for first := true; it.Next(); first = false {
			if prefix != "" {
				if n := counts[prefix]; n > 0 && !first {
					prefix += "." + strconv.Itoa(n-1)
				}
				prefix += "."
			}
			prefix += string(it.Node().Data)
			if first {
				pos = at(it.Node().Raw)
			}
			if _, ok := out[prefix]; !ok {
				out[prefix] = at(it.Node().Raw)
			}
		}
		return prefix, pos
	}
	var value func(prefix string, v *unstable.Node)
	value = func(prefix string, v *unstable.Node) {
		switch v.Kind {
		case unstable.InlineTable:
			for it := v.Children(); it.Next(); {
				k, pos := path(prefix, it.Node().Key())
				out[k] = pos
				value(k, it.Node().Value())
			}
		case unstable.Array:
			i := 0
			for it := v.Children(); it.Next(); i++ {
				k := prefix + "." + strconv.Itoa(i)
				if it.Node().Raw.Length > 0 {
					out[k] = at(it.Node().Raw)
				}
				value(k, it.Node())
			}
		}
	}
	table := ""
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			k, pos := path("", e.Key())
			if e.Kind == unstable.ArrayTable {
				counts[k]++
				k += "." + strconv.Itoa(counts[k]-1)
			}
			out[k], table = pos, k
		case unstable.KeyValue:
			k, pos := path(table, e.Key())
			out[k] = pos
			value(k, e.Value())
		}
	}
	return out
}

// lines finds the line of an offset.
type lines struct{ starts []int }

func (l *lines) init(src []byte) {
	l.starts = append(l.starts, 0)
	for i, c := range src {
		if c == '\n' {
			l.starts = append(l.starts, i+1)
		}
	}
}

func (l *lines) pos(name string, off int) diag.Pos {
	lo, hi := 0, len(l.starts)
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; l.starts[mid] <= off {
			lo = mid
		} else {
			hi = mid
		}
	}
	return diag.Pos{File: name, Line: lo + 1, Col: off - l.starts[lo] + 1}
}

// At is where a key stands, or the nearest table around it that is written down.
func (f *File) At(path string) diag.Pos {
	for {
		if p, ok := f.pos[path]; ok {
			return p
		}
		i := strings.LastIndexByte(path, '.')
		if i < 0 {
			return diag.Pos{File: f.Name, Line: 1}
		}
		path = path[:i]
	}
}

// Errorf is an error of code Format at a key.
func (f *File) Errorf(path, format string, args ...any) *diag.Error {
	return diag.Errorf(diag.Format, format, args...).At(f.At(path)).For(path)
}
