// SPDX-License-Identifier: MIT OR Apache-2.0

package cudatest

import (
	"flag"
	"io/fs"
	"os"
	"testing"

	"github.com/metrale/metrale/internal/gpu/cuda"
	"github.com/metrale/metrale/internal/kernel"
)

var (
	library = flag.String("cuda-library", "", "driver library instead of the system's")
	modules = flag.String("modules", "", "folder of compiled modules instead of those in the binary")
)

// Device is an open device with the class whose kernels it runs.
type Device struct {
	*cuda.Device
	Tree  *kernel.Tree
	Class *kernel.Class
	Code  fs.FS // the class's modules
}

// Open opens the first CUDA device with the modules of its class, from the kernel tree, or skips the test. The device is closed
// with the test.
func Open(t testing.TB, kernels fs.FS) Device {
	t.Helper()
	system, err := cuda.Query(*library)
	if err != nil || len(system.Devices) == 0 {
		t.Skip("there is no CUDA device (", err, ")")
	}
	d := Device{}
	if d.Tree, err = kernel.Load(kernels); err != nil {
		t.Fatal(err)
	}
	if d.Class = cuda.ClassOf(d.Tree, system.Devices[0].Capability); d.Class == nil {
		t.Skip("no class is made for ", system.Devices[0].Name)
	}
	if *modules != "" {
		d.Code = os.DirFS(*modules)
	} else if d.Code, err = kernel.OpenCode(kernels, d.Tree.Targets[d.Class.Name]); err != nil {
		t.Skip("kernels are not run: ", err)
	}
	if d.Device, err = cuda.Open(cuda.Options{Class: d.Class, Modules: d.Code, Library: *library}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// OnHost says whether a stand-in runs the kernels, as where there is no GPU.
func OnHost() bool { return *library != "" }

// Args are the package's flags as given, for a process that the test starts.
func Args() []string { return []string{"-cuda-library", *library, "-modules", *modules} }
