// SPDX-License-Identifier: MIT OR Apache-2.0

package kernel

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/fixture"
)

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
		bad := tree.Check(fixture.Unreadable{MapFS: fsys, Name: name})
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
	if _, err := ReadSeen(fixture.Unreadable{MapFS: fstest.MapFS{}, Name: "hw/SEEN.toml"}, "hw/SEEN.toml"); !diag.Is(err, diag.IO) {
		t.Errorf("%v", err)
	}
}
