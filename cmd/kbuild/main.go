// SPDX-License-Identifier: MIT OR Apache-2.0

// Command kbuild compiles the kernel tree.
//
//	kbuild [flags] [CLASS…]   compile classes and their leaves into kernels/bin
//	kbuild [flags] check      hold the tree, circuits and lowering rules among it, and what is compiled of it, against its rules, and list
//	                          compiled kernels that no device has run in that form (with -seen, they are errors); needs no compiler
//
// METRALE_TARGET_HW, METRALE_TARGET_MODEL and METRALE_TARGET_QUANT are patterns ("*", "qwen3*") of the classes, models and
// quantisations to compile; each is * unless set. Classes on the command line stand for METRALE_TARGET_HW.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"

	"github.com/metrale/metrale/internal/circuit"
	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/kbuild"
	"github.com/metrale/metrale/internal/kernel"
)

func main() {
	o := kbuild.Options{Model: os.Getenv("METRALE_TARGET_MODEL"), Quant: os.Getenv("METRALE_TARGET_QUANT"), Log: os.Stdout, Compilers: map[string]string{}}
	flag.StringVar(&o.Root, "root", "kernels", "the kernel tree")
	flag.IntVar(&o.Parallel, "p", runtime.GOMAXPROCS(0), "compilers at a time")
	flag.StringVar(&o.Cache, "cache", cacheFolder(), "folder of compiled modules; empty for none")
	nvcc := flag.String("nvcc", "", "compiler of CUDA sources (default: the one on PATH)")
	clang := flag.String("clang-19", "", "compiler of HIP sources (default: the one on PATH)")
	seen := flag.Bool("seen", false, "check: kernels that no device has run as they are, are errors")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: kbuild [flags] [CLASS…]\n       kbuild [flags] check")
		flag.PrintDefaults()
	}
	flag.Parse()
	o.Compilers[kernel.NVIDIA], o.Compilers[kernel.AMD] = *nvcc, *clang
	if flag.Arg(0) == "check" {
		if flag.NArg() > 1 {
			end([]error{diag.Errorf(diag.Invalid, "check takes no arguments; flags stand before it")})
		}
		end(check(o.Root, *seen))
	}
	classes := flag.Args()
	if len(classes) == 0 {
		classes = []string{os.Getenv("METRALE_TARGET_HW")}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	for _, o.HW = range classes {
		if _, err := kbuild.Build(ctx, o); err != nil {
			end([]error{err})
		}
	}
}

// check holds the tree against its rules, and circuits and lowering rules against its kernels.
func check(root string, allSeen bool) []error {
	bad := kbuild.Check(root, allSeen, os.Stdout)
	err := circuit.Check(os.DirFS(root))
	if err != nil && !slices.ContainsFunc(bad, func(b error) bool { return b.Error() == err.Error() }) { // a tree that does not load is told once
		bad = append(bad, err)
	}
	return bad
}

// end prints what is wrong and leaves with the status of the first.
func end(errs []error) {
	for _, err := range errs {
		fmt.Fprintln(os.Stderr, "kbuild:", err)
	}
	if len(errs) == 0 {
		os.Exit(0)
	}
	os.Exit(diag.ExitStatus(errs[0]))
}

// cacheFolder is the user's, shared by all checkouts.
func cacheFolder() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "metrale", "kbuild")
}
