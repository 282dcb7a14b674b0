// SPDX-License-Identifier: MIT OR Apache-2.0

package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/gpu/cpu"
	"github.com/metrale/metrale/internal/gpu/cuda"
	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/kernels"
)

// deviceFlags choose what computes.
type deviceFlags struct {
	device, cpuPath string
	pathOf          string // METRALE_CPU_PATH, which --cpu-path is where it is not given
	threads         int
	eager, blocking bool
	timeout         time.Duration // of waits for a GPU
	library         string        // CUDA's driver
	modules         string        // folder of compiled modules instead of those in the binary
	kernelTarget    string        // pins what checkpoint.target resolves
}

// add declares the flags; device is the default.
func (f *deviceFlags) add(fs *pflag.FlagSet, env environment, device string) {
	f.pathOf = env.cpuPath
	fs.StringVar(&f.device, "device", device, "device that computes: auto, cpu, cuda or cuda:N; auto is the first CUDA device, else the CPU")
	fs.IntVar(&f.threads, "threads", 0, "CPU threads (0: all)")
	fs.StringVar(&f.cpuPath, "cpu-path", env.cpuPath, "SIMD path: avx512, avx2 or go (default: the best of this processor)")
	fs.StringVar(&f.kernelTarget, "kernel-target", "", "kernels to use, as met kernels list names them (default: those made for the model)")
	fs.BoolVar(&f.eager, "eager", false, "start kernels one by one instead of replaying recorded steps")
	fs.DurationVar(&f.timeout, "device-timeout", 2*time.Minute, "how long a GPU may work on a step before it counts as lost; 0: for ever")
	fs.BoolVar(&f.blocking, "blocking", false, "wait after every kernel, so that a fault names the one that made it")
	fs.StringVar(&f.library, "cuda-library", "", "driver library to open instead of "+cuda.DefaultLibrary)
	fs.StringVar(&f.modules, "cuda-modules", "", "folder of compiled modules to use instead of those in the binary")
	for _, hidden := range []string{"blocking", "cuda-library", "cuda-modules"} {
		fs.Lookup(hidden).Hidden = true
	}
}

// check refuses values that name nothing.
func (f *deviceFlags) check() error {
	if err := within("threads", int64(f.threads), 0, 4096); err != nil {
		return err
	}
	if f.timeout < 0 {
		return diag.Errorf(diag.Invalid, "--device-timeout %v: must not be negative", f.timeout).For("device-timeout")
	}
	if err := cpu.CheckPath(f.cpuPath); err != nil {
		from := "--cpu-path"
		if f.cpuPath == f.pathOf {
			from = "METRALE_CPU_PATH"
		}
		return diag.Errorf(diag.Invalid, "%s: %w", from, err).For("cpu-path")
	}
	_, _, err := f.parse()
	return err
}

// parse splits --device into kind and ordinal.
func (f *deviceFlags) parse() (kind string, ordinal int, err error) {
	kind, number, numbered := strings.Cut(f.device, ":")
	bad := kind != "auto" && kind != "cpu" && kind != "cuda" || numbered && kind != "cuda"
	if numbered && !bad {
		ordinal, err = strconv.Atoi(number)
		bad = err != nil || ordinal < 0
	}
	if bad {
		return "", 0, diag.Errorf(diag.Invalid, "--device %s: want auto, cpu, cuda or cuda:N", f.device).For("device")
	}
	return kind, ordinal, nil
}

// open opens the device. With auto, log is told in a line why none of CUDA is used.
func (f *deviceFlags) open(log io.Writer) (gpu.Device, error) {
	return f.openTelling(log, func(string) {})
}

// openTelling is open that tells the device's class as soon as that is known, which is long before the device is open. If that fails
// then, another class may follow.
func (f *deviceFlags) openTelling(log io.Writer, tell func(class string)) (gpu.Device, error) {
	kind, ordinal, err := f.parse()
	if err != nil {
		return nil, err
	}
	if kind != "cpu" {
		dev, err := f.openCUDA(ordinal, tell)
		switch {
		case err == nil:
			return dev, nil
		case kind == "cuda":
			return nil, diag.Errorf(diag.CodeOf(err), "--device %s: %w", f.device, err).For("device")
		}
		fmt.Fprintf(log, "met: computing on the CPU: %v\n", err)
	}
	tell("cpu")
	return cpu.Open(cpu.Options{Threads: f.threads, Path: f.cpuPath})
}

// reader reads files while a device opens. It may wait for the device's class, once; there is none if no device is found.
type reader func(ctx context.Context, class func() (string, bool)) error

// openBeside opens the device while read runs, since either may take longer. The device's error comes first, and ends read.
func (f *deviceFlags) openBeside(ctx context.Context, log io.Writer, read reader) (gpu.Device, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var unread error
	classes := make(chan string, 2)
	class := func() (string, bool) {
		name, ok := <-classes
		return name, ok
	}
	wg.Go(func() { unread = read(ctx, class) })
	var note bytes.Buffer // log is read's until it ends
	dev, err := f.openTelling(&note, func(class string) { classes <- class })
	close(classes)
	if err != nil {
		cancel()
	}
	wg.Wait()
	_, _ = note.WriteTo(log)
	switch {
	case err != nil:
		return nil, err
	case unread != nil:
		dev.Close()
		return nil, unread
	}
	return dev, nil
}

// openCUDA opens a CUDA device with the class that is made for it.
func (f *deviceFlags) openCUDA(ordinal int, tell func(class string)) (gpu.Device, error) {
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = readLibrary() }) // while the driver opens, which takes longer
	system, err := cuda.Query(f.library)
	wg.Wait()
	if err != nil {
		return nil, err
	}
	if ordinal >= len(system.Devices) {
		return nil, diag.Errorf(diag.Unsupported, "the driver has %d CUDA devices", len(system.Devices))
	}
	library, err := readLibrary()
	if err != nil {
		return nil, err
	}
	class, modules, err := f.target(library.Tree, &system.Devices[ordinal])
	if err != nil {
		return nil, err
	}
	tell(class.Name)
	return cuda.Open(cuda.Options{Ordinal: ordinal, Class: class, Modules: modules, Library: f.library, Timeout: f.timeout, Blocking: f.blocking})
}

// target finds the class of a device and its compiled modules.
func (f *deviceFlags) target(tree *kernel.Tree, d *cuda.Found) (*kernel.Class, fs.FS, error) {
	class := cuda.ClassOf(tree, d.Capability)
	if class == nil {
		return nil, nil, diag.Errorf(diag.Unsupported, "no hardware class is made for %s, compute capability %d.%d", d.Name, d.Capability/10, d.Capability%10)
	}
	if len(class.Kernels) == 0 {
		return nil, nil, diag.Errorf(diag.Unsupported, "class %s, that of %s, has no kernels yet", class.Name, d.Name)
	}
	if f.modules != "" {
		return class, os.DirFS(f.modules), nil
	}
	code, err := kernel.OpenCode(kernels.FS, tree.Targets[class.Name])
	return class, code, err
}

// rowBuckets are the row counts that plans are made for: on the CPU one, on a GPU powers of two, since grids cover the bound.
func rowBuckets(class string, most int64) []int64 {
	if class == "cpu" {
		return []int64{most}
	}
	var list []int64
	for r := int64(1); r < most; r *= 2 {
		list = append(list, r)
	}
	return append(list, most)
}
