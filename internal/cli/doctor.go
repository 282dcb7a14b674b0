// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/gpu/cpu"
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
	findings = append(findings, cpuFinding(env), memoryFinding(), cacheFinding(env))
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

func cpuFinding(env environment) finding {
	f := finding{what: "cpu"}
	dev, err := cpu.Open(cpu.Options{Path: env.cpuPath})
	if err != nil {
		f.problem = err
		return f
	}
	f.value = dev.Info().Name
	f.problem = dev.Close()
	return f
}

func memoryFinding() finding {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return finding{what: "memory", problem: err}
	}
	unit := int64(info.Unit)
	return finding{what: "memory", value: byteCount(int64(info.Totalram)*unit) + " in all"}
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
	list := []finding{{what: "hardware classes", value: strings.Join(slices.Sorted(maps.Keys(tree.Classes)), ", ")}}
	lib, err := circuit.LoadLibrary(kernels.FS)
	if err != nil {
		return append(list, finding{what: "circuits", problem: err})
	}
	return append(list, finding{what: "circuits", value: strings.Join(slices.Sorted(maps.Keys(lib.Variants)), ", ")})
}
