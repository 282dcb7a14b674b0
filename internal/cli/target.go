// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/metrale/metrale/internal/api/openai"
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/gpu/cuda"
	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/kernels"
)

// target resolves which kernels serve the checkpoint on the device, and makes lowering and device use them. names are what
// the checkpoint is called. A leaf whose code the binary lacks is left for its class, unless it was asked for.
func (c *checkpoint) target(dev gpu.Device, f *deviceFlags, log io.Writer, names ...string) error {
	if class := dev.Info().Class; c.kernels == nil || c.kernels.Class.Name != class {
		if err := c.choose(class, f, log, names...); err != nil {
			return err
		}
	}
	if user, ok := dev.(interface {
		Use(class *kernel.Class, modules fs.FS)
	}); ok && c.code != nil {
		user.Use(c.kernels.View(), c.code)
	}
	return nil
}

// choose is target without the device, whose class is enough.
func (c *checkpoint) choose(class string, f *deviceFlags, log io.Writer, names ...string) error {
	tree := c.library.Tree
	t, err := tree.Resolve(class, c.describe(names), f.kernelTarget)
	if err != nil {
		return err
	}
	c.code = nil
	if t.Class.Vendor == kernel.NVIDIA && t.Model != nil && f.modules == "" {
		code, err := kernel.OpenCode(kernels.FS, t)
		switch {
		case err == nil:
			c.code = code
		case f.kernelTarget != "":
			return err
		default:
			fmt.Fprintf(log, "met: kernels of class %s instead of %s: %v\n", class, t.Name(), err)
			t = tree.Targets[class]
		}
	}
	c.kernels, c.library = t, c.library.For(t)
	c.plans.forget()
	if f.modules != "" {
		var lacking []string
		c.library, lacking = c.library.Carrying(class, func(module string) bool { return cuda.Carries(os.DirFS(f.modules), module) })
		if len(lacking) > 0 {
			fmt.Fprintf(log, "met: kernels whose code %s lacks are not used: %s\n", f.modules, strings.Join(lacking, ", "))
		}
	}
	return nil
}

// describe is what a target is resolved by.
func (c *checkpoint) describe(names []string) kernel.Checkpoint {
	ck := kernel.Checkpoint{ModelTypes: []string{c.config.ModelType}, HiddenSize: c.instance.Dim("hidden"), Quant: c.quant(), Names: names}
	if text, ok := c.config.Tree.Get("text_config.model_type"); ok {
		if name, ok := text.Str(); ok {
			ck.ModelTypes = append(ck.ModelTypes, name)
		}
	}
	return ck
}

// quant is the word of kernel.Quants for how most of the weights are stored.
func (c *checkpoint) quant() string {
	if q := c.config.Quant; q != nil {
		for _, r := range q.Rules {
			if word := r.Scheme.Weight.Word(); word != "" {
				return word
			}
		}
	}
	elems := map[string]int64{}
	most := ""
	for _, name := range c.store.Names() {
		t, _ := c.store.Lookup(name)
		if d := t.DType.String(); len(t.Shape) > 1 {
			if elems[d] += t.Shape.Elems(); elems[d] > elems[most] {
				most = d
			}
		}
	}
	return most
}

// defaults are what a request's sampling is where it does not say: the preset of the model's target that was asked for; else the
// checkpoint's own, and where it gives none at all the preset "default", if there is one.
func (c *checkpoint) defaults(preset string) (openai.Defaults, error) {
	g := &c.config.Generation
	own := openai.Defaults{Temperature: g.Temperature, TopP: g.TopP, MinP: g.MinP, RepetitionPenalty: g.RepetitionPenalty, TopK: g.TopK}
	var presets map[string]kernel.Sampling
	if c.kernels != nil && c.kernels.Model != nil {
		presets = c.kernels.Model.Sampling
	}
	p, ok := presets[cmp.Or(preset, "default")]
	switch {
	case preset != "" && len(presets) == 0:
		return own, diag.Errorf(diag.Invalid, "--sampling-preset %s: kernel target %s has no presets", preset, c.kernels.Name()).For("sampling-preset")
	case preset != "" && !ok:
		return own, diag.Errorf(diag.Invalid, "--sampling-preset %s: kernel target %s has %s", preset, c.kernels.Name(), strings.Join(slices.Sorted(maps.Keys(presets)), ", ")).For("sampling-preset")
	case preset == "" && (!ok || own != openai.Defaults{}):
		return own, nil
	}
	return openai.Defaults{Temperature: p.Temperature, TopP: p.TopP, MinP: p.MinP, PresencePenalty: p.PresencePenalty, RepetitionPenalty: p.RepetitionPenalty, TopK: p.TopK}, nil
}
