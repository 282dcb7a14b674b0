// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

import (
	"maps"
	"slices"
	"testing"

	manifest "github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/kernels"
)

// The class's manifest and the binders name the same kernels, parameters with the same access, and attributes.
func TestManifest(t *testing.T) {
	tree, err := manifest.Load(kernels.FS)
	if err != nil {
		t.Fatal(err)
	}
	declared := tree.Classes["cpu"].Kernels
	d := open(t, Options{Threads: 1})
	for _, k := range declared {
		entry, ok := table[k.Name]
		if !ok {
			t.Errorf("%s: in the manifest only", k.Name)
			continue
		}
		// A binding without arguments: the binder asks for all it knows.
		r := &rig{t: t, dev: d}
		r.b.Kernel = k.Name
		head := view[int32](r.arg("head", plan.In, tensor.I32, "", 32, plan.Axes{ax("head", 8)}))
		clear(head)
		if k.Name == "linear_n" {
			r.attr("n", 4)
		}
		a := newArgs(d, &r.b)
		a.steps()
		entry.bind(a)
		want := map[string]plan.Access{}
		for _, x := range k.Args {
			want[x.Name] = map[string]plan.Access{"in": plan.In, "out": plan.Out, "inout": plan.InOut}[x.Access]
		}
		if !maps.Equal(a.params, want) {
			t.Errorf("%s: parameters %v, the manifest has %v", k.Name, a.params, want)
		}
		var attrs []string
		for _, x := range k.Attrs {
			attrs = append(attrs, x.Name)
		}
		slices.Sort(attrs)
		if got := slices.Sorted(maps.Keys(a.attrs)); !slices.Equal(got, attrs) {
			t.Errorf("%s: attributes %v, the manifest has %v", k.Name, got, attrs)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(table)) {
		if declared[name] == nil {
			t.Errorf("%s: not in the manifest", name)
		}
	}
}
