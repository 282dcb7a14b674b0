// SPDX-License-Identifier: MIT OR Apache-2.0

package kernel

import (
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/metrale/metrale/internal/diag"
)

var update = flag.Bool("update", false, "rewrite golden files")

// TestTheTreeKeepsItsRules checks the real tree, without a compiler. What is compiled beside it is kbuild's to check.
func TestTheTreeKeepsItsRules(t *testing.T) {
	fsys := os.DirFS("../../kernels")
	tree, err := Load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range tree.CheckSources(fsys) {
		t.Error(err)
	}
}

// readTree gives the files of a testdata tree, put over those of good.txtar, and its comment.
func readTree(t *testing.T, name string) (fstest.MapFS, *txtar.Archive) {
	t.Helper()
	out := fstest.MapFS{}
	for _, n := range []string{"good", name} {
		a, err := txtar.ParseFile(filepath.Join("testdata", "trees", n+".txtar"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range a.Files {
			if f.Name != "want" {
				out[f.Name] = &fstest.MapFile{Data: f.Data}
			}
		}
		if n == name {
			return out, a
		}
	}
	panic("unreachable")
}

// TestTreesAreJudged reads each tree of testdata/trees and compares what is said of it with its section want.
func TestTreesAreJudged(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "trees", "*.txtar"))
	if err != nil || len(files) < 20 {
		t.Fatalf("%d trees, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		fsys, archive := readTree(t, name)
		got := judge(fsys)
		i := slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == "want" })
		if *update {
			if i < 0 {
				archive.Files = append(archive.Files, txtar.File{Name: "want"})
				i = len(archive.Files) - 1
			}
			archive.Files[i].Data = []byte(got)
			if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if i < 0 {
			t.Errorf("%s has no section want", file)
		} else if diff := cmp.Diff(string(archive.Files[i].Data), got); diff != "" {
			t.Errorf("%s:\n%s", file, diff)
		}
		if fault := !strings.HasPrefix(got, "target "); fault == (name == "good") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// judge is the faults of a tree, or its targets with all that they compile.
func judge(fsys fs.FS) string {
	tree, err := Load(fsys)
	if err != nil {
		return err.Error() + "\n"
	}
	var b strings.Builder
	for _, err := range tree.Check(fsys) {
		fmt.Fprintln(&b, err)
	}
	if b.Len() > 0 {
		return b.String()
	}
	for _, name := range slices.Sorted(maps.Keys(tree.Targets)) {
		tg := tree.Targets[name]
		fmt.Fprintf(&b, "target %s: %s\n", name, strings.Join(tg.Layers(), ", "))
		for _, m := range slices.Sorted(maps.Keys(tg.Modules)) {
			fmt.Fprintf(&b, "  %s = %s %s\n", m, tg.Modules[m].Source, strings.Join(tg.Modules[m].Flags, " "))
			for line := range strings.Lines(tg.Modules[m].Generated) {
				fmt.Fprintf(&b, "    %s", line)
			}
		}
		for _, k := range sortedKernels(tg.Kernels) {
			fmt.Fprintf(&b, "  launch %s: %s %s %s %s", k.Name, k.Launch.Grid, k.Launch.Block, k.Launch.Params, k.Launch.Module)
			for _, s := range k.symbols() {
				fmt.Fprintf(&b, " %s", s.entry)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// FuzzLeaf: whatever a leaf's manifests say, the tree is judged, and an accepted leaf has modules that hash.
func FuzzLeaf(f *testing.F) {
	good, err := txtar.ParseFile(filepath.Join("testdata", "trees", "good.txtar"))
	if err != nil {
		f.Fatal(err)
	}
	var seeds [2][]byte
	for _, file := range good.Files {
		switch file.Name {
		case "hw/large/bf16/KERNEL.toml":
			seeds[0] = file.Data
		case "hw/large/MODEL.toml":
			seeds[1] = file.Data
		}
	}
	f.Add(seeds[0], seeds[1])
	f.Add([]byte("[sources]\nuse = [\"../x.cu\", \"x.cu\"]\n[modules]\n\"a/b\" = \"./x\"\n"), []byte("[[match]]\nmodel_type = \"x\"\n"))
	f.Add([]byte("[points.\"a/points\"]\nheader = \"../../hw/common/a/points.cuh\"\nentries = { e = [] }\n"), seeds[1])
	f.Fuzz(func(t *testing.T, kernelTOML, modelTOML []byte) {
		fsys := fstest.MapFS{}
		for _, file := range good.Files {
			if file.Name != "want" {
				fsys[file.Name] = &fstest.MapFile{Data: file.Data}
			}
		}
		fsys["hw/large/bf16/KERNEL.toml"] = &fstest.MapFile{Data: kernelTOML}
		fsys["hw/large/MODEL.toml"] = &fstest.MapFile{Data: modelTOML}
		tree, err := Load(fsys)
		if err != nil {
			if e, ok := diag.As(err); !ok || e.Code != diag.Format || e.Pos.File == "" {
				t.Fatalf("no place: %v", err)
			}
			return
		}
		tree.Check(fsys)
		for _, m := range tree.Targets["hw/large/bf16"].Modules {
			if hash, err := NewSources(fsys).Closure(m, "c"); err == nil && len(hash) != 64 {
				t.Fatalf("%s: %q", m.Name, hash)
			}
		}
	})
}
