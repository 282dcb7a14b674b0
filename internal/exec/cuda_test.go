// SPDX-License-Identifier: MIT OR Apache-2.0

package exec

import (
	"flag"
	"io/fs"
	"os"
	"testing"

	"github.com/metrale/metrale/internal/gpu/cuda"
	"github.com/metrale/metrale/internal/kernel"
	"github.com/metrale/metrale/kernels"
)

// Tests of what runs on a CUDA device run wherever a driver is. To run them without a GPU (tools/cudahost):
//
//	go test ./internal/exec -args -cuda-library libcuda_host.so -modules bin/hopper
var (
	library = flag.String("cuda-library", "", "driver library instead of the system's")
	modules = flag.String("modules", "", "folder of compiled modules instead of those in the binary")
)

// openCUDA opens the CUDA device or skips the test.
func openCUDA(t testing.TB) *cuda.Device {
	t.Helper()
	system, err := cuda.Query(*library)
	if err != nil || len(system.Devices) == 0 {
		t.Skip("there is no CUDA device (", err, ")")
	}
	tree, err := kernel.Load(kernels.FS)
	if err != nil {
		t.Fatal(err)
	}
	class := cuda.ClassOf(tree, system.Devices[0].Capability)
	if class == nil {
		t.Skip("no class is made for ", system.Devices[0].Name)
	}
	var code fs.FS
	if *modules != "" {
		code = os.DirFS(*modules)
	} else if code, err = kernel.OpenCode(kernels.FS, tree.Targets[class.Name]); err != nil {
		t.Skip("kernels are not run: ", err)
	}
	dev, err := cuda.Open(cuda.Options{Class: class, Modules: code, Library: *library})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}
