// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/kernels"
)

// hot is a class that has the cpu's kernels and one of its own, for few rows, one element type and some widths.
const hot = `[formats]

[[kernel]]
name = "linear_hot"
family = "linear"
args = [
  { name = "x", shape = ["R", "K"] },
  { name = "w", kind = "weight", shape = ["N", "K"], dtype = ["bf16"] },
  { name = "part", kind = "scratch", shape = ["R", "2*N"], dtype = ["bf16"] },
  { name = "y", access = "out", shape = ["R", "N"] },
]
attrs = [{ name = "compute", type = "str", values = ["f32"] }]
where = ["N % 128 == 0"]
[kernel.launch]
module = "linear/hot"
entry = "linear_hot"
params = ["x", "w", "part", "N", "K"]
grid = ["ceil(N, 8)", "rows"]
block = "256"
[[kernel.then]]
module = "linear/hot"
entry = "linear_sum"
params = ["count:R", "part", "y", "N"]
grid = ["rows"]
block = "32"
`

const hotRules = `[[rule]]
name = "hot"
kernel = "linear_hot"
priority = 100
numerics = "reference"
rows = { max = 8 }
match = ["y = linear(x, bias=-)"]
`

// TestAKernelServesOnlyWhatItLists: element types, conditions and row buckets choose between rules; expressions of the
// launches and the scratch memory come into the plan and survive its text.
func TestAKernelServesOnlyWhatItLists(t *testing.T) {
	tree := fstest.MapFS{}
	err := fs.WalkDir(kernels.FS, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasPrefix(name, "bin/") {
			return err
		}
		data, err := fs.ReadFile(kernels.FS, name)
		tree[name] = &fstest.MapFile{Data: data}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	tree["hot/HARDWARE.toml"] = &fstest.MapFile{Data: []byte("[hardware]\nclass = \"hot\"\nvendor = \"any\"\ninherits = \"cpu\"\n")}
	tree["hot/common/KERNEL_FAMILIES.toml"] = &fstest.MapFile{Data: []byte(hot)}
	tree["hot/common/FUSIONS.toml"] = &fstest.MapFile{Data: []byte(hotRules)}
	l, err := LoadLibrary(tree)
	if err != nil {
		t.Fatal(err)
	}
	cfg, cat := tiny(t, "llama")
	for name := range cat.dtypes {
		cat.dtypes[name] = tensor.BF16
	}
	cat.dtypes["model.layers.0.mlp.down_proj.weight"] = tensor.F32
	in := instantiate(t, cfg)
	used := func(rows int64) (names []string) {
		limits := small
		limits.Rows, limits.Outs = rows, rows
		p, err := in.Lower(l, cat, Options{Class: "hot", Compute: Float32, Limits: limits, NoFusion: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range p.Launches {
			if x.Kernel != "linear_hot" {
				if len(x.Grid) > 0 {
					t.Errorf("launch %s has a grid %q", x.Name, x.Grid)
				}
				continue
			}
			names = append(names, strings.TrimPrefix(x.Name, "L00."))
			if want := []string{"ceil(N, 8)", "rows", "1", "256", "0", "rows", "1", "1", "32", "0"}; !slices.Equal(x.Grid, want) {
				t.Errorf("grid %q", x.Grid)
			}
			if s := p.Buffers[x.Args[2].Index]; s.Name != x.Name+".part" || s.DType != tensor.BF16 || s.Axes[0].Size != rows || s.Axes[1].Size != 2*p.Buffers[x.Args[3].Index].Axes[1].Size {
				t.Errorf("scratch %+v", s)
			}
			_, _, w := p.Array(&x.Args[1])
			if w[0].Size%128 != 0 || x.Name == "L00.mlp.down" {
				t.Errorf("launch %s takes %v", x.Name, w)
			}
		}
		if back, err := plan.Parse("p", p.Print()); err != nil || back.Print() != p.Print() {
			t.Errorf("the text does not read back: %v", err)
		}
		return names
	}
	if got := used(8); len(got) == 0 {
		t.Error("no launch of 8 rows uses the kernel")
	}
	if got := used(16); len(got) > 0 {
		t.Errorf("launches of 16 rows use the kernel: %v", got)
	}
}
