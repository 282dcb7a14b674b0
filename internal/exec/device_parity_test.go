// SPDX-License-Identifier: MIT OR Apache-2.0

package exec_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/fixture"
	"github.com/metrale/metrale/internal/gpu/cudatest"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/kernels"
)

// The parity ladder's second rung: the same checkpoints in float32 on a CUDA device. Prompts go whole and by 16 rows, and on from
// their last token one by one; all logits are transformers', and so are the greedy ids.
func TestLogitsOnTheDeviceEqualTransformers(t *testing.T) {
	dev := cudatest.Open(t, kernels.FS)
	names := append(fixture.Families(t), fixture.Quantised(t)...)
	if cudatest.OnHost() {
		names = []string{"llama"} // the others: met circuit diff, in tools/ci/cudahost.sh
	}
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			f := openFamily(t, name)
			for _, rows := range []int64{48, 16} {
				m := f.loadOn(t, dev, rows)
				for which, ref := range f.prompts {
					logits, greedy, err := exec.Evaluate(m, ref.ids, 0, len(ref.greedy))
					if err != nil {
						t.Fatal(err)
					}
					worst := compare(t, fmt.Sprintf("%s by %d rows", which, rows), logits, ref)
					ref.sameGreedy(t, which, greedy, worst)
					t.Logf("%s by %d rows: max |ours-ref|/(1+|ref|) = %.2e", which, rows, worst)
				}
				m.Close()
			}
		})
	}
}

// loadOn binds float32 plans of one row and of so many to a CUDA device.
func (f *family) loadOn(t *testing.T, dev cudatest.Device, rows int64) *exec.Model {
	t.Helper()
	var plans []*plan.Plan
	for _, r := range []int64{1, rows} {
		p, err := f.instance.Lower(f.library, f.store, circuit.Options{Class: dev.Class.Name, Compute: circuit.Float32, KV: tensor.F32,
			Limits: plan.Limits{Rows: r, Seqs: 1, Outs: r, PageSize: pageSize, Pages: 5}})
		if err != nil {
			t.Fatal(err)
		}
		plans = append(plans, p)
	}
	m, err := exec.Load(context.Background(), exec.Options{Device: dev.Device, Plans: plans, Store: f.store, NumPages: 5, NumSlots: 1})
	if err != nil {
		t.Fatal(err)
	}
	return m
}
