// SPDX-License-Identifier: MIT OR Apache-2.0

package kbuild

import (
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/kernel"
)

// toolchain is a vendor's compiler.
type toolchain struct {
	name    string         // of the program on PATH, and of the flag that gives another
	version *regexp.Regexp // its first group is the version in the output of --version
	command func(m *kernel.Module) []string
	report  func(text string) map[string]kernel.Usage
}

// toolchains are the compilers by vendor. Their commands run in the tree's root; the output and the source follow.
var toolchains = map[string]*toolchain{
	kernel.NVIDIA: {
		name:    "nvcc",
		version: regexp.MustCompile(`release \S+, V(\S+)`),
		command: func(m *kernel.Module) []string {
			return append([]string{"-cubin", "-arch=" + m.Arch, "-Xptxas", "-v", "-I", "include", "-I", "."}, m.Flags...)
		},
		report: parsePtxas,
	},
	kernel.AMD: {
		name:    "clang-19",
		version: regexp.MustCompile(`clang version (\S+)`),
		command: func(m *kernel.Module) []string {
			return append([]string{"-x", "hip", "--offload-arch=" + m.Arch, "--cuda-device-only", "--no-gpu-bundle-output", "-nogpulib", "-nogpuinc",
				"-fuse-cuid=none", "-Rpass-analysis=kernel-resource-usage", "-I", "include", "-I", "."}, m.Flags...)
		},
		report: parseRemarks,
	},
}

// patience is how long processes that a compiler started may keep its output open once it has ended, or was ended with ctx. Tests have less.
var patience = 5 * time.Second

// bounded is a run of a compiler that ends with ctx, whatever the processes that it started do.
func bounded(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.WaitDelay = patience
	return cmd
}

// find gives the program's path and "<name> <version>".
func (t *toolchain) find(ctx context.Context, path string) (program, version string, err error) {
	if path == "" {
		path = t.name
	}
	if program, err = exec.LookPath(path); err != nil {
		return "", "", diag.Errorf(diag.NotFound, "no %s: give --%s, or put it on PATH", path, t.name).Because(err)
	}
	if program, err = filepath.Abs(program); err != nil { // it runs in another folder
		return "", "", diag.Errorf(diag.IO, "%w", err)
	}
	out, err := bounded(ctx, program, "--version").Output()
	if err != nil {
		return "", "", diag.Errorf(diag.NotFound, "%s --version failed", program).Because(err)
	}
	m := t.version.FindSubmatch(out)
	if m == nil {
		return "", "", diag.Errorf(diag.Unsupported, "%s --version names no version of %s", program, t.name)
	}
	return program, t.name + " " + string(m[1]), nil
}

var (
	ptxasEntry = regexp.MustCompile(`Compiling entry function '([^']+)'`)
	ptxasSpill = regexp.MustCompile(`(\d+) bytes spill stores, (\d+) bytes spill loads`)
	ptxasUsed  = regexp.MustCompile(`Used (\d+) registers(?:.*?(\d+) bytes smem)?`)
)

// parsePtxas reads the report of ptxas -v: an entry's lines follow the line that names it.
func parsePtxas(text string) map[string]kernel.Usage {
	out, entry := map[string]kernel.Usage{}, ""
	for line := range strings.Lines(text) {
		if m := ptxasEntry.FindStringSubmatch(line); m != nil {
			entry = m[1]
			out[entry] = kernel.Usage{}
		}
		if entry == "" {
			continue
		}
		u := out[entry]
		if m := ptxasSpill.FindStringSubmatch(line); m != nil {
			u.SpillBytes = number(m[1]) + number(m[2])
		}
		if m := ptxasUsed.FindStringSubmatch(line); m != nil {
			u.Registers, u.StaticShared = number(m[1]), number(m[2])
		}
		out[entry] = u
	}
	return out
}

var remark = regexp.MustCompile(`remark:\s+(Function Name|VGPRs|ScratchSize \[bytes/lane\]|LDS Size \[bytes/block\]): (\S+)`)

// parseRemarks reads clang's remarks about AMD code: an entry's follow its name. What spills lies in scratch memory.
func parseRemarks(text string) map[string]kernel.Usage {
	out, entry := map[string]kernel.Usage{}, ""
	for line := range strings.Lines(text) {
		m := remark.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if m[1] == "Function Name" {
			entry = m[2]
			out[entry] = kernel.Usage{}
			continue
		}
		u := out[entry]
		switch m[1] {
		case "VGPRs":
			u.Registers = number(m[2])
		case "ScratchSize [bytes/lane]":
			u.SpillBytes = number(m[2])
		default:
			u.StaticShared = number(m[2])
		}
		out[entry] = u
	}
	return out
}

// number reads digits; none are 0, and too many are above any ceiling.
func number(s string) int {
	n, err := strconv.ParseInt(s, 10, 32)
	switch {
	case s == "":
		return 0
	case err != nil:
		return 1 << 30
	}
	return int(n)
}
