// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/metrale/metrale/internal/bench"
	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/plan"
)

// prefillFlags are those of `met benchmark run prefill`.
type prefillFlags struct {
	deviceFlags
	tokens   []int
	chunk    int
	ceiling  float64 // TFLOP/s
	compute  string
	noFusion bool
	kernels  bool
	json     bool
}

// prefillResults are whole prompts, or the kernels of their steps.
type prefillResults struct {
	prompts []*bench.Prefilling
	kernels []*bench.PromptKernel
}

func newPrefillVerb(env environment) *cobra.Command {
	var f prefillFlags
	cmd := &cobra.Command{
		Use: "prefill [model…]", Short: "Measure prefill of one prompt: tokens per second, and the share of what matrix products reach",
		Long: `Measure prefill of one prompt, from its first step to its first token.

A model is a folder with a config.json, or one of ` + strings.Join(bench.Models(), ", ") + ` (default: these),
with -` + strings.Join(bench.Formats(), " or -") + ` behind it for quantised weights. Weights are random.
The ceiling, by which shares are given, is a large product of bf16 matrices by the device's kernels, in the same run.

With --kernels each kernel of the prompt's only step is measured in its place, beside its floor: the longer of its operations at the
ceiling and its bytes at the read sweep.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = bench.Models()
			}
			if err := f.check(args); err != nil {
				return err
			}
			list := &prefillResults{prompts: []*bench.Prefilling{}, kernels: []*bench.PromptKernel{}}
			err := f.run(cmd.Context(), args, cmd.ErrOrStderr(), list)
			if err != nil && len(list.prompts)+len(list.kernels) == 0 {
				return err
			}
			// What was measured before something failed is told, too.
			return errors.Join(err, f.print(cmd.OutOrStdout(), list))
		},
	}
	fl := cmd.Flags()
	f.add(fl, env, "auto")
	fl.IntSliceVar(&f.tokens, "tokens", []int{2048, 8192}, "tokens of the prompt, a run for each")
	fl.IntVar(&f.chunk, "chunk", 0, "most tokens of a step (0: the whole prompt)")
	fl.Float64Var(&f.ceiling, "ceiling", 0, "TFLOP/s of which shares are given (0: as measured)")
	fl.StringVar(&f.compute, "compute", circuit.Declared, "float32, or declared: the precision that serving uses")
	fl.BoolVar(&f.noFusion, "no-fusion", false, "lower every op alone, by the reference rules")
	fl.BoolVar(&f.kernels, "kernels", false, "measure each kernel of the prompt's step instead")
	fl.BoolVar(&f.json, "json", false, "print JSON")
	return cmd
}

func (f *prefillFlags) check(models []string) error {
	if err := checkModels(models); err != nil {
		return err
	}
	switch {
	case f.ceiling < 0:
		return diag.Errorf(diag.Invalid, "--ceiling %g: must not be negative", f.ceiling).For("ceiling")
	case f.kernels && f.chunk > 0:
		return diag.Errorf(diag.Invalid, "--kernels measures the step of a whole prompt: no --chunk").For("kernels")
	}
	return cmp.Or(checkNumbers("tokens", f.tokens, mostRows), within("chunk", int64(f.chunk), 0, mostRows), checkCompute(f.compute), f.deviceFlags.check())
}

// print writes what the flags ask for.
func (f *prefillFlags) print(w io.Writer, list *prefillResults) error {
	switch {
	case f.json && f.kernels:
		return printJSON(w, list.kernels)
	case f.json:
		return printJSON(w, list.prompts)
	case f.kernels:
		return bench.PrintPromptKernels(w, list.kernels)
	}
	return bench.PrintPrefilling(w, list.prompts)
}

// run adds to list, model by model.
func (f *prefillFlags) run(ctx context.Context, models []string, log io.Writer, list *prefillResults) error {
	dev, err := f.open(log)
	if err != nil {
		return err
	}
	defer dev.Close()
	sweep := 0.0
	if f.kernels {
		if sweep, err = bench.Sweep(dev, 4<<30); err != nil {
			return err
		}
		fmt.Fprintln(log, sweepText(sweep))
	}
	ceiling := f.ceiling * 1e12
	if ceiling == 0 {
		lib, err := f.carried(dev, log)
		if err != nil {
			return err
		}
		if ceiling, err = bench.Ceiling(dev, lib); err != nil {
			return err
		}
	}
	fmt.Fprintf(log, "%s, matrix products %.1f TFLOP/s\n", dev.Info().Name, ceiling/1e12)
	for _, name := range models {
		if err := f.model(ctx, name, dev, ceiling, sweep, log, list); err != nil {
			return diag.Errorf(diag.CodeOf(err), "%s: %w", name, err)
		}
	}
	return nil
}

// model loads one with a plan for each size of a step, and measures it.
func (f *prefillFlags) model(ctx context.Context, name string, dev gpu.Device, ceiling, sweep float64, log io.Writer, list *prefillResults) error {
	c, err := openBenchmark(name)
	if err != nil {
		return err
	}
	defer c.store.Close()
	if err := c.target(dev, &f.deviceFlags, log, name); err != nil {
		return err
	}
	size := c.pageSize(dev.Info().Class)
	pages := (int64(slices.Max(f.tokens)) + size - 1) / size
	var buckets []int64
	for _, n := range f.tokens {
		for _, rows := range bench.Chunks(n, f.chunkOf(n)) {
			buckets = append(buckets, int64(rows))
		}
	}
	slices.Sort(buckets)
	buckets = slices.Compact(buckets)
	began := time.Now()
	m, err := c.load(ctx, modelOptions{device: dev, compute: f.compute, noFusion: f.noFusion, eager: f.eager, buckets: buckets,
		limits: plan.Limits{Rows: buckets[len(buckets)-1], Seqs: 1, Outs: 1, PageSize: size, Pages: pages}, pages: int(pages), slots: 1})
	if err != nil {
		return err
	}
	defer m.Close()
	fmt.Fprintf(log, "%s: loaded in %.1f s\n", name, time.Since(began).Seconds())
	s := &bench.Subject{Name: filepath.Base(name), Model: m.Model, Instance: c.instance, Device: dev, Sweep: sweep}
	for _, n := range f.tokens {
		if f.kernels {
			more, err := s.PromptKernels(ctx, n, ceiling)
			if err != nil {
				return err
			}
			list.kernels = append(list.kernels, more...)
			continue
		}
		p, err := s.Prefill(ctx, n, f.chunkOf(n), ceiling)
		if err != nil {
			return err
		}
		list.prompts = append(list.prompts, p)
	}
	return nil
}

// chunkOf is the most rows of a step of a prompt of n tokens.
func (f *prefillFlags) chunkOf(n int) int {
	if f.chunk == 0 {
		return n
	}
	return min(n, f.chunk)
}
