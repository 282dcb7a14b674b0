// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"bytes"
	"io/fs"
	"strings"
	"testing"

	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights"
	"github.com/metrale/metrale/internal/weights/safetensors"
	"github.com/metrale/metrale/kernels"
)

// classDevice is a device as far as a target's choice looks: a class, and whose kernels it was told to use.
type classDevice struct {
	gpu.Device
	class string
	used  *kernel.Class
}

func (d *classDevice) Info() gpu.Info                      { return gpu.Info{Class: d.class} }
func (d *classDevice) Use(class *kernel.Class, code fs.FS) { d.used = class }

const (
	llama8B = `{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8,
"num_hidden_layers": 1, "vocab_size": 16, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu", "max_position_embeddings": 64`
	fp8 = `, "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}`
)

// understood is a checkpoint of that config whose largest tensor is of that type.
func understood(t *testing.T, config string, d tensor.DType) *checkpoint {
	t.Helper()
	c := &checkpoint{}
	var err error
	if c.library, err = circuit.LoadLibrary(kernels.FS); err == nil {
		c.config, err = modelconf.Read(map[string][]byte{"config.json": []byte(config)})
	}
	if err == nil && c.config.Quant == nil {
		c.instance, err = circuit.Instantiate(c.library, c.config)
	}
	if err != nil {
		t.Fatal(err)
	}
	row := make([]byte, d.Bytes(64))
	c.store, err = weights.Memory(safetensors.NamedTensor{Name: "w", DType: d, Shape: tensor.Shape{1, 64}, Data: row},
		safetensors.NamedTensor{Name: "norm", DType: tensor.F32, Shape: tensor.Shape{128}, Data: make([]byte, 512)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestQuantisationHasAWord(t *testing.T) {
	for _, c := range []struct {
		config string
		d      tensor.DType
		want   string
	}{
		{llama8B + "}", tensor.BF16, "bf16"},
		{llama8B + "}", tensor.Q8_0, "q8_0"},
		{llama8B + fp8 + "}", tensor.BF16, "fp8"},
	} {
		if got := understood(t, c.config, c.d).quant(); got != c.want {
			t.Errorf("%v: %s, want %s", c.d, got, c.want)
		}
	}
	for word, v := range map[string]modelconf.Values{
		"nvfp4": {Format: modelconf.E2M1, Group: [2]int64{1, 16}}, "mxfp4": {Format: modelconf.E2M1, Group: [2]int64{1, 32}},
		"fp8": {Format: modelconf.E4M3}, "int4": {Format: modelconf.Int4}, "int8": {Format: modelconf.Int8}, "": {},
	} {
		if got := v.Word(); got != word {
			t.Errorf("%v is %q, want %q", v, got, word)
		}
	}
}

func TestTargetFollowsTheCheckpoint(t *testing.T) {
	const leaf = "hopper/llama-3.1-8b/bf16"
	c := understood(t, llama8B+"}", tensor.BF16)
	_, missing := kernel.OpenCode(kernels.FS, c.library.Tree.Targets[leaf])
	for _, f := range []deviceFlags{{}, {modules: "elsewhere"}, {kernelTarget: "hopper"}, {kernelTarget: "llama-3.1-8b/bf16"}} {
		c, dev, log := understood(t, llama8B+"}", tensor.BF16), &classDevice{class: "hopper"}, &bytes.Buffer{}
		err := c.target(dev, &f, log, "meta-llama/Llama-3.1-8B-Instruct")
		if missing != nil && f.kernelTarget == "llama-3.1-8b/bf16" {
			if err == nil || err.Error() != missing.Error() {
				t.Errorf("a pinned leaf without code: %v, want %v", err, missing)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		want := leaf
		if f.kernelTarget == "hopper" || missing != nil && f.modules == "" {
			want = "hopper"
		}
		if c.kernels.Name() != want || (dev.used != nil) != (want == leaf && f.modules == "") {
			t.Errorf("%+v: %s, device uses %v; want %s", f, c.kernels.Name(), dev.used, want)
		}
		if fell := strings.Contains(log.String(), "kernels of class hopper instead of "+leaf); fell != (missing != nil && f == deviceFlags{}) {
			t.Errorf("%+v: log %q", f, log)
		}
		g, err := c.defaults("")
		if has := g.Temperature != nil && *g.Temperature == 0.6; err != nil || has != (want == leaf) {
			t.Errorf("%+v: defaults %+v, %v", f, g, err)
		}
	}
	if err := c.target(&classDevice{class: "cpu"}, &deviceFlags{kernelTarget: "none"}, &bytes.Buffer{}); err == nil {
		t.Error("an unknown pin is taken")
	}
}

// TestPresetsAreAskedForByName: what the checkpoint says comes before the preset "default", and what is asked for before both.
func TestPresetsAreAskedForByName(t *testing.T) {
	c := understood(t, llama8B+"}", tensor.BF16)
	for _, class := range []string{"hopper", "hopper/qwen3-30b-a3b/bf16"} {
		c.kernels = c.library.Tree.Targets[class]
		one := 1.0
		c.config.Generation.TopP = &one
		if g, err := c.defaults(""); err != nil || g.Temperature != nil || *g.TopP != 1 {
			t.Errorf("%s: %+v, %v", class, g, err)
		}
	}
	if g, err := c.defaults("instruct"); err != nil || *g.Temperature != 0.7 || *g.TopP != 0.8 || *g.TopK != 20 || g.PresencePenalty != nil {
		t.Errorf("%+v, %v", g, err)
	}
	penalty := 1.5
	c.kernels.Model.Sampling["chatty"] = kernel.Sampling{PresencePenalty: &penalty}
	defer delete(c.kernels.Model.Sampling, "chatty")
	if g, err := c.defaults("chatty"); err != nil || *g.PresencePenalty != 1.5 || g.TopP != nil {
		t.Errorf("%+v, %v", g, err)
	}
	if _, err := c.defaults("none"); !diag.Is(err, diag.Invalid) || err.Error() != "--sampling-preset none: kernel target hopper/qwen3-30b-a3b/bf16 has chatty, default, instruct" {
		t.Errorf("%v", err)
	}
	c.kernels = c.library.Tree.Targets["cpu"]
	if _, err := c.defaults("instruct"); err == nil || err.Error() != "--sampling-preset instruct: kernel target cpu has no presets" {
		t.Errorf("%v", err)
	}
}
