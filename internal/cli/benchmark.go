// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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
	"github.com/metrale/metrale/internal/seq"
	"github.com/metrale/metrale/internal/tensor"
	"github.com/metrale/metrale/internal/weights"
)

// newBenchmarkCmd is `met benchmark`: how fast a model is on a device.
func newBenchmarkCmd(env environment) *cobra.Command {
	cmd := &cobra.Command{Use: "benchmark", Short: "Measure decoding and kernels on a device", RunE: group}
	run := &cobra.Command{Use: "run", Short: "Run a benchmark", RunE: group}
	run.AddCommand(newBenchmarkVerb(env, "decode [model…]", "Measure whole decode steps: tokens per second, and the share of the read sweep", decodeBenchmark),
		newBenchmarkVerb(env, "kernels [model…]", "Measure each kernel of a decode step at its shapes", kernelBenchmark),
		newPrefillVerb(env), newLoadVerb(env), newMicroVerb(env))
	cmd.AddCommand(run, newCompareVerb())
	return cmd
}

// benchmarkFlags are common to the benchmarks.
type benchmarkFlags struct {
	deviceFlags
	batches        []int
	context, steps int
	sweep          int // MiB
	compute, kv    string
	sampling       string
	json           bool
	noFusion       bool

	kvType tensor.DType // of kv; None: the class's
}

// benchmark measures one model and adds to results, which print as a table or as JSON.
type benchmark struct {
	measure func(ctx context.Context, s *bench.Subject, f *benchmarkFlags) error
	count   func() int // of results
	results func() any
	print   func(io.Writer) error
}

func newBenchmarkVerb(env environment, use, short string, begin func() benchmark) *cobra.Command {
	var f benchmarkFlags
	cmd := &cobra.Command{
		Use: use, Short: short,
		Long: short + `.

A model is a folder with a config.json, or one of ` + strings.Join(bench.Models(), ", ") + ` (default: these),
with -` + strings.Join(bench.Formats(), " or -") + ` behind it for quantised weights. Weights are random.
Every sequence has one row in a step and stands behind a context of that many tokens. The sweep, by which shares are given, reads
the device's memory once, in the same run.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				args = bench.Models()
			}
			if err := f.check(args); err != nil {
				return err
			}
			b := begin()
			err := f.run(cmd.Context(), args, cmd.ErrOrStderr(), b)
			if err != nil && b.count() == 0 {
				return err
			}
			// What was measured before something failed is told, too.
			if f.json {
				return errors.Join(err, printJSON(cmd.OutOrStdout(), b.results()))
			}
			return errors.Join(err, b.print(cmd.OutOrStdout()))
		},
	}
	fl := cmd.Flags()
	f.add(fl, env, "auto")
	fl.IntSliceVar(&f.batches, "batch", []int{1, 2, 4, 8}, "sequences of a step, a run for each")
	fl.IntVar(&f.context, "context", 128, "tokens before the first step")
	fl.IntVar(&f.steps, "steps", 192, "steps that count (decode)")
	fl.StringVar(&f.sampling, "sampling", "greedy", "how tokens are drawn (decode): greedy, or drawn: temperature 0.8, top-k 50, top-p 0.95")
	fl.IntVar(&f.sweep, "sweep", 4096, "MiB that the read sweep reads")
	fl.StringVar(&f.compute, "compute", circuit.Declared, "float32, or declared: the precision that serving uses")
	fl.StringVar(&f.kv, "kv", "", "element type of K and V: f32, bf16, f16 (default: the class's)")
	fl.BoolVar(&f.noFusion, "no-fusion", false, "lower every op alone, by the reference rules")
	fl.BoolVar(&f.json, "json", false, "print JSON")
	return cmd
}

// checkModels refuses names of what is neither a folder nor a configuration that the binary carries.
func checkModels(models []string) error {
	for _, name := range models {
		if _, ok := bench.Config(name); ok || name == demo {
			continue
		}
		if _, err := os.Stat(name); err != nil {
			return diag.Errorf(diag.NotFound, "%s is no folder and none of %s", name, strings.Join(bench.Models(), ", ")).For("model")
		}
	}
	return nil
}

func (f *benchmarkFlags) check(models []string) error {
	if err := checkModels(models); err != nil {
		return err
	}
	if f.sampling != "greedy" && f.sampling != "drawn" {
		return diag.Errorf(diag.Invalid, "--sampling %s: want greedy or drawn", f.sampling).For("sampling")
	}
	var err error
	f.kvType, err = parseKV(f.kv)
	return cmp.Or(err, checkNumbers("batch", f.batches, 1024), within("context", int64(f.context), 1, mostTokens), within("steps", int64(f.steps), 1, mostTokens),
		within("sweep", int64(f.sweep), 1, mostMiB), checkCompute(f.compute), f.deviceFlags.check())
}

// checkNumbers refuses the first number of a list that is not from 1 to most.
func checkNumbers(flag string, list []int, most int) error {
	if len(list) == 0 {
		return diag.Errorf(diag.Invalid, "--%s is empty", flag).For(flag)
	}
	for _, n := range list {
		if n < 1 || n > most {
			return diag.Errorf(diag.Invalid, "--%s %d: want 1 to %d", flag, n, most).For(flag)
		}
	}
	return nil
}

// checkCompute refuses a --compute before a device is opened.
func checkCompute(compute string) error {
	if compute != circuit.Declared && compute != circuit.Float32 {
		return diag.Errorf(diag.Invalid, "--compute %s: want %s or %s", compute, circuit.Float32, circuit.Declared).For("compute")
	}
	return nil
}

// run measures the models one after the other.
func (f *benchmarkFlags) run(ctx context.Context, models []string, log io.Writer, b benchmark) error {
	dev, err := f.open(log)
	if err != nil {
		return err
	}
	defer dev.Close()
	sweep, err := bench.Sweep(dev, int64(f.sweep)<<20)
	if err != nil {
		return err
	}
	fmt.Fprintf(log, "%s, %s\n", dev.Info().Name, sweepText(sweep))
	for _, name := range models {
		if err := f.model(ctx, name, dev, sweep, log, b); err != nil {
			return diag.Errorf(diag.CodeOf(err), "%s: %w", name, err)
		}
	}
	return nil
}

// sweepText says what was swept: no floor and no share is given without it.
func sweepText(gbs float64) string {
	if gbs == 0 {
		return "no read sweep: the class has no kernel for it"
	}
	return fmt.Sprintf("read sweep %.0f GB/s", gbs)
}

// model loads one and measures it.
func (f *benchmarkFlags) model(ctx context.Context, name string, dev gpu.Device, sweep float64, log io.Writer, b benchmark) error {
	c, err := openBenchmark(name)
	if err != nil {
		return err
	}
	defer c.store.Close()
	if err := c.target(dev, &f.deviceFlags, log, name); err != nil {
		return err
	}
	most, size := slices.Max(f.batches), c.pageSize(dev.Info().Class)
	pages, all := bench.Room(most, f.context, f.steps, size)
	began := time.Now()
	m, err := c.load(ctx, modelOptions{device: dev, compute: f.compute, kv: f.kvType, noFusion: f.noFusion, eager: f.eager,
		limits: plan.Limits{Rows: int64(most), Seqs: int64(most), Outs: int64(most), PageSize: size, Pages: pages}, pages: all, slots: most,
		sampling: c.sampling(dev, 0, most)})
	if err != nil {
		return err
	}
	defer m.Close()
	fmt.Fprintf(log, "%s: loaded in %.1f s\n", name, time.Since(began).Seconds())
	s := &bench.Subject{Name: filepath.Base(name), Model: m.Model, Instance: c.instance, Device: dev, Sweep: sweep}
	if f.sampling == "drawn" {
		s.Policy = &seq.Sampling{Temperature: 0.8, TopK: 50, TopP: 0.95, RepetitionPenalty: 1, Seed: 1}
	}
	return b.measure(ctx, s, f)
}

// openBenchmark opens a folder with a config.json, or a configuration that the binary carries.
func openBenchmark(name string) (*checkpoint, error) {
	if src, ok := bench.Config(name); ok {
		return openDummySide(&weights.Files{Path: name, Side: map[string][]byte{"config.json": src}})
	}
	return openDummy(name)
}

func decodeBenchmark() benchmark {
	list := []*bench.Decoding{}
	return benchmark{
		measure: func(ctx context.Context, s *bench.Subject, f *benchmarkFlags) error {
			for _, batch := range f.batches {
				d, err := s.Decode(ctx, batch, f.context, f.steps)
				if err != nil {
					return err
				}
				list = append(list, d)
			}
			return nil
		},
		count:   func() int { return len(list) },
		results: func() any { return list },
		print:   func(w io.Writer) error { return bench.PrintDecoding(w, list) },
	}
}

func kernelBenchmark() benchmark {
	list := []*bench.KernelTime{}
	return benchmark{
		measure: func(ctx context.Context, s *bench.Subject, f *benchmarkFlags) error {
			for _, batch := range f.batches {
				k, err := s.Kernels(ctx, batch, f.context)
				if err != nil {
					return err
				}
				list = append(list, k...)
			}
			return nil
		},
		count:   func() int { return len(list) },
		results: func() any { return list },
		print:   func(w io.Writer) error { return bench.PrintKernels(w, list) },
	}
}
