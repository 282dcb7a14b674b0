// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"context"
	"io/fs"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/exec"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights"
	"github.com/metrale/metrale/kernels"
)

// checkpoint is a model's files, opened and understood, before anything is computed.
type checkpoint struct {
	store    weights.Store
	files    *weights.Files
	config   *modelconf.Config
	instance *circuit.Instance
	library  *circuit.Library
	kernels  *kernel.Target // that serves it; nil before choose
	code     fs.FS          // of kernels, where the device has to be told; nil: its class's
	plans    plans          // of kernels
	dummy    bool           // weights are invented
}

// readLibrary is the circuits and kernels that the binary carries, read once. Nobody changes them.
var readLibrary = sync.OnceValues(func() (*circuit.Library, error) { return circuit.LoadLibrary(kernels.FS) })

// loadFormats are the values of --load-format.
var loadFormats = []string{"auto", "dummy"}

// checkLoadFormat refuses another value.
func checkLoadFormat(format string) error {
	if !slices.Contains(loadFormats, format) {
		return diag.Errorf(diag.Invalid, "--load-format %s: want %s", format, strings.Join(loadFormats, " or ")).For("load-format")
	}
	return nil
}

// openAs opens a checkpoint as --load-format says: with dummy, a folder with a config.json, whose tensors are invented.
func openAs(path, format string, with ...string) (*checkpoint, error) {
	if format == "dummy" {
		return openDummy(path, with...)
	}
	return openCheckpoint(path, with...)
}

// openDummy invents weights for a configuration: bfloat16, or quantised as it says.
func openDummy(path string, with ...string) (*checkpoint, error) {
	files, err := readSide(strings.TrimSuffix(path, "config.json"))
	if err != nil {
		return nil, err
	}
	return openDummySide(files, with...)
}

// openDummySide is openDummy of files that are read.
func openDummySide(files *weights.Files, with ...string) (_ *checkpoint, err error) {
	c := &checkpoint{dummy: true, files: files}
	if c.library, err = readLibrary(); err != nil {
		return nil, err
	}
	if c.config, err = modelconf.Read(c.files.Side); err != nil {
		return nil, err
	}
	if c.instance, err = circuit.Instantiate(c.library, c.config, with...); err != nil {
		return nil, err
	}
	c.store, err = dummyStore(c.instance, c.config.Quant)
	return c, err
}

// dummyStore has what an instance asks for, quantised as q says; nil: bfloat16.
func dummyStore(in *circuit.Instance, q *modelconf.Quant) (weights.Store, error) {
	cat := in.SyntheticCatalog(tensor.BF16)
	if q != nil {
		cat = in.QuantisedCatalog()
	}
	var list []tensor.Info
	for _, name := range cat.Names() {
		t, _ := cat.Lookup(name)
		list = append(list, t)
	}
	if q != nil {
		list = weights.Separate(list, q)
	}
	s, err := weights.Dummy(list)
	if err != nil {
		return nil, err
	}
	return weights.Quantised(s, q)
}

// openCheckpoint opens a folder, a .gguf file or the built-in model and instantiates its circuit, to be served with parts beside the decoder.
func openCheckpoint(path string, with ...string) (_ *checkpoint, err error) {
	c := &checkpoint{}
	if c.library, err = readLibrary(); err != nil {
		return nil, err
	}
	if c.store, c.files, err = openWeights(path); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.store.Close()
		}
	}()
	if c.files.GGUF != nil {
		c.config, err = modelconf.FromGGUF(c.files.GGUF)
	} else {
		c.config, err = modelconf.Read(c.files.Side)
	}
	if err != nil {
		return nil, err
	}
	complete, err := weights.Quantised(c.store, c.config.Quant)
	if err != nil {
		return nil, err
	}
	c.store = complete
	c.instance, err = circuit.Instantiate(c.library, c.config, with...)
	return c, err
}

// require gives a part of the model that the checkpoint must have.
func (c *checkpoint) require(part string) (*circuit.Instance, error) {
	in := c.instance.InPart(part)
	if in == nil {
		return nil, diag.Errorf(diag.Unsupported, "model_type %s has no part %q at this config", c.config.ModelType, part).For("part")
	}
	if !in.Stored(c.store) {
		return nil, diag.Errorf(diag.Unsupported, "the checkpoint has no tensors of its part %q", part).For("part")
	}
	return in, nil
}

// maxContext is the most positions that the checkpoint was made for.
func (c *checkpoint) maxContext() int64 {
	if n := c.instance.Dim("context"); n > 0 {
		return n
	}
	return 2048
}

// modelOptions say how a checkpoint is made to run.
type modelOptions struct {
	device   gpu.Device
	opening  string // class of the device that is not there yet, when device is nil
	compute  string
	kv       tensor.DType
	limits   plan.Limits
	parts    map[string]plan.Limits // of parts beside the decoder that are loaded too
	pages    int                    // KV pages in all
	slots    int                    // recurrent-state slots in all
	buckets  []int64                // row counts that plans are made for, rising; nil: those of the device
	noFusion bool
	eager    bool
	sampling *exec.Sampling // the device draws
	progress func(done, total int64)
	phase    func(name string) // exec.Options.Phase
}

// class is the device's.
func (o *modelOptions) class() string {
	if o.device == nil {
		return o.opening
	}
	return o.device.Info().Class
}

// sampling says how the device draws tokens below vocab for so many sequences; nil: its class cannot.
func (c *checkpoint) sampling(dev gpu.Device, vocab, seats int) *exec.Sampling {
	if k := c.library.Tree.Classes[dev.Info().Class]; k == nil || k.Kernels["sample_draw"] == nil {
		return nil
	}
	return &exec.Sampling{Vocab: vocab, Seats: seats}
}

// model is a checkpoint on a device.
type model struct {
	*exec.Model
	plan *plan.Plan // of the largest row bucket
}

// lower compiles the checkpoint's circuit for a device, for steps of at most rows rows.
func (c *checkpoint) lower(o modelOptions, rows int64) (*plan.Plan, error) {
	o.limits.Rows, o.limits.Seqs, o.limits.Outs = rows, min(o.limits.Seqs, rows), min(o.limits.Outs, rows)
	return c.lowerPart(c.instance, o, o.limits)
}

func (c *checkpoint) lowerPart(in *circuit.Instance, o modelOptions, l plan.Limits) (*plan.Plan, error) {
	return c.plans.lower(in, c.library, c.store, circuit.Options{Class: o.class(), Compute: o.compute, KV: o.kv, Limits: l, NoFusion: o.noFusion})
}

// sizes is what the decoder, whose plan is main, and the other parts take of the device's memory: weights, and what steps work in.
func (c *checkpoint) sizes(o modelOptions, main *plan.Plan) (weights, work int64, err error) {
	plans, err := c.lowerParts(o)
	if err != nil {
		return 0, 0, err
	}
	arena, ports := int64(0), map[string]int64{}
	for _, p := range append(plans, main) {
		n, err := exec.WeightBytes(o.device, p)
		if err != nil {
			return 0, 0, err
		}
		weights, arena = weights+n, max(arena, p.Arena)
		for _, b := range p.Buffers {
			if name := b.Port.Name; name != "" {
				ports[name] = max(ports[name], b.DType.Bytes(b.Axes.Shape().Elems()))
			}
		}
	}
	for _, n := range ports {
		arena += n
	}
	return weights, arena, nil
}

// lowerParts compiles the parts beside the decoder.
func (c *checkpoint) lowerParts(o modelOptions) (plans []*plan.Plan, err error) {
	for _, name := range slices.Sorted(maps.Keys(o.parts)) {
		in, err := c.require(name)
		if err != nil {
			return nil, err
		}
		p, err := c.lowerPart(in, o, o.parts[name])
		if err != nil {
			return nil, err
		}
		plans = append(plans, p)
	}
	return plans, nil
}

// lowering is the collector's percent while plans are made: their garbage is small, but all cores make it.
const lowering = 800

// lowerBuckets compiles the decoder for each row bucket.
func (c *checkpoint) lowerBuckets(o modelOptions) ([]*plan.Plan, error) {
	buckets := o.buckets
	if buckets == nil {
		buckets = rowBuckets(o.class(), o.limits.Rows)
	}
	plans, errs := make([]*plan.Plan, len(buckets)), make([]error, len(buckets))
	percent := debug.SetGCPercent(lowering)
	var wg sync.WaitGroup
	for i, rows := range buckets {
		wg.Go(func() { plans[i], errs[i] = c.lower(o, rows) })
	}
	wg.Wait()
	debug.SetGCPercent(percent)
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return plans, nil
}

// foresee makes the plans of o while its device opens, so that load finds them. What fails fails there again.
func (c *checkpoint) foresee(o modelOptions) {
	_, _ = c.lowerBuckets(o)
	_, _ = c.lowerParts(o)
}

// load lowers the circuit once a row bucket, and loads and binds the plans.
func (c *checkpoint) load(ctx context.Context, o modelOptions) (*model, error) {
	plans, err := c.lowerBuckets(o)
	if err != nil {
		return nil, err
	}
	main := plans[len(plans)-1]
	parts, err := c.lowerParts(o)
	if err != nil {
		return nil, err
	}
	plans = append(plans, parts...)
	c.plans.forget()
	m, err := exec.Load(ctx, exec.Options{Device: o.device, Plans: plans, Store: c.store, NumPages: o.pages, NumSlots: o.slots, Eager: o.eager,
		Sampling: o.sampling, Progress: o.progress, Phase: o.phase})
	if err != nil {
		return nil, err
	}
	return &model{m, main}, nil
}

// pageSize is the number of tokens in a KV page of a class.
func (c *checkpoint) pageSize(class string) int64 { return pageSizeOf(c.library, class) }

func pageSizeOf(l *circuit.Library, class string) int64 {
	if k := l.Tree.Classes[class]; k != nil && k.Defaults.PageSize > 0 {
		return k.Defaults.PageSize
	}
	return 16
}
