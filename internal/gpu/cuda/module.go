// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"unsafe"

	"github.com/metrale/metrale/internal/diag"
)

// module is a loaded library of kernels.
type module struct {
	image   []byte // stays, since the driver may load kernels from it late
	library uintptr
	kernels map[string]*function
}

// function is an entry of a module.
type function struct {
	name       string
	handle     uintptr
	params     []int // sizes in bytes, in order
	maxThreads int
	static     int // bytes of static shared memory
	dynamic    int // most dynamic shared bytes asked for so far
	anyCluster bool
	carved     bool // its share of L1 is set
}

// elfCUDA is the ELF machine of native GPU code.
const elfCUDA = 190

// elf is what every ELF file begins with.
var elf = []byte("\x7fELF")

// moduleFile is the file of a module's code in Options.Modules, as kernel.Code.ReadFile and folders of --cuda-modules have it.
func moduleFile(module string) string { return strings.ReplaceAll(module, "/", ".") + ".cubin" }

// readModule is a module's code.
func readModule(fsys fs.FS, name string) ([]byte, error) {
	if fsys == nil {
		return nil, fs.ErrNotExist
	}
	return fs.ReadFile(fsys, moduleFile(name))
}

// Carries says whether modules hold the code of one.
func Carries(modules fs.FS, module string) bool {
	_, err := fs.Stat(modules, moduleFile(module))
	return err == nil
}

// imageCapability is the compute capability that native code is for; ok is false for other bytes.
func imageCapability(image []byte) (capability int, ok bool) {
	if len(image) < 64 || !bytes.HasPrefix(image, elf) || binary.LittleEndian.Uint16(image[18:]) != elfCUDA {
		return 0, false
	}
	flags := binary.LittleEndian.Uint32(image[48:])
	if image[8] >= 8 { // version of CUDA's binary interface
		return int(flags >> 8 & 0xff), true
	}
	return int(flags & 0xff), true
}

// preflight refuses an image that is not for this device. Of other libraries than NVIDIA's driver, stand-ins that run kernels on the host,
// modules may be no ELF.
func (d *Device) preflight(name string, image []byte) error {
	capability, ok := imageCapability(image)
	switch {
	case !ok && (d.drv.name == DefaultLibrary || bytes.HasPrefix(image, elf)):
		return diag.Errorf(diag.Format, "module %s is no native code of a CUDA device", name)
	case ok && (capability/10 != d.found.Capability/10 || capability > d.found.Capability):
		return diag.Errorf(diag.Unsupported, "module %s is compiled for sm_%d; %s has compute capability %d.%d", name, capability, d.found.Name, d.found.Capability/10, d.found.Capability%10)
	}
	return nil
}

// function finds an entry, loading its module when needed. The device is entered.
func (d *Device) function(name, entry string) (*function, error) {
	m, err := d.module(name)
	if err != nil {
		return nil, err
	}
	if f := m.kernels[entry]; f != nil {
		return f, nil
	}
	f := &function{name: entry}
	r := d.drv.do(cuLibraryGetKernel, uintptr(unsafe.Pointer(&f.handle)), m.library, uintptr(unsafe.Pointer(cBytes(entry))))
	if r == errNotFound {
		return nil, diag.Errorf(diag.Internal, "module %s of class %s has no entry %s", name, d.opts.Class.Name, entry)
	}
	if err := d.check(r, "finding entry "+entry); err != nil {
		return nil, err
	}
	at := new([2]uintptr) // offset, size
	for {
		r := d.drv.do(cuKernelGetParamInfo, f.handle, uintptr(len(f.params)), uintptr(unsafe.Pointer(&at[0])), uintptr(unsafe.Pointer(&at[1])))
		if r == errInvalidValue {
			break
		}
		if err := d.check(r, "reading the parameters of "+entry); err != nil {
			return nil, err
		}
		f.params = append(f.params, int(at[1]))
	}
	v := new([2]int32)
	for i, a := range []uintptr{kernelMaxThreads, kernelStaticShared} {
		if err := d.check(d.drv.do(cuKernelGetAttribute, uintptr(unsafe.Pointer(&v[i])), a, f.handle, uintptr(d.found.handle)), "reading attributes of "+entry); err != nil {
			return nil, err
		}
	}
	f.maxThreads, f.static = int(v[0]), int(v[1])
	m.kernels[entry] = f
	return f, nil
}

func (d *Device) module(name string) (*module, error) {
	if m := d.modules[name]; m != nil {
		return m, nil
	}
	image, err := readModule(d.opts.Modules, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, diag.Errorf(diag.Unsupported, "this binary carries no module %s of class %s: build its kernels with kbuild", name, d.opts.Class.Name)
	} else if err != nil {
		return nil, diag.Errorf(diag.CodeOf(err), "module %s: %w", name, err)
	}
	if err := d.preflight(name, image); err != nil {
		return nil, err
	}
	m := &module{image: append(image, 0), kernels: map[string]*function{}}
	r := d.drv.do(cuLibraryLoadData, uintptr(unsafe.Pointer(&m.library)), uintptr(unsafe.Pointer(&m.image[0])), 0, 0, 0, 0, 0, 0)
	if err := d.check(r, fmt.Sprintf("loading module %s", name)); err != nil {
		return nil, err
	}
	d.modules[name] = m
	return m, nil
}

// allow raises the limits of an entry that a launch needs: dynamic shared memory above 48 KiB, clusters above 8; and says how much of L1
// is to be shared memory.
func (d *Device) allow(f *function, dynamic int, cluster, carveout int64) error {
	set := func(attr, v int, what string) error {
		return d.check(d.drv.do(cuKernelSetAttribute, uintptr(attr), uintptr(v), f.handle, uintptr(d.found.handle)), what+" of "+f.name)
	}
	if dynamic > f.dynamic && f.static+dynamic > 48<<10 {
		if err := set(kernelMaxDynamic, dynamic, "raising the shared memory"); err != nil {
			return err
		}
	}
	f.dynamic = max(f.dynamic, dynamic)
	if cluster > 8 && !f.anyCluster {
		if err := set(kernelAnyCluster, 1, "allowing large clusters"); err != nil {
			return err
		}
		f.anyCluster = true
	}
	if carveout > 0 && !f.carved {
		if err := set(kernelCarveout, int(carveout), "splitting L1"); err != nil {
			return err
		}
		f.carved = true
	}
	return nil
}

// holds refuses a grid whose blocks wait for each other, if the device does not run them all at once: it would never end.
func (d *Device) holds(f *function, blocks, threads, dynamic int64) error {
	at := new(int32) // blocks that a multiprocessor runs at once
	r := d.drv.do(cuOccupancyMaxBlocks, uintptr(unsafe.Pointer(at)), f.handle, uintptr(threads), uintptr(dynamic))
	if err := d.check(r, "asking how many blocks of "+f.name+" run at once"); err != nil {
		return err
	}
	if room := int64(*at) * int64(d.found.Multiprocessors); blocks > room {
		return diag.Errorf(diag.Unsupported, "%d blocks of entry %s wait for each other; the device runs %d of them at once (%d on each of %d multiprocessors)",
			blocks, f.name, room, *at, d.found.Multiprocessors)
	}
	return nil
}
