// SPDX-License-Identifier: MIT OR Apache-2.0

package kernel

import (
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

// Closure is the hash of all that a module's code depends on: its source and everything that it includes by quotes, flags,
// architecture and compiler. Includes are looked up beside the including file, then in include/, then from the tree's root;
// those in angle brackets belong to the compiler, and conditions are not evaluated.
func (m *Module) Closure(fsys fs.FS, compiler string) (string, error) {
	files := map[string][]byte{}
	if m.Generated != "" {
		files[m.Source] = []byte(m.Generated)
		if err := follow(fsys, m.Source, files); err != nil {
			return "", err
		}
	} else if err := collect(fsys, m.Source, files); err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintf(h, "arch %s\ncompiler %s\nflags %s\n", m.Arch, compiler, strings.Join(m.Flags, "\x00"))
	for _, n := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(h, "file %s %d\n", n, len(files[n]))
		h.Write(files[n])
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// collect reads a file and what it includes into files.
func collect(fsys fs.FS, file string, files map[string][]byte) error {
	if _, done := files[file]; done {
		return nil
	}
	src, err := fs.ReadFile(fsys, file)
	if err != nil {
		return diag.Errorf(diag.IO, "%s cannot be read", file).Because(err)
	}
	files[file] = src
	return follow(fsys, file, files)
}

// follow collects what a file that is in files includes.
func follow(fsys fs.FS, file string, files map[string][]byte) error {
	src := files[file]
	for _, m := range quotedInclude.FindAllSubmatchIndex(src, -1) {
		name := string(src[m[2]:m[3]])
		found := ""
		for _, dir := range []string{path.Dir(file), "include", "."} {
			if c := path.Join(dir, name); fs.ValidPath(c) && exists(fsys, c) {
				found = c
				break
			}
		}
		if found == "" {
			line := 1 + strings.Count(string(src[:m[2]]), "\n")
			return diag.Errorf(diag.Format, "%q is neither beside the file nor in include/ nor in the tree", name).At(diag.Pos{File: file, Line: line})
		}
		if err := collect(fsys, found, files); err != nil {
			return err
		}
	}
	return nil
}
