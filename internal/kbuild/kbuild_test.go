// SPDX-License-Identifier: MIT OR Apache-2.0

package kbuild

import (
	"bytes"
	"context"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/kernel"
)

// fakeNvcc stands in for nvcc as far as kbuild looks: a version, a report, an output file. A source declares its
// entries as comments: "// entry NAME registers spill shared". The code is the source and the arguments.
const fakeNvcc = `#!/bin/sh
if [ "$1" = --version ]; then echo "Cuda compilation tools, release 13.0, V13.0.88"; exit; fi
args="$*"
for source; do :; done
while [ "$1" != -o ]; do shift; done
echo "$args" >> "$(dirname "$0")/calls"
grep -q "#error" "$source" && { echo "$source(1): error" >&2; exit 1; }
sed -n 's|^// entry \([^ ]*\) \([^ ]*\) \([^ ]*\) \([^ ]*\)|ptxas info : Compiling entry function '"'\1'"' for x\n 0 bytes stack frame, \3 bytes spill stores, 0 bytes spill loads\nptxas info : Used \2 registers, used 0 barriers, \4 bytes smem|p' "$source" >&2
{ cat "$source"; echo "$args" | sed 's| -o .*||'; } > "$2"
`

const (
	base = `[hardware]
class = "base"
vendor = "nvidia"
abstract = true
[build]
flags = ["-O3"]
[defaults]
kv = "bf16"
page_size = 16
`
	hw = `[hardware]
class = "hw"
vendor = "nvidia"
arch = "sm_90a"
inherits = "base"
[build]
flags = ["-G"]
`
	families = `[[family]]
name = "a"
[[kernel]]
name = "k"
family = "a"
args = [{ name = "x", access = "inout", shape = ["n"] }]
[kernel.launch]
module = "a/k"
entry = "k"
params = ["x", "n"]
grid = ["ceil(n, WIDTH)"]
block = "WIDTH"
registers = 32
`
	model = "[[match]]\nmodel_type = \"llama\"\n"
)

// tree is a small kernel tree with a leaf that changes a constant.
func tree(t *testing.T, more ...string) (root string, o Options) {
	t.Helper()
	root = t.TempDir()
	files := map[string]string{
		"DEVICES.toml": "", "FORKS.md": "", "base/HARDWARE.toml": base, "hw/HARDWARE.toml": hw, "base/common/KERNEL_FAMILIES.toml": families,
		"base/common/KERNEL.toml": "[constants.\"a/k\"]\nWIDTH = 256\n", "base/common/FUSIONS.toml": "",
		"base/common/a/k.cu": "// entry k 12 0 64\n#include \"near.cuh\"\n#include \"far.cuh\"\n", "base/common/a/near.cuh": "// 1\n", "include/far.cuh": "// 2\n",
		"hw/small/MODEL.toml": model, "hw/small/bf16/KERNEL.toml": "[constants.\"a/k\"]\nWIDTH = 64\n", "hw/small/fp8/KERNEL.toml": "",
		"nvcc": fakeNvcc,
	}
	for i := 0; i < len(more); i += 2 {
		files[more[i]] = more[i+1]
	}
	for name, text := range files {
		write(t, filepath.Join(root, name), text)
	}
	return root, Options{Root: root, HW: "hw", Compilers: map[string]string{kernel.NVIDIA: filepath.Join(root, "nvcc")}, Parallel: 2, Cache: filepath.Join(t.TempDir(), "cache")}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
}

// calls counts what the compiler was run for, and forgets it.
func calls(t *testing.T, root string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "calls"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	_ = os.Remove(filepath.Join(root, "calls"))
	return bytes.Count(text, []byte("\n"))
}

func build(t *testing.T, o Options) *kernel.Index {
	t.Helper()
	x, err := Build(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return x["hw"]
}

// bin lists the files below bin.
func bin(t *testing.T, root string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, "bin"), func(name string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(filepath.Join(root, "bin"), name)
			names = append(names, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// files are those that an index needs, itself among them.
func files(x *kernel.Index) []string {
	names := []string{"hw/index.json"}
	for _, modules := range append(slices.Collect(maps.Values(x.Targets)), x.Modules) {
		for _, o := range modules {
			names = append(names, "hw/"+o.File)
		}
	}
	slices.Sort(names)
	return names
}

// TestAnInterruptedBuildLeavesWhatWasThere: code of a newer build, all of it or some, beside the index of the one before changes nothing; a build
// to the end removes what is no longer named.
func TestAnInterruptedBuildLeavesWhatWasThere(t *testing.T) {
	root, o := tree(t)
	before := build(t, o)
	loaded, err := kernel.Load(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	const changed = "// entry k 13 0 64\n#include \"near.cuh\"\n#include \"far.cuh\"\n"
	newer, p := tree(t, "base/common/a/k.cu", changed)
	after := build(t, p)
	for _, name := range files(after) {
		if name == "hw/index.json" {
			continue
		}
		code, err := os.ReadFile(filepath.Join(newer, "bin", name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(root, "bin", name), string(code))
		if bad := loaded.Check(os.DirFS(root)); len(bad) > 0 {
			t.Errorf("with %s beside it: %v", name, bad)
		}
		for _, target := range []string{"hw", "hw/small/bf16"} {
			c, err := kernel.OpenCode(os.DirFS(root), loaded.Targets[target])
			if err != nil {
				t.Fatal(err)
			}
			if code, _, err := c.Module("a/k"); err != nil || !strings.Contains(string(code), "// entry k 12 0 64") {
				t.Errorf("%s with %s beside it: %v\n%s", target, name, err, code)
			}
		}
	}
	if got := len(bin(t, root)); got != len(files(before))+2 {
		t.Errorf("%d files of two builds", got)
	}
	write(t, filepath.Join(root, "base/common/a/k.cu"), changed)
	if x := build(t, o); !slices.Equal(bin(t, root), files(x)) || !slices.Equal(files(x), files(after)) {
		t.Errorf("left are %v, the index names %v", bin(t, root), files(x))
	}
}

// TestWhatNoDeviceRan: a kernel that ran on a device is no longer seen once its machine code or its launch are others. Of what is not
// compiled nothing is known, and of a class without a list nothing is said.
func TestWhatNoDeviceRan(t *testing.T) {
	root, o := tree(t)
	unseen := func() string {
		var log strings.Builder
		if bad := Check(root, false, &log); len(bad) != 0 {
			t.Fatal(bad)
		}
		if bad := Check(root, true, io.Discard); (len(bad) > 0) != (log.Len() > 0) {
			t.Errorf("unseen is %q, and where all must have been seen %v", &log, bad)
		}
		return log.String()
	}
	if got := unseen(); got != "" {
		t.Errorf("without a list: %q", got)
	}
	see := func(date string) {
		fsys := os.DirFS(root)
		loaded, err := kernel.Load(fsys)
		if err != nil {
			t.Fatal(err)
		}
		list, err := kernel.ReadSeen(fsys, "hw/SEEN.toml")
		if err != nil {
			t.Fatal(err)
		}
		code, err := kernel.OpenCode(fsys, loaded.Targets["hw"])
		if err != nil {
			t.Fatal(err)
		}
		forms, err := code.Forms(code.Target.Kernels["k"])
		if err != nil {
			t.Fatal(err)
		}
		list.Add(kernel.SeenRun{Device: "H", Driver: "13.0", Compiler: "nvcc 13.0.88", Date: date, Kernels: forms})
		text, err := list.Text()
		if err != nil || len(list.Runs) != 1 {
			t.Fatal(list, err)
		}
		write(t, filepath.Join(root, "hw/SEEN.toml"), string(text))
	}
	build(t, o)
	see("2026-01-01")
	if got := unseen(); got != "" {
		t.Errorf("seen just now: %q", got)
	}
	write(t, filepath.Join(root, "include/far.cuh"), "// another comment\n") // which the compiler at hand leaves out of its code
	if err := os.RemoveAll(filepath.Join(root, "bin")); err != nil {
		t.Fatal(err)
	}
	if got := unseen(); !strings.HasPrefix(got, "hw: which kernels have run on a device is known of compiled ones alone: this build carries no compiled") {
		t.Errorf("not compiled: %q", got)
	}
	if build(t, o); unseen() != "" {
		t.Errorf("compiled to the same code: %q", unseen())
	}
	for _, change := range [][2]string{
		{"base/common/a/k.cu", "// entry k 12 0 64\n#include \"near.cuh\"\n#include \"far.cuh\"\n// other code\n"},
		{"base/common/KERNEL_FAMILIES.toml", strings.Replace(families, `block = "WIDTH"`, `block = "128"`, 1)},
	} {
		write(t, filepath.Join(root, change[0]), change[1])
		build(t, o)
		if got := unseen(); got != "hw: 1 kernel has run on no device in its form: k\n" {
			t.Errorf("%s changed: %q", change[0], got)
		}
		see("2026-01-02")
		if got := unseen(); got != "" {
			t.Errorf("seen again: %q", got)
		}
	}
}

func TestBuildStoresEachClosureOnce(t *testing.T) {
	root, o := tree(t)
	x := build(t, o)
	// The fp8 leaf changes nothing, so its module is the class's; the bf16 leaf has a constant of its own.
	want := files(x)
	if len(want) != 3 || !strings.HasPrefix(want[0], "hw/a.k.") || want[1] != "hw/index.json" || !strings.HasPrefix(want[2], "hw/small/bf16/a.k.") {
		t.Errorf("files %v", want)
	}
	if got := bin(t, root); !slices.Equal(got, want) {
		t.Errorf("outputs %v, want %v", got, want)
	}
	if n := calls(t, root); n != 2 {
		t.Errorf("compiled %d times, want 2", n)
	}
	common, leaf := x.Object("hw/small/fp8", "a/k"), x.Object("hw/small/bf16", "a/k")
	if common != x.Modules["a/k"] || leaf == common || leaf.Hash == common.Hash {
		t.Errorf("fp8 has %+v, bf16 %+v", common, leaf)
	}
	if diff := cmp.Diff(map[string]kernel.Usage{"k": {Registers: 12, StaticShared: 64}}, common.Entries); diff != "" {
		t.Error(diff)
	}
	if x.Arch != "sm_90a" || x.Compiler != "nvcc 13.0.88" || len(x.Targets) != 2 {
		t.Errorf("index %+v", x)
	}

	fsys := os.DirFS(root)
	loaded, err := kernel.Load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	if bad := loaded.Check(fsys); len(bad) > 0 {
		t.Errorf("what was just built is refused: %v", bad)
	}
	code, err := kernel.OpenCode(fsys, loaded.Targets["hw/small/bf16"])
	if err != nil {
		t.Fatal(err)
	}
	text, _, err := code.Module("a/k")
	if want := "-arch=sm_90a -Xptxas -v -I include -I . -O3 -G -DWIDTH=64"; err != nil || !strings.HasSuffix(string(text), want+"\n") {
		t.Errorf("%v\n%s\nwant flags %s", err, text, want)
	}
	if k := loaded.Targets["hw/small/bf16"].Kernels["k"]; k.Launch.Block != "64" || k.Launch.Grid[0] != "ceil(n, 64)" {
		t.Errorf("launch %+v: the constant of the leaf is also the launch's", k.Launch)
	}
}

func TestBuildCompilesOnlyWhatChanged(t *testing.T) {
	root, o := tree(t)
	built := build(t, o)
	calls(t, root)
	stamp := func() os.FileInfo {
		info, err := os.Stat(filepath.Join(root, "bin", files(built)[0]))
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	before := stamp()
	if build(t, o); calls(t, root) != 0 || !os.SameFile(before, stamp()) {
		t.Error("an unchanged tree was compiled or written again")
	}
	write(t, filepath.Join(root, "include/far.cuh"), "// changed\n")
	if bad := Check(root, false, io.Discard); len(bad) != 2 || // the class's and that of the leaf with constants; the other leaf's is the class's
		!strings.Contains(bad[0].Error(), "hw: module a/k was compiled from other sources; run kbuild hw") || !strings.Contains(bad[1].Error(), "hw/small/bf16: module a/k") {
		t.Errorf("an include changed, and check says %v", bad)
	}
	fsys := os.DirFS(root)
	loaded, err := kernel.Load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kernel.OpenCode(fsys, loaded.Targets["hw"]); !diag.Is(err, diag.Unsupported) || !strings.Contains(err.Error(), "other sources") {
		t.Errorf("stale code opens: %v", err)
	}
	if build(t, o); calls(t, root) != 2 {
		t.Error("a changed include was not compiled")
	}
	write(t, filepath.Join(root, "include/far.cuh"), "// 2\n")
	if build(t, o); calls(t, root) != 0 {
		t.Error("what was compiled before was not in the cache")
	}
	o.Quant = "f*"
	if x := build(t, o); len(x.Targets) != 1 || len(files(x)) != 2 || !slices.Equal(bin(t, root), files(x)) {
		t.Errorf("a leaf that is not selected stays: %v", bin(t, root))
	}
	loaded.Targets["hw"].Class.Arch = "sm_80"
	if _, err := kernel.OpenCode(fsys, loaded.Targets["hw"]); err == nil || !strings.Contains(err.Error(), "are for sm_90a, the class is sm_80") {
		t.Errorf("code for another architecture opens: %v", err)
	}
}

func TestBuildRefuses(t *testing.T) {
	kernelToml := "base/common/KERNEL.toml"
	for _, c := range []struct {
		name, file, text, want string
	}{
		{"a spill", "base/common/a/k.cu", "// entry k 12 8 0\n", "base/common/KERNEL_FAMILIES.toml:7:2: kernel k on class hw: entry k spills 8 bytes; its ceiling is 0"},
		{"too many registers", "base/common/a/k.cu", "// entry k 40 0 0\n", "base/common/KERNEL_FAMILIES.toml:13:1: kernel k on class hw: entry k uses 40 registers; its ceiling is 32"},
		{"static shared memory above the class's ceiling", "hw/HARDWARE.toml", strings.Replace(hw, "[build]", "[build]\nstatic_shared = 63", 1), "base/common/KERNEL_FAMILIES.toml:7:2: kernel k on class hw: entry k has 64 bytes of static shared memory; its ceiling is 63"},
		{"an entry that no kernel names", "base/common/a/k.cu", "// entry k 1 0 0\n// entry other 1 0 0\n", "base/common/a/k.cu: no kernel of any class names entry other of module a/k"},
		{"a kernel without its entry", "base/common/a/k.cu", "// entry kk 1 0 0\n", "base/common/KERNEL_FAMILIES.toml:9:1: kernel k on class hw: module a/k has no entry k; it has kk"},
		{"an error of the compiler", "base/common/a/k.cu", "#error\n", "base/common/a/k.cu does not compile for sm_90a:\nbase/common/a/k.cu(1): error"},
		{"a missing include", "base/common/a/k.cu", "\n#include \"none.cuh\"\n", `base/common/a/k.cu:2: "none.cuh" is neither beside the file`},
		{"a spill of a leaf only", "hw/small/bf16/KERNEL.toml", "[points.\"a/k\"]\nheader = \"a/k.cuh\"\nentries = { k = [] }\n[shadow.\"a/k\"]\nreason = \"r\"\nmeasurement = \"m\"\n", `header "a/k.cuh" is neither`},
		{"a bad table", kernelToml, "[constants.\"a/z\"]\nWIDTH = 1\n", `no axis, int attribute or launch name is called WIDTH`},
	} {
		root, o := tree(t, c.file, c.text)
		_, err := Build(context.Background(), o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s:\n got %v\nwant %s", c.name, err, c.want)
		}
		if _, err := os.Stat(filepath.Join(root, "bin")); !os.IsNotExist(err) {
			t.Errorf("%s: something was written", c.name)
		}
	}
	_, o := tree(t)
	for hw, want := range map[string]string{"base": "class base has nothing to compile", "none": `no hardware class matches "none"; there are base, hw`, "[": "pattern"} {
		o.HW = hw
		if _, err := Build(context.Background(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", hw, err, want)
		}
	}
	o.HW, o.Model = "hw", "smal"
	if _, err := Build(context.Background(), o); !diag.Is(err, diag.NotFound) || !strings.Contains(err.Error(), `no leaf matches model "smal" and quantisation "*"; there are small/`) {
		t.Errorf("a model without a leaf: %v", err)
	}
	o.Model, o.Compilers = "", map[string]string{kernel.NVIDIA: "/none/nvcc"}
	if _, err := Build(context.Background(), o); !diag.Is(err, diag.NotFound) || !strings.Contains(err.Error(), "give --nvcc") {
		t.Errorf("without a compiler: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	root, o := tree(t)
	if _, err := Build(ctx, o); err == nil {
		t.Error("an interrupted build succeeds")
	}
	if _, err := os.Stat(filepath.Join(root, "bin")); !os.IsNotExist(err) {
		t.Error("an interrupted build wrote something")
	}
}

// TestCheckTellsAllFaults: a list of what a device ran that cannot be read hides no fault of the tree.
func TestCheckTellsAllFaults(t *testing.T) {
	root, o := tree(t)
	build(t, o)
	write(t, filepath.Join(root, "hw/SEEN.toml"), "runs = 3\n")
	write(t, filepath.Join(root, "base/common/a/lonely.cu"), "// entry k 12 0 0\n")
	for _, all := range []bool{false, true} {
		bad := Check(root, all, io.Discard)
		if len(bad) != 2 || !strings.Contains(bad[0].Error(), "no kernel of any class names module a/lonely") || !strings.HasPrefix(bad[1].Error(), "hw/SEEN.toml:1") {
			t.Errorf("%v", bad)
		}
	}
}

// TestBuildRefusesTheStructure: what the tree's rules forbid stops a build before a compiler runs.
func TestBuildRefusesTheStructure(t *testing.T) {
	const (
		source = "// entry k 12 0 64\n#include \"near.cuh\"\n#include \"far.cuh\"\n" // as base/common has it
		shadow = "[shadow.\"a/k\"]\nreason = \"r\"\nmeasurement = \"m\"\n"
		forks  = "| hw/small/bf16 | a/k | r | m |\n"
		own    = "// entry k 12 0 0\n"
	)
	for _, c := range []struct {
		name string
		more []string
		want string
	}{
		{"a shadow that is not declared", []string{"hw/small/bf16/a/k.cu", own, "hw/small/bf16/KERNEL.toml", ""}, "declare"},
		{"a shadow without a source", []string{"hw/small/bf16/KERNEL.toml", shadow, "FORKS.md", forks}, "the layer has no source of module a/k"},
		{"a shadow that hides nothing", []string{"hw/small/bf16/a/other.cu", own, "hw/small/bf16/KERNEL.toml", strings.ReplaceAll(shadow, "a/k", "a/other")}, "hides nothing"},
		{"a shadow of the same bytes", []string{"hw/small/bf16/a/k.cu", source, "hw/small/bf16/KERNEL.toml", shadow, "FORKS.md", forks}, "byte-identical to"},
		{"a shadow that FORKS.md does not list", []string{"hw/small/bf16/a/k.cu", own, "hw/small/bf16/KERNEL.toml", shadow}, "is no row of FORKS.md"},
		{"twins of two leaves", []string{"hw/small/bf16/a/k.cu", own, "hw/small/fp8/a/k.cu", own, "hw/small/bf16/KERNEL.toml", shadow, "hw/small/fp8/KERNEL.toml", shadow,
			"FORKS.md", forks + strings.ReplaceAll(forks, "bf16", "fp8")}, "it is a copy of hw/small/bf16/a/k.cu"},
		{"a source without a kernel", []string{"base/common/a/lonely.cu", own}, "no kernel of any class names module a/lonely"},
	} {
		root, o := tree(t, c.more...)
		_, err := Build(context.Background(), o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s:\n got %v\nwant %s", c.name, err, c.want)
		}
		if n := calls(t, root); n != 0 {
			t.Errorf("%s: the compiler ran %d times", c.name, n)
		}
	}
}

func TestPointsAreGenerated(t *testing.T) {
	root, o := tree(t, "base/common/KERNEL.toml", "[points.\"a/k\"]\nheader = \"a/k.cuh\"\nentries = { k = [\"float\", \"4\"] }\n",
		"base/common/KERNEL_FAMILIES.toml", strings.NewReplacer("WIDTH", "256").Replace(families),
		"hw/small/bf16/KERNEL.toml", "", "base/common/a/k.cuh", "#define INSTANTIATE(entry, ...)\n")
	if err := os.Remove(filepath.Join(root, "base/common/a/k.cu")); err != nil {
		t.Fatal(err)
	}
	_, err := Build(context.Background(), o) // the stand-in sees no entry in a macro
	if err == nil || !strings.Contains(err.Error(), "module a/k has no entry k") {
		t.Errorf("%v", err)
	}
	loaded, err := kernel.Load(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	m := loaded.Targets["hw"].Modules["a/k"]
	want := "// Generated from base/common/KERNEL.toml; do not edit.\n#include \"base/common/a/k.cuh\"\nINSTANTIATE(k, float, 4)\n"
	if m.Generated != want || m.Source != "base/common/a/k.cu" {
		t.Errorf("%s\n%s", m.Source, m.Generated)
	}
	hash, err := kernel.NewSources(os.DirFS(root)).Closure(m, "c")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "base/common/a/k.cuh"), "#define INSTANTIATE(entry, ...) other\n")
	if other, err := kernel.NewSources(os.DirFS(root)).Closure(m, "c"); err != nil || other == hash {
		t.Errorf("the header of points does not count: %v", err)
	}
}

func TestReportsOfCompilers(t *testing.T) {
	ptxas := `ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'red' for 'sm_90a'
ptxas info    : Function properties for red
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 24 registers, used 1 barriers, 16 bytes cumulative stack size, 1024 bytes smem, 384 bytes cmem[0]
ptxas info    : Compiling entry function 'add' for 'sm_90a'
ptxas info    : Function properties for add
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
`
	if diff := cmp.Diff(map[string]kernel.Usage{"red": {Registers: 24, SpillBytes: 20, StaticShared: 1024}, "add": {Registers: 10}}, parsePtxas(ptxas)); diff != "" {
		t.Error(diff)
	}
	clang := `norm.hip:8:1: remark: Function Name: red [-Rpass-analysis=kernel-resource-usage]
    8 | GLOBAL void red(const float* x)
norm.hip:8:1: remark:     SGPRs: 9 [-Rpass-analysis=kernel-resource-usage]
norm.hip:8:1: remark:     VGPRs: 10 [-Rpass-analysis=kernel-resource-usage]
norm.hip:8:1: remark:     ScratchSize [bytes/lane]: 4 [-Rpass-analysis=kernel-resource-usage]
norm.hip:8:1: remark:     SGPRs Spill: 0 [-Rpass-analysis=kernel-resource-usage]
norm.hip:8:1: remark:     VGPRs Spill: 1 [-Rpass-analysis=kernel-resource-usage]
norm.hip:8:1: remark:     LDS Size [bytes/block]: 32 [-Rpass-analysis=kernel-resource-usage]
`
	if diff := cmp.Diff(map[string]kernel.Usage{"red": {Registers: 10, SpillBytes: 4, StaticShared: 32}}, parseRemarks(clang)); diff != "" {
		t.Error(diff)
	}
}

// FuzzReports: no text of a compiler makes a report that counts below zero, or panics.
func FuzzReports(f *testing.F) {
	f.Add("ptxas info : Compiling entry function 'k' for 'sm_90a'\n 0 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads\nptxas info : Used 12 registers, 4 bytes smem\n")
	f.Add("remark: Function Name: k\nremark:     VGPRs: 10\nremark:     LDS Size [bytes/block]: 32\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, report := range []map[string]kernel.Usage{parsePtxas(text), parseRemarks(text)} {
			for e, u := range report {
				if u.Registers < 0 || u.SpillBytes < 0 || u.StaticShared < 0 {
					t.Fatalf("%s: %+v", e, u)
				}
			}
		}
	})
}
