// SPDX-License-Identifier: MIT OR Apache-2.0

package cudatest

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/metrale/metrale/internal/gpu/cuda"
	"github.com/metrale/metrale/internal/kernel"
)

var (
	library = flag.String("cuda-library", "", "driver library instead of the system's")
	modules = flag.String("modules", "", "folder of compiled modules instead of those in the binary")
	seen    = flag.String("seen", "", "list of kernels that ran, to write to (SEEN.toml of a class)")
	timeout = flag.Duration("device-timeout", 0, "how long a wait for the device may take; 0: for ever")
)

// Device is an open device with the class whose kernels it runs.
type Device struct {
	*cuda.Device
	System *cuda.System
	Tree   *kernel.Tree
	Class  *kernel.Class
	Code   fs.FS // the class's modules
}

// Open opens the first CUDA device with the modules of its class, from the kernel tree, or skips the test where there is no device or
// the binary carries no code of its class; code of other sources than the tree's is an error. The device is closed with the test.
func Open(t testing.TB, kernels fs.FS) Device {
	t.Helper()
	system, err := cuda.Query(*library)
	if err != nil || len(system.Devices) == 0 {
		t.Skip("there is no CUDA device (", err, ")")
	}
	d := Device{System: system}
	if d.Tree, err = kernel.Load(kernels); err != nil {
		t.Fatal(err)
	}
	if d.Class = cuda.ClassOf(d.Tree, system.Devices[0].Capability); d.Class == nil {
		t.Skip("no class is made for ", system.Devices[0].Name)
	}
	if *modules != "" {
		d.Code = os.DirFS(*modules)
	} else if d.Code, err = kernel.OpenCode(kernels, d.Tree.Targets[d.Class.Name]); err != nil {
		if carried, e := kernel.Carried(kernels); e == nil && carried[d.Class.Name] == nil {
			t.Skip("kernels are not run: ", err)
		}
		t.Fatal(err)
	}
	if d.Device, err = cuda.Open(cuda.Options{Class: d.Class, Modules: d.Code, Library: *library, Timeout: *timeout}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// Saw notes in the list of flag -seen that kernels gave right results on this device. Where a stand-in or other modules than those
// embedded ran, nothing was seen.
func (d *Device) Saw(t testing.TB, names ...string) {
	t.Helper()
	code, ok := d.Code.(*kernel.Code)
	if *seen == "" || !ok || OnHost() {
		return
	}
	run := kernel.SeenRun{Device: d.System.Devices[0].Name, Driver: d.System.Version, Compiler: code.Index.Compiler, Date: time.Now().UTC().Format(time.DateOnly)}
	var ran []*kernel.Kernel
	for _, name := range names {
		ran = append(ran, code.Target.Kernels[name])
	}
	var err error
	if run.Kernels, err = code.Forms(ran...); err != nil {
		t.Fatal(err)
	}
	list, err := kernel.ReadSeen(os.DirFS(filepath.Dir(*seen)), filepath.Base(*seen))
	if err != nil {
		t.Fatal(err)
	}
	list.Add(run)
	text, err := list.Text()
	if err == nil {
		err = os.WriteFile(*seen, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// OnHost says whether a stand-in runs the kernels, as where there is no GPU.
func OnHost() bool { return *library != "" }

// Args are the package's flags as given, for a process that the test starts.
func Args() []string {
	return []string{"-cuda-library", *library, "-modules", *modules, "-device-timeout", timeout.String()}
}
