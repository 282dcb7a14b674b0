// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/metrale/metrale/internal/bench"
	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/gpu/cuda"
)

// newMicroVerb is `met benchmark run micro`.
func newMicroVerb(env environment) *cobra.Command {
	var f deviceFlags
	var rotate, sweep int
	var only string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "micro", Short: "Measure 32 pieces of layers, as PyTorch measures them too", Args: cobra.NoArgs,
		Long: `Measure 32 pieces of layers by the kernels that the device's class lowers them to: attention, matrices, experts, convolutions,
delta rules, norms, gates and rotations of small sizes. Activations are float32, weights and pages as the class serves them.

Repetitions are recorded and started together; a time is the median over replays. Without --rotate each repetition works on the same
arrays, which stay in the cache where they fit. tools/hopper/micro_torch.py measures the same shapes in PyTorch, and
met benchmark compare sets the two beside each other.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			pattern, err := regexp.Compile(only)
			if err != nil {
				return diag.Errorf(diag.Invalid, "--only %s: %v", only, err).For("only")
			}
			if !slices.ContainsFunc(bench.Shapes(), pattern.MatchString) {
				return diag.Errorf(diag.NotFound, "--only %s: it is none of %s", only, strings.Join(bench.Shapes(), ", ")).For("only")
			}
			if err := cmp.Or(within("rotate", int64(rotate), 0, mostMiB), within("sweep", int64(sweep), 1, mostMiB), f.check()); err != nil {
				return err
			}
			dev, err := f.open(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer dev.Close()
			m := &bench.Micro{Device: dev, Rotate: rotate, Only: pattern}
			if m.Library, err = f.carried(dev, cmd.ErrOrStderr()); err != nil {
				return err
			}
			if m.Sweep, err = bench.Sweep(dev, int64(sweep)<<20); err != nil {
				return err
			}
			r, err := m.Run(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(cmd.OutOrStdout(), r)
			}
			return bench.PrintReading(cmd.OutOrStdout(), r)
		},
	}
	fl := cmd.Flags()
	f.add(fl, env, "auto")
	fl.IntVar(&rotate, "rotate", 0, "MiB of arrays that repetitions go over (0: always the same arrays)")
	fl.IntVar(&sweep, "sweep", 4096, "MiB that the read sweep reads")
	fl.StringVar(&only, "only", "", "regular expression of the shapes to measure")
	fl.BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// carried is the library of a device's class, without the rules whose kernels' code is not there.
func (f *deviceFlags) carried(dev gpu.Device, log io.Writer) (*circuit.Library, error) {
	lib, err := readLibrary()
	if err != nil || f.modules == "" {
		return lib, err
	}
	lib, lacking := lib.Carrying(dev.Info().Class, func(module string) bool { return cuda.Carries(os.DirFS(f.modules), module) })
	if len(lacking) > 0 {
		fmt.Fprintf(log, "met: kernels whose code %s lacks are not used: %s\n", f.modules, strings.Join(lacking, ", "))
	}
	return lib, nil
}

// newCompareVerb is `met benchmark compare`.
func newCompareVerb() *cobra.Command {
	return &cobra.Command{
		Use: "compare OURS.json THEIRS.json…", Short: "Set times of the 32 shapes beside PyTorch's", Args: cobra.MinimumNArgs(2),
		Long: `Set the times that met benchmark run micro --json wrote beside those of tools/hopper/micro_torch.py, with their ratios: above 1,
ours is ahead.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var list []*bench.Reading
			for _, name := range args {
				src, err := os.ReadFile(name)
				if err != nil {
					return diag.Errorf(diag.NotFound, "%s cannot be read", name).Because(err)
				}
				r := &bench.Reading{}
				if err := json.Unmarshal(src, r); err != nil || len(r.Shapes) == 0 {
					return diag.Errorf(diag.Format, "no reading of shapes").Because(err).At(diag.Pos{File: name})
				}
				list = append(list, r)
			}
			return bench.Compare(cmd.OutOrStdout(), list[0], list[1:]...)
		},
	}
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
