// SPDX-License-Identifier: MIT OR Apache-2.0

package kernel

import (
	"encoding/json"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/klauspost/compress/zstd"

	"github.com/metrale/metrale/internal/diag"
)

// compiled puts code beside the good tree: each module's is its source's path.
func compiled(t *testing.T) (fstest.MapFS, *Tree, *Index) {
	t.Helper()
	fsys, _ := readTree(t, "good")
	tree, err := Load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	x := &Index{Class: "hw", Arch: "sm_90a", Compiler: "nvcc 1", Modules: map[string]*Object{}, Targets: map[string]map[string]*Object{"hw/large/bf16": {}}}
	put := func(tg *Target, m, dir string, into map[string]*Object) {
		hash, err := NewSources(fsys).Closure(tg.Modules[m], x.Compiler)
		if err != nil {
			t.Fatal(err)
		}
		code := []byte(tg.Modules[m].Source)
		o := &Object{Source: tg.Modules[m].Source, Hash: hash, File: dir + strings.ReplaceAll(m, "/", ".") + ".zst", Bytes: len(code), Sum: CodeSum(code), Entries: map[string]Usage{}}
		for _, k := range tg.Kernels {
			for _, s := range k.symbols() {
				if s.module == m {
					o.Entries[strings.ReplaceAll(s.entry, "{n}", "4")] = Usage{Registers: 32}
				}
			}
		}
		into[m] = o
		fsys["bin/hw/"+o.File] = &fstest.MapFile{Data: enc.EncodeAll(code, nil)}
	}
	for m := range tree.Targets["hw"].Modules {
		put(tree.Targets["hw"], m, "", x.Modules)
	}
	leaf := tree.Targets["hw/large/bf16"]
	for _, m := range []string{"a/rows", "a/points"} {
		put(leaf, m, "large/bf16/", x.Targets[leaf.Name()])
	}
	store(t, fsys, x)
	return fsys, tree, x
}

func store(t *testing.T, fsys fstest.MapFS, x *Index) {
	t.Helper()
	text, err := json.Marshal(x)
	if err != nil {
		t.Fatal(err)
	}
	fsys["bin/"+x.Class+"/index.json"] = &fstest.MapFile{Data: text}
}

func TestCodeIsTheTargetsOwn(t *testing.T) {
	fsys, tree, _ := compiled(t)
	if bad := tree.Check(fsys); len(bad) > 0 {
		t.Fatalf("%v", bad)
	}
	code, err := OpenCode(fsys, tree.Targets["hw/large/bf16"])
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"a/rows": "hw/large/bf16/a/rows.cu", "a/tiled": "hw/common/a/tiled.cu"} {
		got, o, err := code.Module(name)
		if err != nil || string(got) != want || o.Source != want {
			t.Errorf("%s is %s of %+v, %v; want %s", name, got, o, err, want)
		}
		file, err := fs.ReadFile(fs.FS(code), strings.ReplaceAll(name, "/", ".")+".cubin")
		if err != nil || string(file) != want {
			t.Errorf("as a file: %s %v", file, err)
		}
	}
	f, err := code.Open("a.rows.cubin")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() != int64(len("hw/large/bf16/a/rows.cu")) || info.Name() != "a.rows.cubin" {
		t.Errorf("%v %v", info, err)
	}
	if _, err := code.Open("a.none.cubin"); !strings.Contains(err.Error(), "not exist") {
		t.Errorf("a module that is not there: %v", err)
	}
	if _, _, err := code.Module("a/none"); !diag.Is(err, diag.Internal) {
		t.Errorf("%v", err)
	}
}

func TestCodeIsRefused(t *testing.T) {
	for _, c := range []struct {
		name, target string
		change       func(fstest.MapFS, *Tree, *Index)
		opens        string // the refusal of OpenCode; "" if it opens and reading a/rows is refused
		check        string
	}{
		{"no code", "hw", func(f fstest.MapFS, _ *Tree, _ *Index) { delete(f, "bin/hw/index.json") }, "this build carries no compiled kernels of class hw: run kbuild hw and build again", ""},
		{"a leaf that was not selected", "hw/large/fp8", func(fstest.MapFS, *Tree, *Index) {}, "this build carries no compiled kernels of hw/large/fp8: run kbuild hw without METRALE_TARGET_MODEL", ""},
		{"another architecture", "hw", func(_ fstest.MapFS, _ *Tree, x *Index) { x.Arch = "sm_80" }, "the compiled kernels of class hw are for sm_80, the class is sm_90a", "bin/hw/index.json: compiled for sm_80; the class is sm_90a"},
		{"a module that is missing", "hw", func(_ fstest.MapFS, _ *Tree, x *Index) { delete(x.Modules, "a/tiled") }, "this build lacks the compiled module a/tiled of hw", "hw: module a/tiled is not compiled"},
		{"sources that changed", "hw", func(f fstest.MapFS, _ *Tree, _ *Index) {
			f["base/common/a/rows.cu"] = &fstest.MapFile{Data: []byte("changed")}
		}, "module a/rows of hw was compiled from other sources", "hw: module a/rows was compiled from other sources; run kbuild hw"},
		{"a file that is missing", "hw", func(f fstest.MapFS, _ *Tree, _ *Index) { delete(f, "bin/hw/a.rows.zst") }, "", "bin/hw/a.rows.zst is missing: run kbuild hw again"},
		{"a file that is damaged", "hw", func(f fstest.MapFS, _ *Tree, _ *Index) { d := f["bin/hw/a.rows.zst"].Data; d[len(d)-6] ^= 1 }, "", "bin/hw/a.rows.zst: the compiled code is damaged"},
		{"a file of another module", "hw", func(f fstest.MapFS, _ *Tree, _ *Index) { f["bin/hw/a.rows.zst"] = f["bin/hw/a.tiled.zst"] }, "", "bin/hw/a.rows.zst: the compiled code is damaged: its sum differs from the index"},
		{"an index of another class", "hw", func(f fstest.MapFS, _ *Tree, x *Index) { x.Class = "ww"; f["bin/hw/index.json"].Data = []byte("{}") }, "bin/hw/index.json: it is no index of kbuild's", "bin/hw/index.json: it is no index"},
		{"an index with a module of nothing", "hw", func(_ fstest.MapFS, _ *Tree, x *Index) { x.Modules["a/rows"] = nil }, "bin/hw/index.json: it is no index of kbuild's", "bin/hw/index.json: it is no index"},
		{"an index with a size below 0", "hw", func(_ fstest.MapFS, _ *Tree, x *Index) { x.Modules["a/rows"].Bytes = -5 }, "bin/hw/index.json: it is no index of kbuild's", "bin/hw/index.json: it is no index"},
		{"an index with a file elsewhere", "hw", func(_ fstest.MapFS, _ *Tree, x *Index) {
			x.Targets["hw/large/bf16"]["a/rows"].File = "../other/a.rows.zst"
		}, "bin/hw/index.json: it is no index of kbuild's", "bin/hw/index.json: it is no index"},
		{"an index without a hash", "hw", func(_ fstest.MapFS, _ *Tree, x *Index) { x.Modules["a/rows"].Hash = "" }, "bin/hw/index.json: it is no index of kbuild's", "bin/hw/index.json: it is no index"},
		{"an index with half a hash", "hw", func(_ fstest.MapFS, _ *Tree, x *Index) {
			o := x.Targets["hw/large/bf16"]["a/rows"]
			o.Hash = o.Hash[:32]
		}, "bin/hw/index.json: it is no index of kbuild's", "bin/hw/index.json: it is no index"},
		{"an index with a hash that is none", "hw", func(_ fstest.MapFS, _ *Tree, x *Index) { x.Modules["a/rows"].Hash = strings.Repeat("g", 64) }, "bin/hw/index.json: it is no index of kbuild's", "bin/hw/index.json: it is no index"},
		{"an index without a sum", "hw", func(_ fstest.MapFS, _ *Tree, x *Index) { x.Modules["a/rows"].Sum = "" }, "bin/hw/index.json: it is no index of kbuild's", "bin/hw/index.json: it is no index"},
		{"an index with a sum too long", "hw", func(_ fstest.MapFS, _ *Tree, x *Index) { x.Modules["a/rows"].Sum += "00" }, "bin/hw/index.json: it is no index of kbuild's", "bin/hw/index.json: it is no index"},
		{"an index with a sum in capitals", "hw", func(_ fstest.MapFS, _ *Tree, x *Index) { x.Modules["a/rows"].Sum = strings.Repeat("AB", 32) }, "bin/hw/index.json: it is no index of kbuild's", "bin/hw/index.json: it is no index"},
		{"a target that is no more", "hw", func(_ fstest.MapFS, _ *Tree, x *Index) { x.Targets["hw/large/bf17"] = map[string]*Object{} }, "-", "hw/large/bf17 is no target of the tree"},
		{"an entry too many", "hw", func(_ fstest.MapFS, _ *Tree, x *Index) { x.Modules["a/tiled"].Entries["spare"] = Usage{} }, "-", "hw/common/a/tiled.cu: no kernel of any class names entry spare of module a/tiled"},
		{"an entry too few", "hw", func(_ fstest.MapFS, _ *Tree, x *Index) { delete(x.Modules["a/points"].Entries, "points_4") }, "-", "kernel points on class hw: module a/points has no entry points_{n}"},
		{"a spill", "hw", func(_ fstest.MapFS, _ *Tree, x *Index) { x.Modules["a/tiled"].Entries["tiled"] = Usage{SpillBytes: 4} }, "-", "kernel tiled on class hw: entry tiled spills 4 bytes; its ceiling is 0"},
	} {
		fsys, tree, x := compiled(t)
		store(t, fsys, x)
		c.change(fsys, tree, x)
		if _, ok := fsys["bin/hw/index.json"]; ok && x.Class == "hw" {
			store(t, fsys, x)
		}
		code, err := OpenCode(fsys, tree.Targets[c.target])
		switch {
		case c.opens == "-":
		case c.opens != "":
			if err == nil || !strings.HasPrefix(err.Error(), c.opens) {
				t.Errorf("%s: %v, want %s", c.name, err, c.opens)
			}
		case err != nil:
			t.Errorf("%s: %v", c.name, err)
		default:
			if _, _, err := code.Module("a/rows"); err == nil || !strings.HasPrefix(err.Error(), c.check) {
				t.Errorf("%s: %v, want %s", c.name, err, c.check)
			}
		}
		bad := tree.Check(fsys)
		if c.check == "" != (len(bad) == 0) || c.check != "" && !strings.Contains(bad[0].Error(), c.check) {
			t.Errorf("%s: check says %v, want %s", c.name, bad, c.check)
		}
	}
}

func TestClosureChangesWithAllThatItCovers(t *testing.T) {
	files := func() fstest.MapFS {
		return fstest.MapFS{
			"c/common/f/k.cu":     {Data: []byte("  #  include \"near.cuh\"\n#include \"far.cuh\"\n#include \"c/common/f/rooted.cuh\"\n#include <cuda_bf16.h>\n")},
			"c/common/f/near.cuh": {Data: []byte("#include \"k.cu\"\n")}, "c/common/f/rooted.cuh": {Data: []byte("1")}, "include/far.cuh": {Data: []byte("2")},
		}
	}
	hash := func(fsys fs.FS, m Module, compiler string) string {
		m.Source = "c/common/f/k.cu"
		h, err := NewSources(fsys).Closure(&m, compiler)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	m := Module{Arch: "sm_90a", Flags: []string{"-O3"}}
	first := hash(files(), m, "nvcc 1")
	if hash(files(), m, "nvcc 1") != first {
		t.Error("the same closure hashes differently")
	}
	for name := range files() {
		changed := files()
		changed[name].Data = append(changed[name].Data, '\n')
		if hash(changed, m, "nvcc 1") == first {
			t.Errorf("a change of %s keeps the hash", name)
		}
	}
	for what, h := range map[string]string{
		"architecture": hash(files(), Module{Arch: "sm_100a", Flags: m.Flags}, "nvcc 1"),
		"flags":        hash(files(), Module{Arch: m.Arch, Flags: []string{"-O2"}}, "nvcc 1"),
		"compiler":     hash(files(), m, "nvcc 2"),
	} {
		if h == first {
			t.Errorf("%s does not count", what)
		}
	}
	broken := files()
	delete(broken, "include/far.cuh")
	m.Source = "c/common/f/k.cu"
	if _, err := NewSources(broken).Closure(&m, ""); err == nil || !strings.HasPrefix(err.Error(), `c/common/f/k.cu:2: "far.cuh" is neither`) {
		t.Errorf("a missing include: %v, want its line", err)
	}
}
