// SPDX-License-Identifier: MIT OR Apache-2.0

package bench

import (
	"testing"

	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/kernels"
)

// TestShapesLower: there are 32 shapes, whose names differ, and each class that computes models lowers each way to compute them.
func TestShapesLower(t *testing.T) {
	lib, err := circuit.LoadLibrary(kernels.FS)
	if err != nil {
		t.Fatal(err)
	}
	names, n := map[string]bool{}, 0
	for _, s := range shapes32() {
		if names[s.name] = true; !s.further {
			n++
		}
		for _, v := range s.variants {
			in, err := v.fragment.Instance()
			if err != nil {
				t.Fatal(err)
			}
			for _, class := range []string{"cpu", "cuda", "hopper"} {
				p, err := in.Lower(lib, in.SyntheticCatalog(v.matrices()), circuit.Options{Class: class, Compute: circuit.Declared,
					Limits: plan.Limits{Rows: int64(s.rows), Seqs: 1, Outs: 1, PageSize: 16, Pages: int64(s.behind+s.rows+15) / 16}})
				if err != nil {
					t.Errorf("%s: %v", s.name, err)
					continue
				}
				if _, err := in.Costs(p, circuit.Load{Rows: int64(s.rows), Seqs: 1, Outs: 1, Context: 1}); err != nil {
					t.Errorf("%s: %v", s.name, err)
				}
			}
		}
	}
	if n != 32 || len(names) != len(shapes32()) {
		t.Errorf("%d shapes, %d names", n, len(names))
	}
}
