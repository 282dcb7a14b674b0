// SPDX-License-Identifier: MIT OR Apache-2.0

package kernel

import (
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/metrale/metrale/internal/diag"
)

// unreadable is a tree one of whose files is there, but cannot be read.
type unreadable struct {
	fstest.MapFS
	name string
}

func (u unreadable) ReadFile(name string) ([]byte, error) {
	if name == u.name {
		return nil, &fs.PathError{Op: "read", Path: name, Err: syscall.EIO}
	}
	return u.MapFS.ReadFile(name)
}

// counted counts how often files are read.
type counted struct {
	fstest.MapFS
	reads map[string]int
}

func (c counted) ReadFile(name string) ([]byte, error) {
	c.reads[name]++
	return c.MapFS.ReadFile(name)
}

// TestCheckReadsAHeaderOnce: to look for copies, and for the closures of all modules of all targets.
func TestCheckReadsAHeaderOnce(t *testing.T) {
	fsys, tree, _ := compiled(t)
	c := counted{fsys, map[string]int{}}
	if bad := tree.Check(c); len(bad) > 0 {
		t.Fatal(bad)
	}
	for _, name := range []string{"hw/common/a/points.cuh", "base/common/a/rows.cu"} {
		if n := c.reads[name]; n != 2 {
			t.Errorf("%s is read %d times", name, n)
		}
	}
}

// TestCheckTellsWhatCannotBeRead: a disk that fails is no file that is missing.
func TestCheckTellsWhatCannotBeRead(t *testing.T) {
	for _, name := range []string{"FORKS.md", "bin/hw/a.rows.zst", "bin/hw/index.json", "hw/common/a/points.cuh"} {
		fsys, tree, _ := compiled(t)
		if fsys[name] == nil {
			t.Errorf("there is no %s", name)
			continue
		}
		bad := tree.Check(unreadable{fsys, name})
		if len(bad) == 0 || !diag.Is(bad[0], diag.IO) {
			t.Errorf("%s: %v", name, bad)
		}
		for _, err := range bad {
			if diag.Is(err, diag.NotFound) || strings.Contains(err.Error(), "missing") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	fsys, tree, _ := compiled(t)
	delete(fsys, "FORKS.md")
	if bad := tree.Check(fsys); len(bad) != 1 || !diag.Is(bad[0], diag.NotFound) || bad[0].Error() != "FORKS.md is missing; it lists every shadow" {
		t.Errorf("%v", bad)
	}
	if _, err := ReadSeen(unreadable{fstest.MapFS{}, "hw/SEEN.toml"}, "hw/SEEN.toml"); !diag.Is(err, diag.IO) {
		t.Errorf("%v", err)
	}
}
