// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/fixture"
	"github.com/metrale/metrale/internal/tensor"
)

// counted are the dims of a circuit and its parts that something is made for each of: layers, unused tensors, and experts whose tensors have
// names of their own.
func counted(t *testing.T, l *Library, c *Circuit) map[string]string {
	t.Helper()
	why := map[string]string{}
	add := func(expr, what string) {
		names, err := tensor.Names(expr)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			why[n] = what
		}
	}
	for _, part := range c.whole() {
		add(part.Layers.Count, "layers")
		for _, u := range part.Unused {
			if u.N != "" {
				add(u.N, "unused "+u.Match)
			}
		}
		for _, u := range part.uses() {
			for i := range l.Blocks[u.Block].Nodes {
				for name, w := range l.Blocks[u.Block].Nodes[i].Weights {
					if slices.ContainsFunc(w.From, func(alt []string) bool { return strings.Contains(strings.Join(alt, " "), "{e}") }) {
						add(w.Axes[0], "weight "+name+" of block "+u.Block)
					}
				}
			}
		}
	}
	return why
}

// TestWhatIsCountedHasABound: no number of a config.json makes more layers, experts or names than fit into memory.
func TestWhatIsCountedHasABound(t *testing.T) {
	l, found := lib(t), map[string]bool{}
	for _, mt := range l.ModelTypes() {
		v := l.Variants[mt]
		why := counted(t, l, v.circuit)
		for _, defaults := range []map[string]string{v.Dims, v.circuit.all.Dims} { // of what these dims are computed
			for name, expr := range defaults {
				if why[name] == "" {
					continue
				}
				names, err := tensor.Names(expr)
				if err != nil {
					t.Fatal(err)
				}
				for _, n := range names {
					why[n] = why[name] + ", by way of " + name
				}
			}
		}
		for spelling, k := range v.keys {
			if k.Dim == "" || why[k.Dim] == "" {
				continue
			}
			found[k.Dim] = true
			if k.Max == nil || *k.Max > mostUnused {
				t.Errorf("%s: key %s of model_type %s counts %s, and its max is above %d", k.file.At(k.at), spelling, mt, why[k.Dim], mostUnused)
			}
		}
	}
	for _, dim := range []string{"layers", "vis_layers", "mtp_layers", "experts", "zero_experts"} {
		if !found[dim] {
			t.Errorf("no key gives %s: the test does not see what is counted", dim)
		}
	}
}

// TestNumbersThatAreTooLargeAreRefused before anything is made of them.
func TestNumbersThatAreTooLargeAreRefused(t *testing.T) {
	for _, c := range []struct{ model, key, want string }{
		{"longcat_flash", "zero_expert_num", "it must be an integer from 0 to 65536"},
		{"longcat_flash", "n_routed_experts", "it must be an integer from 1 to 65536"},
		{"longcat_flash", "num_layers", "it must be an integer from 1 to 4096"},
		{"qwen3_vl", "depth", "it must be an integer from 1 to 4096"},
	} {
		src := string(fixture.Files(t, fixture.Tiny(c.model))["config.json"])
		before, after, ok := strings.Cut(src, fmt.Sprintf("%q:", c.key))
		if !ok {
			t.Errorf("%s has no %s", c.model, c.key)
			continue
		}
		end := strings.IndexAny(after, ",\n}")
		_, err := Instantiate(lib(t), readConfig(t, []byte(before+fmt.Sprintf("%q: 2147483647", c.key)+after[end:])))
		if err == nil || !strings.Contains(err.Error(), c.key+" is 2147483647; "+c.want) {
			t.Errorf("%s of %s: %v", c.key, c.model, err)
		}
	}
	src := string(fixture.Files(t, fixture.Tiny("qwen3_vl"))["config.json"])
	at := strings.Index(src, `"vision_config"`)
	for _, change := range [][2]string{{`"hidden_size":`, "1073741824"}, {`"num_heads":`, "1"}} {
		i := at + strings.Index(src[at:], change[0]) + len(change[0])
		src = src[:i] + change[1] + src[i+strings.IndexAny(src[i:], ",\n}"):]
	}
	if _, err := Instantiate(lib(t), readConfig(t, []byte(src))); err == nil || !strings.Contains(err.Error(), "1073741824 dims over 1 heads do not rotate") {
		t.Errorf("%v", err)
	}
	b := &builder{p: &point{values: *newValues()}, in: &Instance{}}
	for n, ok := range map[int64]bool{0: true, mostUnused: true, mostUnused + 1: false, 1 << 40: false} {
		b.p.dims["many"] = n
		if err := b.unused(Unused{Match: "t{n}", N: "many"}); (err == nil) != ok {
			t.Errorf("%d unused tensors: %v", n, err)
		}
	}
}
