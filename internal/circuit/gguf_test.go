// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"testing"

	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights"
)

// TestGGUFCheckpointsFit lowers the GGUF files of the weights package: their metadata is classified like a config.json, and
// with policy declared their block-quantised weights are computed with int8 activations.
func TestGGUFCheckpointsFit(t *testing.T) {
	for _, name := range []string{"llama", "mistral3", "qwen2", "qwen3-00001-of-00002", "qwen3moe", "qwen35", "qwen35moe"} {
		t.Run(name, func(t *testing.T) {
			store, files, err := weights.Open("../weights/testdata/"+name+".gguf", weights.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			cfg, err := modelconf.FromGGUF(files.GGUF)
			if err != nil {
				t.Fatal(err)
			}
			p, err := instantiate(t, cfg).Lower(lib(t), store, Options{Class: "cpu", Compute: Declared, Limits: small})
			if err != nil {
				t.Fatal(err)
			}
			if p.KV != tensor.F16 {
				t.Errorf("K and V are %v; the class's default is f16", p.KV)
			}
			q8 := 0
			for _, l := range p.Launches {
				for _, a := range l.Attrs {
					if a.Name == "compute" && a.Str == "q16" {
						q8++
					}
				}
			}
			if q8 == 0 {
				t.Error("no launch computes in q8")
			}
		})
	}
}
