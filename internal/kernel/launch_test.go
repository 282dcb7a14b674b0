// SPDX-License-Identifier: MIT OR Apache-2.0

package kernel

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/diag"
)

var launched = strings.Replace(families, `  { name = "y"`, `  { name = "h", kind = "scratch", shape = ["R", "2*n"] },
  { name = "v", kind = "weight", shape = ["n"], dtype = ["any"], like = "w", optional = true },
  { name = "y"`, 1) + `where = ["n % 4 == 0", "2*n <= 4096"]
reference = "scale"
tolerance = { abs = 1e-6, rel = 1e-5, rounded = ["x"], why = "one rounding" }
tolerance_many = { over = 4, abs = 1e-3, rel = 1e-3, why = "two roundings" }
[kernel.launch]
module = "norm/scale_{w.dtype}"
entry = "scale_{w.dtype}_{n}"
params = ["head", "x", "w", "y", "n", "eps", "i32:2*rows", "i64:n*4", "tmap:x:1xn:128", "count:R"]
grid = ["ceil(n, 4)", "R"]
block = "128"
pdl = true
registers = 64
spill_bytes = 0
[[kernel.then]]
module = "norm/scale"
entry = "second"
params = ["h"]
grid = ["R"]
block = "32"
shared = "4*n*w_bits"
`

func TestLaunchesAreRead(t *testing.T) {
	tree, err := Load(files("base/common/KERNEL_FAMILIES.toml", launched))
	if err != nil {
		t.Fatal(err)
	}
	k := tree.Classes["leaf"].Kernels["scale"]
	l := k.Launch
	if l.Cluster != 1 || l.Registers != 64 || *l.SpillBytes != 0 || l.StaticShared != nil || !l.PDL || k.Tolerance.Rel != 1e-5 || len(k.Tolerance.Rounded) != 1 {
		t.Errorf("%+v", l)
	}
	if got := fmt.Sprint(k.Expressions()); got != "[ceil(n, 4) R 1 128 0 R 1 1 32 4*n*w_bits]" || len(k.Launches()) != 2 {
		t.Error(got)
	}
	if k.ToleranceOf(4) != k.Tolerance || k.ToleranceOf(5) != k.Many || k.ToleranceOf(5).Abs != 1e-3 {
		t.Error(k.ToleranceOf(4), k.ToleranceOf(5))
	}
	if h := k.Arg("h"); h.Kind != ScratchArg || h.Access != "out" || k.Arg("v").Like != "w" {
		t.Errorf("%+v", h)
	}
	want := []LaunchParam{{Arg: "head"}, {Arg: "x"}, {Arg: "w"}, {Arg: "y"}, {Kind: IntParam, Expr: "n"}, {Kind: FloatParam, Attr: "eps"},
		{Kind: IntParam, Expr: "2*rows"}, {Kind: LongParam, Expr: "n*4"}, {Kind: MapParam, Arg: "x", Box: []string{"1", "n"}, Swizzle: 128}, {Kind: CountParam, Axis: "R"}}
	for i, text := range l.Params {
		if p, err := k.Param(text); err != nil || !reflect.DeepEqual(p, want[i]) {
			t.Errorf("%s: %+v %v", text, p, err)
		}
	}
	entry, err := Expand(l.Entry, func(name string) (string, error) { return strings.ToUpper(name), nil })
	if err != nil || entry != "scale_W.DTYPE_N" {
		t.Error(entry, err)
	}
	if _, err := Expand("a{b", nil); err == nil {
		t.Error("an open brace expands")
	}
}

func TestConditions(t *testing.T) {
	e := NewEnv(map[string]int64{"n": 8})
	for c, want := range map[string]bool{"n % 4 == 0": true, "n != 8": false, "n <= 8": true, "n >= 9": false, "n < 9": true, "2*n > 16": false} {
		if got, err := e.Holds(c); err != nil || got != want {
			t.Errorf("%s: %v %v", c, got, err)
		}
	}
	for _, c := range []string{"n", "m == 1", "n == "} {
		if _, err := e.Holds(c); err == nil {
			t.Errorf("%s holds", c)
		}
	}
}

func TestLaunchFaultsAreNamed(t *testing.T) {
	const fam = "base/common/KERNEL_FAMILIES.toml"
	for _, c := range []struct{ old, new, want string }{
		{`pdl = true`, `pld = true`, ":34:1: unknown key"},
		{`"norm/scale_{w.dtype}"`, `"scale"`, ":29:1: kernel scale: module is"},
		{`"norm/scale_{w.dtype}"`, `"norm/scale.cu"`, ":29:1: kernel scale: module is"},
		{`entry = "scale_{w.dtype}_{n}"`, `entry = "scale_{u.dtype}"`, `:30:1: kernel scale: entry is "scale_{u.dtype}": {u.dtype} names no argument`},
		{`entry = "scale_{w.dtype}_{n}"`, `entry = "scale_{m}"`, `no axis, int attribute or launch name is called m`},
		{`"y", "n"`, `"n"`, `:31:1: kernel scale: no parameter passes y, which the kernel writes`},
		{`"y", "n"`, `"y", "m"`, `:31:34: kernel scale: expression "m": no axis`},
		{`"i64:n*4"`, `"f64:n*4"`, `the prefix is count, i32, i64 or tmap`},
		{`"i64:n*4"`, `"i64:n*"`, `ends too early`},
		{`"count:R"`, `"count:S"`, `:31:89: kernel scale: count of "S", which is no axis`},
		{`params = ["h"]`, `params = ["g"]`, `:40:11: kernel scale: expression "g"`},
		{`params = ["h"]`, `params = ["x"]`, `:31:1: kernel scale: no parameter passes h, which the kernel writes`},
		{`like = "w"`, `like = "u"`, `kernel scale: argument v is like "u", which is none`},
		{`tmap:x:1xn:128`, `tmap:x:1xn:99`, `swizzle is none, 32, 64 or 128`},
		{`tmap:x:1xn:128`, `tmap:x:n:128`, `a box of 1 extents over 2 axes`},
		{`tmap:x:1xn:128`, `tmap:z:n:128`, `a tensor map is tmap:argument:box:swizzle`},
		{`"ceil(n, 4)", "R"`, ``, `:32:1: kernel scale: a grid has 1 to 3 extents`},
		{`"ceil(n, 4)", "R"`, `"ceil(n)"`, `ceil needs two arguments`},
		{`block = "128"`, `block = "threads"`, `:33:1: kernel scale: expression "threads"`},
		{`registers = 64`, `registers = -1`, `:35:1: kernel scale: a ceiling is not negative`},
		{`spill_bytes = 0`, `spill_bytes = -1`, `:36:1: kernel scale: a ceiling is not negative`},
		{`block = "128"`, "block = \"128\"\nstatic_shared = -1", `:34:1: kernel scale: a ceiling is not negative`},
		{`block = "128"`, "block = \"128\"\ncarveout = 101", `:34:1: kernel scale: carveout is 0 to 100 percent, not 101`},
		{`rel = 1e-3`, `rel = nan`, `a tolerance has abs and rel, numbers of at least 0`},
		{`rel = 1e-5`, `rel = inf`, `a tolerance has abs and rel, numbers of at least 0`},
		{`"n % 4 == 0"`, `"n % 4"`, `has no == != <= >= < >`},
		{`"n % 4 == 0"`, `"k == 0"`, `no axis, int attribute or launch name is called k`},
		{`over = 4`, `over = 0`, `says over how many rows`},
		{`why = "two roundings"`, `why = ""`, `a tolerance has abs and rel`},
		{`4*n*w_bits`, `4*n*x_bits`, `no axis, int attribute or launch name is called x_bits`},
		{`why = "one rounding"`, `why = ""`, `a tolerance has abs and rel`},
		{`rounded = ["x"]`, `rounded = ["w"]`, `"w" is no float32 buffer that the kernel reads`},
		{`rounded = ["x"]`, `rounded = ["y"]`, `"y" is no float32 buffer that the kernel reads`},
	} {
		if !strings.Contains(launched, c.old) {
			t.Fatalf("no %q", c.old)
		}
		_, err := Load(files(fam, strings.Replace(launched, c.old, c.new, 1)))
		if err == nil || !strings.HasPrefix(err.Error(), fam+":") || !strings.Contains(err.Error(), c.want) || !diag.Is(err, diag.Format) {
			t.Errorf("%s → %s:\n got %v\nwant %s", c.old, c.new, err, c.want)
		}
	}
	// A class of a vendor with a driver needs a launch; a reference must exist where the class cpu is.
	if _, err := Load(files("base/HARDWARE.toml", strings.Replace(base, `"any"`, "\"nvidia\"\narch = \"sm_90a\"", 1))); err == nil || !strings.Contains(err.Error(), "has no [kernel.launch]") {
		t.Error(err)
	}
	cpu := strings.Replace(base, `"base"`, `"cpu"`, 1)
	with := strings.Replace(families, `  { name = "y"`, "  { name = \"v\", shape = [\"n\"] },\n  { name = \"y\"", 1)
	for ref, want := range map[string]string{with: "", strings.Replace(with, `"scale"`, `"other"`, 1): `the class cpu has no kernel "scale"`, families: `has no argument v`} {
		_, err := Load(files(fam, launched, "cpu/HARDWARE.toml", cpu, "cpu/common/KERNEL_FAMILIES.toml", ref))
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
