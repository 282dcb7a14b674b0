// SPDX-License-Identifier: MIT OR Apache-2.0

// Command kbuild compiles the kernel tree: kbuild [--root kernels] [--nvcc PATH] CLASS…
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/kbuild"
)

func main() {
	root := flag.String("root", "kernels", "the kernel tree")
	nvcc := flag.String("nvcc", "", "CUDA's compiler (default: the one on PATH)")
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: kbuild [--root DIR] [--nvcc PATH] CLASS…")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	for _, class := range flag.Args() {
		if _, err := kbuild.Build(ctx, class, kbuild.Options{Root: *root, Nvcc: *nvcc, Log: os.Stdout}); err != nil {
			fmt.Fprintln(os.Stderr, "kbuild:", err)
			os.Exit(diag.ExitStatus(err))
		}
	}
}
