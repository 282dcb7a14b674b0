// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"fmt"
	"sync"
	"testing"

	"github.com/metrale/metrale/internal/fixture"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// BenchmarkLower makes the plans of a model of 32 layers: some of one size, and those of all sizes at once, as a start does.
func BenchmarkLower(b *testing.B) {
	l := lib(b)
	in := instantiate(b, readConfig(b, fixture.Files(b, fixture.Configs)["meta-llama--Meta-Llama-3.1-8B_config.json"]))
	cat := in.SyntheticCatalog(tensor.BF16)
	lower := func(rows int64) {
		o := Options{Class: "hopper", Compute: Declared, Limits: plan.Limits{Rows: rows, Seqs: 1, Outs: 1, PageSize: 16, Pages: 256}}
		if _, err := in.Lower(l, cat, o); err != nil {
			b.Error(err)
		}
	}
	for _, rows := range []int64{1, 16, 2048} {
		b.Run(fmt.Sprintf("%d rows", rows), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				lower(rows)
			}
		})
	}
	b.Run("all", func(b *testing.B) {
		for b.Loop() {
			var wg sync.WaitGroup
			for rows := int64(1); rows <= 2048; rows *= 2 {
				wg.Go(func() { lower(rows) })
			}
			wg.Wait()
		}
	})
}
