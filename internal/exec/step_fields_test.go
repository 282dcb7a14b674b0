// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import (
	"testing"

	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/kernels"
)

// Every field of the step block that a kernel of any class names has a place, and no two buckets of a model place meet differently.
func TestStepFieldsOfEveryKernelExist(t *testing.T) {
	uses := map[string]bool{}
	for _, f := range plan.StepFields {
		uses[f] = true
	}
	small := plan.Limits{Rows: 1, Seqs: 1, Outs: 1, PageSize: 16, Pages: 4}
	large := plan.Limits{Rows: 64, Seqs: 8, Outs: 8, PageSize: 16, Pages: 4}
	layouts := []*stepLayout{newStepLayout(small, uses, 2), newStepLayout(large, uses, 16)}
	size := placeMeet(layouts)
	for _, y := range layouts {
		meet := y.fields["meet"]
		if meet.off != layouts[0].fields["meet"].off || meet.off < layouts[1].size || meet.off+4*meetLen > size {
			t.Errorf("meet lies at %d, other fields end at %d, the block at %d", meet.off, y.size, size)
		}
	}
	tree, err := kernel.Load(kernels.FS)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range tree.Classes {
		for _, k := range c.Kernels {
			for _, a := range k.Args {
				if _, ok := layouts[1].fields[a.Name]; a.Kind == kernel.StepArg && !ok {
					t.Errorf("class %s, kernel %s: the step block has no field %s", c.Name, k.Name, a.Name)
				}
			}
		}
	}
}
