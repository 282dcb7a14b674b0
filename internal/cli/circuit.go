// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/internal/modelconf"
	"github.com/metrale/metrale/internal/plan"
	"github.com/metrale/metrale/internal/tensor"
)

// newCircuitCmd is `met circuit`: what a checkpoint becomes, without running it.
func newCircuitCmd(env environment) *cobra.Command {
	cmd := &cobra.Command{Use: "circuit", Short: "Show what a checkpoint compiles to",
		Long: `Compiles a checkpoint and prints the result. <model> is a folder, a .gguf file, or a bare config.json, for which the
circuit invents the tensors.`, RunE: group}
	const one, library = "model", "library"
	cmd.AddGroup(&cobra.Group{ID: one, Title: "Of a checkpoint:"}, &cobra.Group{ID: library, Title: "Of the library of circuits:"})
	add := func(id string, verbs ...*cobra.Command) {
		for _, v := range verbs {
			v.GroupID = id
			cmd.AddCommand(v)
		}
	}
	add(one, newCircuitShowCmd(), newCircuitDisplayCmd(), newCircuitEstimateCmd(), newCircuitMemoryCmd(), newCircuitDiffCmd(env))
	add(library, newCircuitConfigsCmd(), newCircuitVennCmd(), newCircuitLabCmd())
	return cmd
}

// circuitFlags are common to all verbs.
type circuitFlags struct {
	part, class, compute, kv, stored string
	rows, seqs, outs, context        int64
	noFusion                         bool
}

func (f *circuitFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.StringVar(&f.part, "part", "", "part of the model beside the decoder: mtp, its draft head, or vision, its tower")
	fl.StringVar(&f.class, "class", "cpu", "hardware class whose kernels the plan uses")
	fl.StringVar(&f.compute, "compute", circuit.Declared, "float32, or declared: the precision that serving uses")
	fl.StringVar(&f.kv, "kv", "", "element type of K and V: f32, bf16, f16 (default: the class's)")
	fl.StringVar(&f.stored, "stored", "bf16", "element type of the tensors that a bare config.json stands for")
	fl.Int64Var(&f.rows, "rows", 16, "rows of a step")
	fl.Int64Var(&f.seqs, "seqs", 0, "sequences of a step (0: as many as rows)")
	fl.Int64Var(&f.outs, "outs", 0, "rows with logits (0: as many as sequences)")
	fl.Int64Var(&f.context, "context", 4096, "tokens of a sequence (at most the model's)")
	fl.BoolVar(&f.noFusion, "no-fusion", false, "lower every op alone, by the reference rules")
}

// parseKV reads --kv: tensor.None where it is not given.
func parseKV(name string) (tensor.DType, error) {
	if name == "" {
		return tensor.None, nil
	}
	if d, ok := tensor.ParseDType(name); ok && (d == tensor.F32 || d == tensor.BF16 || d == tensor.F16) {
		return d, nil
	}
	return tensor.None, diag.Errorf(diag.Invalid, "--kv %s: want f32, bf16 or f16", name).For("kv")
}

// Bounds of flags: above what any machine has, and far below where sizes that are computed of them overflow.
const (
	mostTokens = 1 << 24 // of a sequence
	mostRows   = 1 << 20 // of a step
	mostMiB    = 1 << 20 // of an array
)

// within refuses a value of a flag below low or above high.
func within(flag string, value, low, high int64) error {
	if value < low || value > high {
		return diag.Errorf(diag.Invalid, "--%s %d: want %d to %d", flag, value, low, high).For(flag)
	}
	return nil
}

// between refuses a number of sequences or outputs that a step's rows cannot hold.
func between(flag string, value, rows int64) error {
	if value < 0 || value > rows {
		return diag.Errorf(diag.Invalid, "--%s %d: want 0 to --rows %d", flag, value, rows).For(flag)
	}
	return nil
}

// compiled is a checkpoint's instance and plan.
type compiled struct {
	library  *circuit.Library
	instance *circuit.Instance
	plan     *plan.Plan
}

// compile reads the model and lowers it.
func (f *circuitFlags) compile(path string) (*compiled, error) {
	kv, err := parseKV(f.kv)
	if err := cmp.Or(err, within("rows", f.rows, 1, mostRows), between("seqs", f.seqs, f.rows), between("outs", f.outs, f.rows), within("context", f.context, 1, mostTokens),
		checkCompute(f.compute)); err != nil {
		return nil, err
	}
	stored, ok := tensor.ParseDType(f.stored)
	if !ok {
		return nil, diag.Errorf(diag.Invalid, "--stored %s is no element type", f.stored).For("stored")
	}
	out := &compiled{}
	if out.library, err = readLibrary(); err != nil {
		return nil, err
	}
	var cat circuit.Catalog
	if strings.HasSuffix(path, ".json") {
		cfg, err := readConfig(path)
		if err != nil {
			return nil, inFile(err, path)
		}
		if out.instance, err = circuit.Instantiate(out.library, cfg); err != nil {
			return nil, inFile(err, path)
		}
		if cat = out.instance.SyntheticCatalog(stored); cfg.Quant != nil {
			if cat, err = dummyStore(out.instance, cfg.Quant); err != nil {
				return nil, err
			}
		}
	} else {
		c, err := openCheckpoint(path)
		if err != nil {
			return nil, err
		}
		defer c.store.Close()
		out.instance, cat = c.instance, c.store
	}
	if parts := out.instance.PartNames(); f.part != "" {
		if out.instance = out.instance.InPart(f.part); out.instance == nil {
			return nil, diag.Errorf(diag.Unsupported, "--part %s: the model has %s", f.part, cmp.Or(strings.Join(parts, ", "), "no parts")).For("part")
		}
	}
	if n := out.instance.Dim("context"); n > 0 {
		f.context = min(f.context, n)
	}
	if err := checkClass(out.library, f.class); err != nil {
		return nil, err
	}
	size := pageSizeOf(out.library, f.class)
	limits := plan.Limits{Rows: f.rows, Seqs: f.seqs, Outs: f.outs, PageSize: size, Pages: (f.context + size - 1) / size}
	if limits.Seqs == 0 {
		limits.Seqs = limits.Rows
	}
	if limits.Outs == 0 {
		limits.Outs = limits.Seqs
	}
	out.plan, err = out.instance.Lower(out.library, cat, circuit.Options{Class: f.class, Compute: f.compute, KV: kv, Limits: limits, NoFusion: f.noFusion})
	return out, err
}

// readConfig reads a bare config.json.
func readConfig(path string) (*modelconf.Config, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, diag.Errorf(diag.NotFound, "%s cannot be read", path).Because(err)
	}
	return modelconf.Read(map[string][]byte{"config.json": src})
}

// inFile names the file, or the model, that an error about a config.json is about.
func inFile(err error, path string) error {
	if e, ok := diag.As(err); ok && e.Pos.File == "config.json" {
		at := e.Pos
		if at.File = path; filepath.Ext(path) != ".json" {
			at.File = filepath.Join(path, "config.json")
		}
		return e.At(at)
	}
	return err
}

// checkClass refuses a hardware class that the kernel tree does not have.
func checkClass(lib *circuit.Library, class string) error {
	if _, ok := lib.Tree.Classes[class]; !ok {
		return diag.Errorf(diag.Invalid, "--class %s: known classes are %s", class, strings.Join(slices.Sorted(maps.Keys(lib.Tree.Classes)), ", ")).For("class")
	}
	return nil
}

// load is a step that fills the plan.
func (f *circuitFlags) load(p *plan.Plan) circuit.Load {
	return circuit.Load{Rows: p.Limits.Rows, Seqs: p.Limits.Seqs, Outs: p.Limits.Outs, Context: f.context}
}

// viewCmd is a verb that compiles a checkpoint and prints a view of it.
func viewCmd(f *circuitFlags, use, short string, view func(*compiled) (string, error)) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := f.compile(args[0])
			if err != nil {
				return err
			}
			text, err := view(c)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(cmd.OutOrStdout(), text)
			return err
		},
	}
	f.add(cmd)
	return cmd
}

func newCircuitShowCmd() *cobra.Command {
	var f circuitFlags
	var digest bool
	cmd := viewCmd(&f, "show <model>", "Print the plan: one launch per line", func(c *compiled) (string, error) {
		if digest {
			return c.plan.Digest() + "\n", nil
		}
		return c.plan.Columns(), nil
	})
	cmd.Flags().BoolVar(&digest, "digest", false, "print only the plan's digest")
	return cmd
}

func newCircuitDisplayCmd() *cobra.Command {
	return viewCmd(&circuitFlags{}, "display <model>", "Draw the layers and their blocks, with fused groups framed", func(c *compiled) (string, error) {
		return c.instance.Display(c.plan), nil
	})
}

func newCircuitEstimateCmd() *cobra.Command {
	var f circuitFlags
	var hardware string
	var device *kernel.Device
	cmd := viewCmd(&f, "estimate <model> --hardware DEVICE", "Estimate each launch on a device: flops, bytes, least time; and what fits its memory", func(c *compiled) (string, error) {
		return c.instance.Roofline(c.plan, device, f.load(c.plan))
	})
	cmd.SuggestFor = []string{"plan"}
	fl := cmd.Flags()
	fl.StringVar(&hardware, "hardware", "", "device of kernels/DEVICES.toml")
	fl.Lookup("class").Usage += " (default: the device's)"
	fl.Lookup("class").DefValue = ""
	cmd.PreRunE = func(*cobra.Command, []string) error { // the device says which plan there is to make
		lib, err := readLibrary()
		if err != nil {
			return err
		}
		if device = lib.Tree.Devices[hardware]; device == nil {
			known := slices.Sorted(maps.Keys(lib.Tree.Devices))
			return diag.Errorf(diag.Invalid, "--hardware %s: want a device of kernels/DEVICES.toml: %s", cmp.Or(hardware, "is missing"), strings.Join(known, ", ")).For("hardware")
		}
		if c := lib.Tree.Classes[device.Class]; c != nil && !fl.Changed("class") {
			f.class = c.Name
		}
		return nil
	}
	return cmd
}

func newCircuitMemoryCmd() *cobra.Command {
	var f circuitFlags
	var memory float64
	cmd := viewCmd(&f, "memory <model>", "Print what weights, K and V, state and arena take, and how many sequences fit", func(c *compiled) (string, error) {
		if memory < 0 {
			return "", diag.Errorf(diag.Invalid, "--memory %v: must not be negative", memory).For("memory")
		}
		return c.instance.MemoryReport(c.plan, int64(memory*(1<<30)), f.context), nil
	})
	cmd.Flags().Float64Var(&memory, "memory", 0, "GiB to fill (0: do not say how many sequences fit)")
	return cmd
}
