// SPDX-License-Identifier: MIT OR Apache-2.0

package kernel

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"pgregory.net/rapid"

	"github.com/metrale/metrale/internal/diag"
)

// family is a tree with targets that collide: two models of one type and size, one of any size, and quantisations.
func family(t *testing.T) *Tree {
	t.Helper()
	fsys, _ := readTree(t, "good")
	leaf := func(class, model, match, names string, quants ...string) {
		fsys[class+"/"+model+"/MODEL.toml"] = &fstest.MapFile{Data: []byte("match_names = [" + names + "]\n" + match)}
		for _, q := range quants {
			fsys[class+"/"+model+"/"+q+"/KERNEL.toml"] = &fstest.MapFile{}
		}
	}
	exact := func(types ...string) (s string) {
		for _, x := range types {
			s += "[[match]]\nmodel_type = \"" + x + "\"\nhidden_size = 2048\n"
		}
		return s
	}
	leaf("hw", "coder-30b", exact("qwen3_moe"), `"coder-30b"`, "bf16", "fp8")
	leaf("hw", "qwen3-30b", exact("qwen3_moe"), `"qwen3-30b"`, "bf16")
	leaf("hw", "any-moe", "[[match]]\nmodel_type = \"qwen3_moe\"\n", `"moe"`, "bf16", "nvfp4")
	leaf("hw", "multi", exact("outer", "outer_text"), `"multi"`, "bf16")
	fsys["hw2/HARDWARE.toml"] = &fstest.MapFile{Data: []byte("[hardware]\nclass = \"hw2\"\nvendor = \"nvidia\"\narch = \"sm_100a\"\ninherits = \"base\"\n")}
	leaf("hw2", "qwen3-30b", exact("qwen3_moe"), `"qwen3-30b"`, "bf16")
	tree, err := Load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestResolve(t *testing.T) {
	tree := family(t)
	const several = `met: model_type qwen3_moe with hidden_size 2048 is served by several kernel targets, and the name %s does not tell which: hw/coder-30b/bf16, hw/coder-30b/fp8, hw/qwen3-30b/bf16; choose with --kernel-target`
	for _, c := range []struct {
		why           string
		class         string
		types         string
		hidden        int64
		quant, name   string
		pin           string
		want, refusal string
	}{
		{"one model declares type and size", "hw", "llama", 4096, "bf16", "org/Model", "", "hw/large/bf16", ""},
		{"its leaf of the quantisation is taken", "hw", "llama", 4096, "fp8", "org/Model", "", "hw/large/fp8", ""},
		{"without such a leaf the class serves", "hw", "llama", 4096, "nvfp4", "org/Model", "", "hw", ""},
		{"another size matches nothing", "hw", "llama", 2048, "bf16", "org/Model", "", "hw", ""},
		{"a size that nobody declares goes to who declares any", "hw", "qwen3_moe", 4096, "bf16", "x/Qwen3-30B", "", "hw/any-moe/bf16", ""},
		{"a declared size comes before any", "hw", "qwen3_moe", 2048, "bf16", "Qwen/Qwen3-30B-A3B", "", "hw/qwen3-30b/bf16", ""},
		{"names break a collision", "hw", "qwen3_moe", 2048, "fp8", "org/Coder-30B-FP8", "", "hw/coder-30b/fp8", ""},
		{"names are whole words", "hw", "qwen3_moe", 2048, "bf16", "org/qwen3-30binary", "", "", fmt.Sprintf(several, `"org/qwen3-30binary"`)},
		{"an unbroken tie lists the candidates", "hw", "qwen3_moe", 2048, "bf16", "org/mine", "", "", fmt.Sprintf(several, `"org/mine"`)},
		{"two names that both match are no answer", "hw", "qwen3_moe", 2048, "bf16", "org/coder-30b-of-qwen3-30b", "", "", fmt.Sprintf(several, `"org/coder-30b-of-qwen3-30b"`)},
		{"no name is no answer", "hw", "qwen3_moe", 2048, "bf16", "", "", "", fmt.Sprintf(several, `""`)},
		{"the inner model_type counts too", "hw", "wrapper outer_text", 2048, "bf16", "", "", "hw/multi/bf16", ""},
		{"another class has its own", "hw2", "qwen3_moe", 2048, "bf16", "org/mine", "", "hw2/qwen3-30b/bf16", ""},
		{"a pin decides alone", "hw", "qwen3_moe", 2048, "bf16", "org/mine", "hw/any-moe/bf16", "hw/any-moe/bf16", ""},
		{"a pin may leave the class out", "hw", "qwen3_moe", 2048, "bf16", "org/mine", "qwen3-30b/bf16", "hw/qwen3-30b/bf16", ""},
		{"a pin may be the class", "hw", "llama", 4096, "bf16", "", "hw", "hw", ""},
		{"a pin of another quantisation is refused", "hw", "llama", 4096, "fp8", "", "large/bf16", "", `kernel target hw/large/bf16 is for bf16 weights; the checkpoint's are fp8`},
		{"a pin of another class is refused", "hw", "llama", 4096, "bf16", "", "hw2/qwen3-30b/bf16", "", `--kernel-target hw2/qwen3-30b/bf16 is no target of class hw; there are hw, hw/any-moe/bf16, hw/any-moe/nvfp4, hw/coder-30b/bf16,`},
		{"an unknown pin is refused", "hw2", "llama", 4096, "bf16", "", "smaall", "", `--kernel-target smaall is no target of class hw2; there are hw2, hw2/qwen3-30b/bf16`},
		{"an abstract class serves nothing", "base", "llama", 4096, "bf16", "", "", "", `hardware class "base" is no target`},
	} {
		ck := Checkpoint{ModelTypes: strings.Fields(c.types), HiddenSize: c.hidden, Quant: c.quant}
		if c.name != "" {
			ck.Names = []string{c.name}
		}
		got, err := tree.Resolve(c.class, ck, c.pin)
		if c.refusal != "" {
			if err == nil || !strings.HasPrefix(err.Error(), strings.TrimPrefix(c.refusal, "met: ")) {
				t.Errorf("%s:\n got %v\nwant %s", c.why, err, c.refusal)
			}
			continue
		}
		if err != nil || got.Name() != c.want {
			t.Errorf("%s: %v %v, want %s", c.why, got, err, c.want)
		}
	}
}

// TestResolveIsOnlyEverRight: whatever is chosen without a pin is of the class, suits the quantisation, and matches the
// checkpoint's type and size; what is refused names the flag that helps.
func TestResolveIsOnlyEverRight(t *testing.T) {
	tree := family(t)
	rapid.Check(t, func(t *rapid.T) {
		ck := Checkpoint{
			ModelTypes: rapid.SliceOfN(rapid.SampledFrom([]string{"llama", "qwen3_moe", "outer", "outer_text", "none"}), 1, 2).Draw(t, "types"),
			HiddenSize: rapid.SampledFrom([]int64{2048, 4096, 1}).Draw(t, "hidden"),
			Quant:      rapid.SampledFrom(Quants).Draw(t, "quant"),
			Names:      rapid.SliceOfN(rapid.SampledFrom([]string{"large", "a/coder-30b", "qwen3-30b.gguf", "x"}), 0, 3).Draw(t, "names"),
		}
		tg, err := tree.Resolve("hw", ck, "")
		if err != nil {
			if !diag.Is(err, diag.Invalid) || !strings.Contains(err.Error(), "--kernel-target") {
				t.Fatal(err)
			}
			return
		}
		if tg.Class.Name != "hw" || tg.CheckQuant(ck.Quant) != nil {
			t.Fatalf("%s for %+v", tg.Name(), ck)
		}
		if tg.Model != nil && !slices.ContainsFunc(tg.Model.Matches, func(m Match) bool {
			return slices.Contains(ck.ModelTypes, m.ModelType) && (m.HiddenSize == 0 || m.HiddenSize == ck.HiddenSize)
		}) {
			t.Fatalf("%s for %+v", tg.Name(), ck)
		}
	})
}

func TestArchIsHeldAgainstTheDevice(t *testing.T) {
	for _, c := range []struct {
		arch         string
		major, minor int
		ok           bool
	}{
		{"sm_90a", 9, 0, true}, {"sm_90a", 10, 0, false}, {"sm_90", 9, 0, true},
		{"sm_100a", 10, 0, true}, {"sm_100a", 10, 3, false}, {"sm_100f", 10, 3, true}, {"sm_100", 10, 3, true},
		{"sm_121a", 12, 1, true}, {"sm_121a", 12, 0, false}, {"sm_121f", 12, 0, false}, {"sm_120f", 12, 1, true}, {"sm_120", 10, 0, false},
		{"sm_80", 8, 6, true}, {"sm_86", 8, 0, false}, {"gfx1151", 9, 0, false}, {"sm_", 9, 0, false}, {"", 0, 0, false},
	} {
		err := CheckArch(c.arch, c.major, c.minor)
		if (err == nil) != c.ok || err != nil && !diag.Is(err, diag.Unsupported) {
			t.Errorf("%s on %d.%d: %v", c.arch, c.major, c.minor, err)
		}
	}
	if err := CheckArch("sm_90a", 10, 0); err == nil || err.Error() != "the kernels are compiled for sm_90a; this device has compute capability 10.0" {
		t.Error(err)
	}
}
