// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"os"
	"slices"
	"strings"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/weights/hub"
)

// environment is what met reads from the process's environment; docs/environment.md describes each variable.
type environment struct {
	hub     hub.Env // HF_…
	cpuPath string  // METRALE_CPU_PATH
}

// levers are the variables of our own; those of kbuild may be there, too.
var levers = []string{"METRALE_CPU_PATH"}

var buildLevers = []string{"METRALE_TARGET_HW", "METRALE_TARGET_MODEL", "METRALE_TARGET_QUANT"}

// readEnvironment refuses a METRALE_ variable that nothing reads: it is a typo, and running as if it applied would mislead.
func readEnvironment() (environment, error) {
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "METRALE_") && !slices.Contains(levers, name) && !slices.Contains(buildLevers, name) {
			return environment{}, diag.Errorf(diag.Invalid, "the environment has %s, which met does not know; it knows %s", name, strings.Join(levers, ", ")).For(name)
		}
	}
	e, err := hub.ReadEnv(os.Getenv)
	return environment{hub: e, cpuPath: os.Getenv("METRALE_CPU_PATH")}, err
}
