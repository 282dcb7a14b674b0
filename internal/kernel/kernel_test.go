// SPDX-License-Identifier: MIT OR Apache-2.0

package kernel

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/tensor"
)

const (
	devices = `[device.one]
name = "One"
class = "base"
memory = 1000
bandwidth = 10.0
flops = { f32 = 5.0 }
source = "a test"
`
	base = `[hardware]
class = "base"
vendor = "any"

[build]
flags = ["-O3"]
spill_bytes = 8

[defaults]
kv = "f16"
page_size = 16
`
	leaf = `[hardware]
class = "leaf"
vendor = "any"
inherits = "base"
`
	families = `[formats]
any = ["f32", "bf16"]

[[family]]
name = "norm"
ops = ["rms_norm"]
compute = "simd"
params = [{ name = "group", kind = "runtime" }]
numerics.accumulate = "f32"
numerics.reductions = [{ over = "n", levels = ["lanes, tree"] }]

[[kernel]]
name = "scale"
family = "norm"
args = [
  { name = "head", kind = "step" },
  { name = "x", shape = ["R", "n"] },
  { name = "w", kind = "weight", shape = ["n"], dtype = ["any", "q8_0"], layout = "f32" },
  { name = "y", access = "out", shape = ["R", "n"], alias = "x" },
]
attrs = [{ name = "eps", type = "float" }]
`
)

func files(pairs ...string) fstest.MapFS {
	m := fstest.MapFS{
		"DEVICES.toml":                       {Data: []byte(devices)},
		"base/HARDWARE.toml":                 {Data: []byte(base)},
		"base/common/KERNEL_FAMILIES.toml":   {Data: []byte(families)},
		"base/common/FUSIONS.toml":           {Data: nil},
		"leaf/HARDWARE.toml":                 {Data: []byte(leaf)},
		"circuits/HARDWARE.toml.not-a-class": {Data: nil},
	}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return m
}

func TestClassesInherit(t *testing.T) {
	tree, err := Load(files("leaf/common/KERNEL_FAMILIES.toml", strings.Replace(families, `"float"`, `"int"`, 1), "leaf/common/FUSIONS.toml", ""))
	if err != nil {
		t.Fatal(err)
	}
	b, l := tree.Classes["base"], tree.Classes["leaf"]
	if l.Defaults != b.Defaults || l.Inherits != "base" || !slices.Equal(l.Chain, []string{"leaf", "base"}) || l.Build.SpillBytes != 8 || len(l.Build.Flags) != 1 {
		t.Errorf("leaf %+v", l)
	}
	if b.Kernels["scale"].Attr("eps").Type != "float" || l.Kernels["scale"].Attr("eps").Type != "int" {
		t.Error("the leaf's kernel does not replace its parent's, or replaces it there too")
	}
	if want := []string{"leaf/common/FUSIONS.toml", "base/common/FUSIONS.toml"}; !slices.Equal(l.Fusions, want) {
		t.Errorf("fusions %v", l.Fusions)
	}
	k := b.Kernels["scale"]
	if w := k.Arg("w"); !slices.Equal(w.DTypes, []tensor.DType{tensor.F32, tensor.BF16, tensor.Q8_0}) || w.Access != "in" {
		t.Errorf("w %+v", w)
	}
	if x := k.Arg("x"); x.Kind != BufferArg || !slices.Equal(x.DTypes, []tensor.DType{tensor.F32}) {
		t.Errorf("x %+v", x)
	}
	if k.Arg("none") != nil || k.Attr("none") != nil {
		t.Error("a kernel has what it has not")
	}
	if d := tree.Devices["one"]; d.Flops["f32"] != 5 || d.Memory != 1000 {
		t.Errorf("device %+v", d)
	}
}

func TestAFamilyMayHaveAFileOfItsOwn(t *testing.T) {
	formats, rest, _ := strings.Cut(families, "\n\n")
	whole, err := Load(files())
	if err != nil {
		t.Fatal(err)
	}
	const own = "base/common/norms/norm.toml"
	split, err := Load(files("base/common/KERNEL_FAMILIES.toml", formats, own, rest))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range whole.Classes {
		if d := cmp.Diff(c.Kernels, split.Classes[name].Kernels, cmpopts.IgnoreUnexported(Kernel{})); d != "" {
			t.Errorf("class %s (-whole +split):\n%s", name, d)
		}
	}
	for _, c := range []struct{ file, text, want string }{
		{own, "# again\n" + rest, own + `:2:3: family "norm" has no name of its own`},
		{"base/common/norms/norms.toml", rest, `base/common/norms/norms.toml:2:1: family norm lies in the file of family norms`},
		{"base/common/norms/norms.toml", rest[strings.Index(rest, "[[kernel]]"):], `base/common/norms/norms.toml:3:1: kernel scale of family norm lies in the file of family norms`},
		{own, rest[strings.Index(rest, "[[kernel]]"):], own + `:1:3: kernel "scale" has no name of its own`},
		{own, families, own + `:1:2: formats are the class's: they stand in base/common/KERNEL_FAMILIES.toml`},
	} {
		if _, err := Load(files(c.file, c.text)); err == nil || !strings.HasPrefix(err.Error(), c.want) || !diag.Is(err, diag.Format) {
			t.Errorf("%s:\n got %v\nwant %s", c.file, err, c.want)
		}
	}
}

func TestManifestFaultsAreNamed(t *testing.T) {
	edit := func(s, old, new string) string {
		if !strings.Contains(s, old) {
			t.Fatalf("no %q", old)
		}
		return strings.Replace(s, old, new, 1)
	}
	const fam = "base/common/KERNEL_FAMILIES.toml"
	for _, c := range []struct{ file, text, want string }{
		{"base/HARDWARE.toml", edit(base, "[build]", "[bild]"), `base/HARDWARE.toml:5:2: unknown key bild`},
		{"base/HARDWARE.toml", edit(base, `"base"`, `"bass"`), `base/HARDWARE.toml:2:1: class "bass" lies in folder base`},
		{"base/HARDWARE.toml", edit(base, `"f16"`, `"f17"`), `base/HARDWARE.toml:10:1: "f17" is no element type`},
		{"base/HARDWARE.toml", edit(base, `16`, `0`), `base/HARDWARE.toml:10:1`},
		{"base/HARDWARE.toml", base + "kv = 3\n", `base/HARDWARE.toml:12:1`},
		{"base/HARDWARE.toml", base + "x = = 3\n", `base/HARDWARE.toml:12`},
		{"base/HARDWARE.toml", edit(base, `"any"`, `"acme"`), `base/HARDWARE.toml:3:1: vendor "acme"; it is any, nvidia or amd`},
		{"base/HARDWARE.toml", edit(base, `"any"`, `"nvidia"`), `base/HARDWARE.toml:1:2: class base has no arch to compile for`},
		{"base/HARDWARE.toml", edit(base, `"any"`, "\"nvidia\"\narch = \"gfx90a\""), `base/HARDWARE.toml:4:1: "gfx90a" is no architecture of vendor nvidia`},
		{"leaf/HARDWARE.toml", edit(leaf, `"any"`, "\"amd\"\narch = \"gfx1151\""), `leaf/HARDWARE.toml:3:1: class leaf of vendor amd inherits from base of vendor any`},
		{"leaf/HARDWARE.toml", edit(leaf, `"base"`, `"none"`), `leaf/HARDWARE.toml:4:1: class leaf inherits "none", which is no class`},
		{"leaf/HARDWARE.toml", edit(leaf, `"base"`, `"leaf"`), `leaf/HARDWARE.toml:4:1: class leaf inherits itself`},
		{fam, edit(families, `name = "norm"`, `name = ""`), fam + `:4:3: family "" has no name of its own`},
		{fam, edit(families, `kind = "runtime"`, `kind = "magic"`), fam + `:8:11: parameter group has kind "magic"; it is runtime, compile, policy or numerics`},
		{fam, edit(families, `family = "norm"`, `family = "norms"`), fam + `:14:1: kernel scale is of family "norms", which is not declared`},
		{fam, edit(families, `kind = "step"`, `kind = "stop"`), fam + `:16:3: kernel scale: argument head has kind "stop"`},
		{fam, edit(families, `access = "out"`, `access = "ou"`), fam + `:19:3: kernel scale: argument y has access "ou"; it is in, out or inout`},
		{fam, edit(families, `name = "w", kind = "weight"`, `name = "w", access = "out", kind = "weight"`), fam + `:18:3: kernel scale: a weight is never written`},
		{fam, edit(families, `{ name = "x", shape = ["R", "n"] }`, `{ name = "x" }`), fam + `:17:3: kernel scale: argument x has no shape`},
		{fam, edit(families, `name = "y"`, `name = "x"`), fam + `:19:3: kernel scale: argument "x" has no name of its own`},
		{fam, edit(families, `"q8_0"`, `"q9_0"`), fam + `:18:3: kernel scale, argument w: "q9_0" is no element type and no entry of [formats]`},
		{fam, edit(families, `alias = "x"`, `alias = "w"`), fam + `:19:3: kernel scale: output y cannot take the memory of "w"`},
		{fam, edit(families, `type = "float"`, `type = "double"`), fam + `:21:10: kernel scale: attribute "eps" has type "double"; it is int, float or str`},
		{fam, families + families[strings.Index(families, "[[kernel]]"):], fam + `:22:3: kernel "scale" has no name of its own`},
		{"base/HARDWARE.toml", edit(base, `spill_bytes = 8`, `spill_bytes = -1`), `base/HARDWARE.toml:7:1: a ceiling is not negative`},
		{"base/HARDWARE.toml", edit(base, `spill_bytes = 8`, `static_shared = -1`), `base/HARDWARE.toml:7:1: a ceiling is not negative`},
		{"DEVICES.toml", edit(devices, `bandwidth = 10.0`, `bandwidth = nan`), `DEVICES.toml:1:2: device one needs memory, bandwidth and flops.f32 above 0`},
		{"DEVICES.toml", edit(devices, `memory = 1000`, `memory = 0`), `DEVICES.toml:1:2: device one needs memory, bandwidth and flops.f32 above 0`},
		{"DEVICES.toml", edit(devices, `source = "a test"`, ``), `DEVICES.toml:1:2: device one needs name, class and source`},
	} {
		_, err := Load(files(c.file, c.text))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || !diag.Is(err, diag.Format) {
			t.Errorf("%s:\n got %v\nwant %s", c.file, err, c.want)
		}
	}
	bare := files()
	delete(bare, "DEVICES.toml")
	if _, err := Load(bare); !diag.Is(err, diag.NotFound) {
		t.Errorf("without DEVICES.toml: %v", err)
	}
}

func TestKeysKnowTheirPlace(t *testing.T) {
	var doc map[string]any
	f, err := DecodeTOML("f.toml", []byte("a = 1\n[b.c]\nd = { e = [1, { g = 2 }] }\n[[h]]\ni.j = 1\n[[h]]\n[h.k]\nl = 2\n[[h.m]]\nn = 3\n"), &doc)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"a": "f.toml:1:1", "b": "f.toml:2:2", "b.c": "f.toml:2:2", "b.c.d": "f.toml:3:1", "b.c.d.e": "f.toml:3:7",
		"b.c.d.e.1.g": "f.toml:3:17", "h.0": "f.toml:4:3", "h.0.i.j": "f.toml:5:1", "h.1": "f.toml:6:3", "h.1.k.l": "f.toml:8:1",
		"h.1.m.0.n": "f.toml:10:1", "b.c.missing.deep": "f.toml:2:2", "missing": "f.toml:1",
	} {
		if got := f.At(path).String(); got != want {
			t.Errorf("%s stands at %s, expected %s", path, got, want)
		}
	}
}

func TestUnify(t *testing.T) {
	axes := func(pairs ...any) (out []Axis) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, Axis{pairs[i].(string), int64(pairs[i+1].(int))})
		}
		return out
	}
	env := NewEnv(map[string]int64{"heads": 4, "dim": 8})
	for _, a := range []struct {
		pattern []string
		axes    []Axis
	}{{[]string{"R", "heads*dim"}, axes("rows", 3, "q", 32)}, {[]string{"N", "heads*dim"}, axes("out", 7, "q", 32)}} {
		if err := env.Bind(a.pattern, a.axes); err != nil {
			t.Fatal(err)
		}
		if err := env.Check(a.pattern, a.axes); err != nil {
			t.Fatal(err)
		}
	}
	out, err := env.Axes([]string{"R", "N", "2*N"})
	if err != nil || !slices.Equal(out, axes("rows", 3, "out", 7, "2*N", 14)) {
		t.Errorf("%v %v", out, err)
	}
	if err := env.Bind([]string{"R"}, axes("rows", 3, "q", 32)); err == nil || err.Error() != "has 2 axes [rows=3, q=32], expected [R]" {
		t.Error(err)
	}
	if err := env.Check([]string{"R", "N"}, axes("rows", 3, "q", 8)); err == nil || err.Error() != "axis 1 is q=8, expected N=7" {
		t.Error(err)
	}
	if _, err := env.Axes([]string{"K"}); err == nil {
		t.Error("an unbound name has a size")
	}
}

// FuzzDecodeTOML: whatever decodes has positions for its keys, and nothing panics.
func FuzzDecodeTOML(f *testing.F) {
	for _, s := range []string{base, leaf, families, devices, "a.b.\"c d\" = [[1], {x = 1}]\n[[t.u]]\n[t.u.v]\n[[t.u]]"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		var doc map[string]any
		file, err := DecodeTOML("f", src, &doc)
		if err != nil {
			if e, ok := diag.As(err); !ok || e.Pos.File != "f" || e.Pos.Line < 1 {
				t.Fatalf("no position: %v", err)
			}
			return
		}
		for k := range doc {
			if strings.Contains(k, ".") || k == "" {
				continue
			}
			if file.At(k).Line < 1 {
				t.Fatalf("%q has no place", k)
			}
		}
	})
}

// TestTheTreeLoads reads the real tree from disk, with the classes that are only built so far.
func TestTheTreeLoads(t *testing.T) {
	tree, err := Load(os.DirFS("../../kernels"))
	if err != nil {
		t.Fatal(err)
	}
	cpu := tree.Classes["cpu"]
	if cpu == nil || len(cpu.Kernels) == 0 || len(cpu.Fusions) != 1 {
		t.Fatalf("class cpu: %+v", cpu)
	}
	for name, f := range cpu.Families {
		if f.Doc == "" || len(f.Ops) == 0 || f.Compute == "" || f.Numerics.Accumulate == "" || f.Numerics.Contraction == "" {
			t.Errorf("family %s says too little: %+v", name, f)
		}
	}
}
