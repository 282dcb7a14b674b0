// SPDX-License-Identifier: MIT OR Apache-2.0

package kbuild

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/kernel"
)

// tree writes files below a new folder.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const base = "[hardware]\nclass = \"base\"\nvendor = \"nvidia\"\nabstract = true\n[build]\nflags = [\"-O3\"]\n"
const leaf = "[hardware]\nclass = \"leaf\"\nvendor = \"nvidia\"\narch = \"sm_90a\"\ninherits = \"base\"\n[build]\nflags = [\"-G\"]\n"

func TestClassesInheritSourcesAndFlags(t *testing.T) {
	root := tree(t, map[string]string{
		"DEVICES.toml": "", "base/HARDWARE.toml": base, "leaf/HARDWARE.toml": leaf,
		"base/common/a/x.cu": "1", "base/common/a/y.cu": "2", "leaf/common/a/y.cu": "3", "leaf/common/b/y.cu": "4",
	})
	tree, err := kernel.Load(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(tree.Classes["leaf"].Build.Flags, " "); got != "-O3 -G" {
		t.Errorf("flags %q, want the ancestor's first", got)
	}
	list, err := Sources(root, tree.Classes["leaf"])
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range list {
		got = append(got, s.Name+"="+s.Path)
	}
	if want := "a.x=base/common/a/x.cu a.y=leaf/common/a/y.cu b.y=leaf/common/b/y.cu"; strings.Join(got, " ") != want {
		t.Errorf("sources %v, want %s", got, want)
	}
}

func TestClosureChangesWithAllThatItCovers(t *testing.T) {
	files := map[string]string{"c/common/f/k.cu": "#include \"near.cuh\"\n#include \"far.cuh\"\n", "c/common/f/near.cuh": "1", "include/far.cuh": "2"}
	hash := func(files map[string]string, arch, flag string) string {
		h, err := Closure(tree(t, files), "c/common/f/k.cu", arch, "nvcc 1", []string{flag})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	first := hash(files, "sm_90a", "-O3")
	if hash(files, "sm_90a", "-O3") != first {
		t.Error("the same closure hashes differently")
	}
	for name := range files {
		changed := map[string]string{}
		for n, text := range files {
			changed[n] = text
		}
		changed[name] += "\n"
		if hash(changed, "sm_90a", "-O3") == first {
			t.Errorf("a change of %s keeps the hash", name)
		}
	}
	if hash(files, "sm_100a", "-O3") == first || hash(files, "sm_90a", "-O2") == first {
		t.Error("architecture or flags do not count")
	}
	delete(files, "include/far.cuh")
	if _, err := Closure(tree(t, files), "c/common/f/k.cu", "", "", nil); err == nil || !strings.Contains(err.Error(), "k.cu:2") {
		t.Errorf("a missing include: %v, want its line", err)
	}
}

// fakeNvcc behaves as far as kbuild looks: a version, a report of ptxas, an output file.
const fakeNvcc = `#!/bin/sh
if [ "$1" = --version ]; then echo "Cuda compilation tools, release 13.0, V13.0.88"; exit; fi
echo ran >> "$(dirname "$0")/calls"
echo "ptxas info    : Compiling entry function 'k' for 'sm_90a'" >&2
echo "    0 bytes stack frame, SPILL bytes spill stores, 0 bytes spill loads" >&2
echo "ptxas info    : Used 12 registers, used 0 barriers, 64 bytes smem" >&2
while [ "$1" != -o ]; do shift; done
echo code > "$2"
`

func TestBuildIsIncrementalAndRefusesSpills(t *testing.T) {
	root := tree(t, map[string]string{"DEVICES.toml": "", "base/HARDWARE.toml": base, "leaf/HARDWARE.toml": leaf, "base/common/a/k.cu": "k",
		"nvcc": strings.ReplaceAll(fakeNvcc, "SPILL", "0"), "spilling": strings.ReplaceAll(fakeNvcc, "SPILL", "8")})
	o := Options{Root: root, Nvcc: filepath.Join(root, "nvcc")}
	for range 2 {
		x, err := Build(context.Background(), "leaf", o)
		if err != nil {
			t.Fatal(err)
		}
		if u := x.Kernels["a.k"].Entries["k"]; u != (Usage{Registers: 12, SharedMem: 64}) {
			t.Errorf("usage %+v", u)
		}
	}
	calls, _ := os.ReadFile(filepath.Join(root, "calls"))
	if string(calls) != "ran\n" {
		t.Errorf("compiled %d times, want once", strings.Count(string(calls), "ran"))
	}
	if err := os.WriteFile(filepath.Join(root, "base/common/a/k.cu"), []byte("other"), 0o644); err != nil {
		t.Fatal(err)
	}
	o.Nvcc = filepath.Join(root, "spilling")
	if _, err := Build(context.Background(), "leaf", o); err == nil || !strings.Contains(err.Error(), "entry k spills 8 bytes") {
		t.Errorf("a spilling kernel: %v", err)
	}
	if _, err := Build(context.Background(), "base", o); err == nil || !strings.Contains(err.Error(), "abstract") {
		t.Errorf("an abstract class: %v", err)
	}
}
