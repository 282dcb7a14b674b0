// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/metrale/metrale/internal/gpu/cpu"
	"github.com/metrale/metrale/internal/gpu/cuda"
	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/kernels"
)

// newDoctorCmd is `met doctor`: what this machine offers, and what is wrong with it.
func newDoctorCmd(env environment) *cobra.Command {
	return &cobra.Command{
		Use: "doctor", Short: "Report what this machine offers and what is wrong with it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return doctor(cmd.OutOrStdout(), env) },
	}
}

// finding is one line of the report; a problem makes doctor fail.
type finding struct {
	what, value string
	problem     error
}

func doctor(out io.Writer, env environment) error {
	findings := []finding{{what: "met", value: fmt.Sprintf("%s, %s, %s/%s", Version, runtime.Version(), runtime.GOOS, runtime.GOARCH)}}
	findings = append(findings, cpuFindings(env)...)
	findings = append(findings, cudaFindings("")...)
	findings = append(findings, cacheFinding(env))
	findings = append(findings, treeFindings()...)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	var bad error
	for _, f := range findings {
		mark := "ok"
		if f.problem != nil {
			mark, f.value, bad = "FAIL", f.problem.Error(), f.problem
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", mark, f.what, f.value)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return bad
}

func cpuFindings(env environment) []finding {
	dev, err := cpu.Open(cpu.Options{Path: env.cpuPath})
	if err != nil {
		return []finding{{what: "cpu", problem: err}}
	}
	defer dev.Close()
	memory := finding{what: "memory", value: byteCount(dev.Info().Memory) + " for this process"}
	if dev.Info().Memory == 0 {
		memory.problem = errors.New("the machine does not tell how much there is")
	}
	return []finding{{what: "cpu", value: dev.Info().Name}, memory}
}

// cudaFindings are the driver and its devices with the class of each. That there is none is no problem.
func cudaFindings(library string) []finding {
	system, err := cuda.Query(library)
	if err != nil {
		return []finding{{what: "cuda", value: "not used: " + err.Error()}}
	}
	list := []finding{{what: "cuda", value: fmt.Sprintf("driver %s, %d devices", system.Version, len(system.Devices))}}
	tree, err := kernel.Load(kernels.FS)
	if err != nil {
		return list // treeFindings says it
	}
	for _, d := range system.Devices {
		f := finding{what: fmt.Sprintf("cuda:%d", d.Ordinal), value: fmt.Sprintf("%s, cc %d.%d, %s", d.Name, d.Capability/10, d.Capability%10, byteCount(d.Memory))}
		class, _, err := (&deviceFlags{}).target(tree, &d)
		switch {
		case err != nil:
			f.value += "; not used: " + err.Error()
		default:
			f.value += ", class " + class.Name
		}
		list = append(list, f)
	}
	return list
}

func cacheFinding(env environment) finding {
	dir := env.hub.Cache
	f := finding{what: "model cache", value: dir}
	switch info, err := os.Stat(dir); {
	case os.IsNotExist(err):
		f.value += " (not there yet; the first download makes it)"
	case err != nil:
		f.problem = err
	case !info.IsDir():
		f.problem = fmt.Errorf("%s is no folder", dir)
	}
	if env.hub.Offline {
		f.value += ", offline (HF_HUB_OFFLINE)"
	}
	return f
}

// treeFindings check what is embedded.
func treeFindings() []finding {
	tree, err := kernel.Load(kernels.FS)
	if err != nil {
		return []finding{{what: "kernels", problem: err}}
	}
	carried := finding{what: "kernels"}
	carried.value, carried.problem = carriedHardware(kernels.FS)
	list := []finding{{what: "hardware classes", value: strings.Join(slices.Sorted(maps.Keys(tree.Classes)), ", ")}, carried}
	lib, err := readLibrary()
	if err != nil {
		return append(list, finding{what: "circuits", problem: err})
	}
	return append(list, finding{what: "circuits", value: strings.Join(slices.Sorted(maps.Keys(lib.Variants)), ", ")})
}
