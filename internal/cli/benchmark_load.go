// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/metrale/metrale/internal/bench"
	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// loadFlags are those of `met benchmark run load`.
type loadFlags struct {
	deviceFlags
	write        string
	rows, tokens int
	context      int
	copy         int // MiB
	compute      string
	json         bool
}

func newLoadVerb(env environment) *cobra.Command {
	var f loadFlags
	cmd := &cobra.Command{
		Use: "load FOLDER", Short: "Measure a cold start: a checkpoint from the page cache to the first token", Args: cobra.ExactArgs(1),
		Long: `Measure a cold start, phase by phase: the device is opened and, beside it, the checkpoint, whose files have been read into the page cache,
and plans are made; memory is taken, weights are loaded, launches are bound, a prompt runs to its first token. Loading is compared with
copies from pinned memory to the device in the same run.

With --write, the folder is made first: random weights of a model, which is a folder with a config.json or one of ` + strings.Join(bench.Models(), ", ") + `.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.check(); err != nil {
				return err
			}
			c, err := f.run(cmd.Context(), args[0], cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			if f.json {
				return printJSON(cmd.OutOrStdout(), c)
			}
			return bench.PrintCold(cmd.OutOrStdout(), c)
		},
	}
	fl := cmd.Flags()
	f.add(fl, env, "auto")
	fl.StringVar(&f.write, "write", "", "model whose weights are invented and written to the folder")
	fl.IntVar(&f.rows, "rows", 0, "most tokens of a step that plans are made for (default: as met serve)")
	fl.IntVar(&f.tokens, "tokens", 128, "tokens of the prompt")
	fl.IntVar(&f.context, "context", 4096, "tokens that there is room for")
	fl.IntVar(&f.copy, "copy", 256, "MiB of a copy")
	fl.StringVar(&f.compute, "compute", circuit.Declared, "float32, or declared: the precision that serving uses")
	fl.BoolVar(&f.json, "json", false, "print JSON")
	return cmd
}

func (f *loadFlags) check() error {
	if err := cmp.Or(within("rows", int64(f.rows), 0, mostRows), within("tokens", int64(f.tokens), 1, mostTokens), within("context", int64(f.context), 1, mostTokens),
		within("copy", int64(f.copy), 1, mostMiB)); err != nil {
		return err
	}
	switch {
	case f.context < f.tokens || f.rows > 0 && f.rows < f.tokens:
		return diag.Errorf(diag.Invalid, "--tokens %d: want from 1 to --context %d and --rows %d", f.tokens, f.context, f.rows).For("tokens")
	case f.write != "":
		if err := checkModels([]string{f.write}); err != nil {
			return err
		}
	}
	return cmp.Or(checkCompute(f.compute), f.deviceFlags.check())
}

func (f *loadFlags) run(ctx context.Context, folder string, log io.Writer) (*bench.Cold, error) {
	if f.write != "" {
		folder = asPath(folder)
		if err := writeDummy(ctx, f.write, folder); err != nil {
			return nil, err
		}
		fmt.Fprintf(log, "%s: written\n", folder)
	}
	cached, err := 0.0, error(nil)
	if folder != demo { // which lies in the binary
		cached, err = bench.ReadThrough(folder)
	}
	if err != nil {
		return nil, err
	}
	debug.SetGCPercent(gcPercent)
	var w bench.Stopwatch
	w.Begin(bench.Opening)
	var c *checkpoint
	dev, err := f.openBeside(ctx, log, func(_ context.Context, class func() (string, bool)) (err error) {
		if c, err = openCheckpoint(folder); err != nil {
			return err
		}
		if name, ok := class(); ok && c.choose(name, &f.deviceFlags, log, folder) == nil {
			c.foresee(f.options(c, name))
		}
		return nil
	})
	if c != nil {
		defer c.store.Close()
	}
	if err != nil {
		return nil, err
	}
	defer dev.Close()
	w.End()
	copies, err := bench.CopyRate(dev, int64(f.copy)<<20)
	if err != nil {
		return nil, err
	}
	w.Begin("plan")
	if err := c.target(dev, &f.deviceFlags, log, folder); err != nil {
		return nil, err
	}
	o := f.options(c, dev.Info().Class)
	o.device, o.phase = dev, w.Begin
	m, err := c.load(ctx, o)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if err := w.Steps(m.Model, f.tokens); err != nil {
		return nil, err
	}
	return w.Report(dev.Info().Name, c.store.TotalBytes(), cached, copies), nil
}

// options are what the model is loaded with on a device of a class.
func (f *loadFlags) options(c *checkpoint, class string) modelOptions {
	rows, size := int64(f.rows), c.pageSize(class)
	if rows == 0 {
		rows = gpuPrefill
		if class == "cpu" {
			rows = cpuPrefill
		}
	}
	pages := (int64(f.context) + size - 1) / size
	return modelOptions{opening: class, compute: f.compute, eager: f.eager,
		limits: plan.Limits{Rows: rows, Seqs: 1, Outs: 1, PageSize: size, Pages: pages}, pages: int(pages), slots: 1}
}

// writeDummy writes a checkpoint of random bf16 weights.
func writeDummy(ctx context.Context, model, folder string) error {
	c, err := openBenchmark(model)
	if err != nil {
		return err
	}
	defer c.store.Close()
	if c.config.Quant != nil {
		return diag.Errorf(diag.Unsupported, "%s is quantised; only checkpoints of bf16 are written", model).For("write")
	}
	var list []tensor.Info
	for _, name := range c.store.Names() {
		t, _ := c.store.Lookup(name)
		list = append(list, t)
	}
	return bench.WriteCheckpoint(ctx, folder, c.files.Side["config.json"], list, c.store.Read)
}
