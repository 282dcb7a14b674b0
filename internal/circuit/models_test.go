// SPDX-License-Identifier: MIT OR Apache-2.0

package circuit

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/fixture"
	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights"
	"github.com/metrale/metrale/kernels"
)

// onCPU is where models of tests run.
var onCPU = Target{"cpu", weights.Reads}

var publishedModels = sync.OnceValues(func() ([]Model, error) { return Published(kernels.FS) })

func published(t testing.TB) []Model {
	t.Helper()
	models, err := publishedModels()
	if err != nil {
		t.Fatal(err)
	}
	return models
}

// TestModelsPage holds docs/models.md, and that each published config runs or is refused with a typed error.
func TestModelsPage(t *testing.T) {
	t.Parallel()
	models := published(t)
	if len(models) != 86 || len(fixture.Files(t, fixture.Configs)) != 113 {
		t.Errorf("%d models of %d files", len(models), len(fixture.Files(t, fixture.Configs)))
	}
	survey := Summaries(lib(t), models, onCPU)
	for i, s := range survey {
		if s.Circuit != "" && (s.Layers == 0 || s.Params < s.Active || s.Active == 0 || s.Bytes < s.Params/3) {
			t.Errorf("%s: %+v", s.Name, s)
		}
		if s.Refused == "" && s.Circuit == "" || s.Lacks != nil && s.Circuit != "" {
			t.Errorf("%s: %+v", s.Name, s)
		}
		if s.Circuit == "" && models[i].Err == nil {
			if _, err := Instantiate(lib(t), models[i].Config); !diag.Is(err, diag.Unsupported) {
				t.Errorf("%s: %v", s.Name, err)
			}
		}
	}
	compareGolden(t, "../../docs/models.md", survey.Markdown())
}

// TestSizesOfKnownModels: parameters as their makers count them.
func TestSizesOfKnownModels(t *testing.T) {
	models := published(t)
	for _, c := range []struct {
		name, params, active, weights, stored string
	}{
		{"Qwen/Qwen3-30B-A3B", "30.5B", "3.35B", "bf16", "56.87 GiB"},
		{"deepseek-ai/DeepSeek-R1", "671B", "37.6B", "fp8 128x128 99.7 %, bf16 0.292 %", "626.9 GiB"},
		{"openai/gpt-oss-120b", "117B", "5.71B", "mxfp4 98.1 %, bf16 1.86 %", "60.77 GiB"},
		{"nvidia/Llama-3.1-70B-Instruct-FP8", "70.6B", "70.6B", "fp8 97 %, bf16 2.98 %", "67.67 GiB"},
		{"nvidia/DeepSeek-V4-Flash-NVFP4", "284B", "13.8B", "nvfp4 97.4 %, fp8 128x128 2.18 %, bf16 0.389 %", "153 GiB"},
		{"nvidia/Qwen3.6-27B-NVFP4", "26.9B", "26.9B", "nvfp4 68.4 %, fp8 26.8 %, bf16 4.82 %", "18.77 GiB"},
	} {
		i := slices.IndexFunc(models, func(m Model) bool { return m.Name == c.name })
		s := Summarise(lib(t), models[i], onCPU)
		if row := s.row(); row[5] != c.params || row[6] != c.active || row[7] != c.weights || row[8] != c.stored {
			t.Errorf("%s: %q", c.name, row)
		}
	}
}

// TestStoredBytes counts numbers and scales of one matrix of experts.
func TestStoredBytes(t *testing.T) {
	w := &Weight{Axes: []kernel.Axis{{Name: "experts", Size: 8}, {Name: "inter", Size: 256}, {Name: "hidden", Size: 512}}}
	const elems = 8 * 256 * 512
	for _, c := range []struct {
		v     modelconf.Values
		label string
		want  int64
	}{
		{modelconf.Values{Format: modelconf.E4M3, Scale: tensor.F32}, "fp8", elems + 8*4},
		{modelconf.Values{Format: modelconf.E4M3, Scale: tensor.F32, Group: [2]int64{1, 0}}, "fp8 by row", elems + 8*256*4},
		{modelconf.Values{Format: modelconf.E4M3, Scale: tensor.F32, Group: [2]int64{128, 128}}, "fp8 128x128", elems + 8*2*4*4},
		{modelconf.Values{Format: modelconf.E4M3, Scale: tensor.E8M0, Group: [2]int64{1, 32}}, "fp8 by 32", elems + elems/32},
		{modelconf.Values{Format: modelconf.E2M1, Scale: tensor.E4M3, Group: [2]int64{1, 16}, Global: true}, "nvfp4", elems/2 + elems/16 + 8*4},
		{modelconf.Values{Format: modelconf.E2M1, Scale: tensor.E8M0, Group: [2]int64{1, 32}}, "mxfp4", elems/2 + elems/32},
		{modelconf.Values{Format: modelconf.Int4, Group: [2]int64{1, 32}, Zero: true}, "int4 by 32", elems/2 + elems/32*2 + elems/32/2},
	} {
		if got := bytesOf(c.v, w); got != c.want || label(c.v) != c.label {
			t.Errorf("%v: %d bytes as %s, want %d as %s", c.v, got, label(c.v), c.want, c.label)
		}
	}
}

// TestSmallConfigs holds the configs of reference checkpoints that the kernel tree carries.
func TestSmallConfigs(t *testing.T) {
	for _, family := range fixture.Families(t) {
		compareGolden(t, filepath.Join("../../kernels/circuits/configs", family+".json"), string(fixture.Files(t, fixture.Tiny(family))["config.json"]))
	}
	files, err := filepath.Glob("../../kernels/circuits/configs/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if family := strings.TrimSuffix(filepath.Base(f), ".json"); !slices.Contains(fixture.Families(t), family) {
			t.Errorf("%s is of no reference checkpoint", f)
			if *update {
				os.Remove(f)
			}
		}
	}
}

// TestModelsOfFolders finds configs where people keep them.
func TestModelsOfFolders(t *testing.T) {
	src := []byte(`{"model_type": "llama"}`)
	models := Models(map[string][]byte{
		"owner--name_config.json": src, "owner--name_hf_quant_config.json": []byte(`{"quantization": {"quant_algo": "FP8"}, "producer": {"name": "modelopt", "version": "1"}}`),
		"models--Other--model--x/snapshots/0123/config.json": src, "mine/config.json": src, "config.json": []byte(`{`), "mine/tokenizer.json": src,
		"mine/generation_config.json": src, "tokenizer_config.json": src, "mine/hf_quant_config.json.bak": src,
	})
	var names []string
	for _, m := range models {
		names = append(names, m.Name)
		if (m.Err != nil) != (m.Name == ".") {
			t.Errorf("%s: %v", m.Name, m.Err)
		}
		if m.Err == nil && (m.Config.Quant != nil) != (m.Name == "owner/name") {
			t.Errorf("%s: %v", m.Name, m.Config.Quant)
		}
	}
	if want := []string{".", "mine", "Other/model--x", "owner/name"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}
