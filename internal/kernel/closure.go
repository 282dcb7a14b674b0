// SPDX-License-Identifier: MIT OR Apache-2.0

package kernel

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/metrale/metrale/internal/diag"
)

var quotedInclude = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*include[ \t]+"([^"\n]+)"`)

// Sources reads the files of a tree, each once: most modules include the same ones. It is for one goroutine, while nobody changes the tree.
type Sources struct {
	fsys  fs.FS
	files map[string]*sourceFile
}

// NewSources reads nothing yet.
func NewSources(fsys fs.FS) *Sources { return &Sources{fsys, map[string]*sourceFile{}} }

// sourceFile is a file and what it includes, by paths from the root.
type sourceFile struct {
	text     []byte
	includes []string
}

// Closure is the hash of all that a module's code depends on: its source and everything that it includes by quotes, flags,
// architecture and compiler. Includes are looked up beside the including file, then in include/, then from the tree's root;
// those in angle brackets belong to the compiler, and conditions are not evaluated.
func (s *Sources) Closure(m *Module, compiler string) (string, error) {
	files := map[string]*sourceFile{}
	if m.Generated != "" {
		f, err := s.parse(m.Source, []byte(m.Generated))
		if err != nil {
			return "", err
		}
		files[m.Source] = f
		for _, name := range f.includes {
			if err := s.collect(name, files); err != nil {
				return "", err
			}
		}
	} else if err := s.collect(m.Source, files); err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintf(h, "arch %s\ncompiler %s\nflags %s\n", m.Arch, compiler, strings.Join(m.Flags, "\x00"))
	for _, n := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(h, "file %s %d\n", n, len(files[n].text))
		h.Write(files[n].text)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// collect puts a file and what it includes into files.
func (s *Sources) collect(file string, files map[string]*sourceFile) error {
	if files[file] != nil {
		return nil
	}
	f, err := s.read(file)
	if err != nil {
		return err
	}
	files[file] = f
	for _, name := range f.includes {
		if err := s.collect(name, files); err != nil {
			return err
		}
	}
	return nil
}

// read reads a file that was not read before.
func (s *Sources) read(file string) (*sourceFile, error) {
	if f := s.files[file]; f != nil {
		return f, nil
	}
	text, err := fs.ReadFile(s.fsys, file)
	if err != nil {
		return nil, Unread(file, err)
	}
	f, err := s.parse(file, text)
	if err == nil {
		s.files[file] = f
	}
	return f, err
}

// parse finds what a file includes.
func (s *Sources) parse(file string, text []byte) (*sourceFile, error) {
	f := &sourceFile{text: text}
	for _, m := range quotedInclude.FindAllSubmatchIndex(text, -1) {
		name := string(text[m[2]:m[3]])
		found := ""
		for _, dir := range []string{path.Dir(file), "include", "."} {
			if c := path.Join(dir, name); fs.ValidPath(c) && exists(s.fsys, c) {
				found = c
				break
			}
		}
		if found == "" {
			line := 1 + bytes.Count(text[:m[2]], []byte("\n"))
			return nil, diag.Errorf(diag.Format, "%q is neither beside the file nor in include/ nor in the tree", name).At(diag.Pos{File: file, Line: line})
		}
		f.includes = append(f.includes, found)
	}
	return f, nil
}
