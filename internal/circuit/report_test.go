// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"testing"

	"github.com/metrale/metrale/internal/fixture"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// TestReports compares what met circuit prints with golden files.
func TestReports(t *testing.T) {
	cfg, cat := tiny(t, "qwen3_5_moe_text")
	in := instantiate(t, cfg)
	p := lower(t, in, cat, false)
	compareGolden(t, "testdata/display.txt", in.Display(p))
	compareGolden(t, "testdata/memory.txt", in.MemoryReport(p, 1<<20, 256))
	text, err := in.Roofline(p, lib(t).Tree.Devices["epyc-9654"], Load{Rows: 4, Seqs: 4, Outs: 4, Context: 128})
	if err != nil {
		t.Fatal(err)
	}
	compareGolden(t, "testdata/roofline.txt", text)
}

// TestCostsOfARealModel holds the sums against what is known of Llama 3.1 8B: 8.03 G parameters, two flops each and row
// (the embedding none), two bytes each when stored in bf16.
func TestCostsOfARealModel(t *testing.T) {
	in := instantiate(t, readConfig(t, fixture.Files(t, fixture.Configs)["meta-llama--Meta-Llama-3.1-8B_config.json"]))
	p, err := in.Lower(lib(t), in.SyntheticCatalog(tensor.BF16), Options{Class: "cpu", Compute: Float32, KV: tensor.F16,
		Limits: plan.Limits{Rows: 1, Seqs: 1, Outs: 1, PageSize: 16, Pages: 64}})
	if err != nil {
		t.Fatal(err)
	}
	costs, err := in.Costs(p, Load{Rows: 1, Seqs: 1, Outs: 1, Context: 0})
	if err != nil {
		t.Fatal(err)
	}
	var sum Cost
	for _, c := range costs {
		sum.Flops += c.Flops
		sum.WeightBytes += c.WeightBytes
	}
	const params, embedding = 8_030_261_248, 128256 * 4096
	if lo, hi := int64(2*(params-embedding)), int64(201*(params-embedding)/100); sum.Flops < lo || sum.Flops > hi {
		t.Errorf("%d flops a token, expected %d to %d", sum.Flops, lo, hi)
	}
	if lo, hi := int64(2*(params-embedding)), int64(2001*(params-embedding)/1000); sum.WeightBytes < lo || sum.WeightBytes > hi {
		t.Errorf("%d bytes of weights a step, expected %d to %d", sum.WeightBytes, lo, hi)
	}
	m := MemoryOf(p)
	if m.PerToken != 2*32*8*128*2 || m.PerSeq != 0 {
		t.Errorf("%d bytes of K and V a token, %d of state", m.PerToken, m.PerSeq)
	}
	if n := m.Concurrency(24<<30, 1000, 16); n != (24<<30-m.Weights-m.Arena)/(1008*m.PerToken) {
		t.Errorf("%d sequences fit", n)
	}
	if m.Concurrency(1<<30, 1000, 16) != -1 {
		t.Error("16 GB of weights fit into one")
	}
}

// TestCostsCountAnExpertOnce: eight rows of Qwen3 30B-A3B take 51.6 of 128 experts, if they choose 8 each at random; a row takes 8.
func TestCostsCountAnExpertOnce(t *testing.T) {
	in := instantiate(t, readConfig(t, fixture.Files(t, fixture.Configs)["Qwen--Qwen3-30B-A3B_config.json"]))
	p, err := in.Lower(lib(t), in.SyntheticCatalog(tensor.BF16), Options{Class: "cpu", Compute: Float32, KV: tensor.F16,
		Limits: plan.Limits{Rows: 8, Seqs: 8, Outs: 8, PageSize: 16, Pages: 64}})
	if err != nil {
		t.Fatal(err)
	}
	for rows, experts := range map[int64]int64{1: 8, 8: 52, 4096: 128} {
		costs, err := in.Costs(p, Load{Rows: rows, Seqs: 1, Outs: 1})
		if err != nil {
			t.Fatal(err)
		}
		read := int64(0)
		for i, c := range costs {
			if p.Launches[i].Kernel == "experts" {
				read += c.WeightBytes
			}
		}
		if want := experts * 48 * 3 * 768 * 2048 * 2; read < want-experts || read > want {
			t.Errorf("%d rows read %d bytes of experts, expected %d", rows, read, want)
		}
	}
}
