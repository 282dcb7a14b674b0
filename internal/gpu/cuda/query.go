// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/metrale/metrale/internal/kernel"
)

// DefaultLibrary is the driver's library on Linux.
const DefaultLibrary = "libcuda.so.1"

// Found is a device that the driver reports.
type Found struct {
	Ordinal         int
	Name            string
	Capability      int   // compute capability, 10*major + minor: 90
	Memory          int64 // bytes
	Multiprocessors int
	SharedPerBlock  int // most dynamic shared bytes of a block

	handle int32
}

// System is the driver and its devices.
type System struct {
	Version string // of the driver API: "13.0"
	Devices []Found
}

// Query opens the driver and lists its devices; library "" is DefaultLibrary. Where there is no driver, the error says so in
// one line (diag.Unsupported).
func Query(library string) (*System, error) {
	d, err := openDriver(cmp.Or(library, DefaultLibrary))
	if err != nil {
		return nil, err
	}
	return d.query()
}

func (d *driver) query() (*System, error) {
	var v int32
	p := &v
	if err := d.failed(d.do(cuDriverGetVersion, uintptr(unsafe.Pointer(p))), "asking for its version"); err != nil {
		return nil, err
	}
	s := &System{Version: fmt.Sprintf("%d.%d", v/1000, v%1000/10)}
	if r := d.do(cuDeviceGetCount, uintptr(unsafe.Pointer(p))); r != success && r != errNoDevice {
		return nil, d.failed(r, "counting devices")
	} else if r == errNoDevice {
		v = 0
	}
	for i := range int(v) {
		f, err := d.find(i)
		if err != nil {
			return nil, err
		}
		s.Devices = append(s.Devices, f)
	}
	return s, nil
}

// find describes a device.
func (d *driver) find(ordinal int) (Found, error) {
	f := &Found{Ordinal: ordinal}
	name := new([128]byte)
	r := d.do(cuDeviceGet, uintptr(unsafe.Pointer(&f.handle)), uintptr(ordinal))
	dev := uintptr(f.handle)
	if r == success {
		r = d.do(cuDeviceGetName, uintptr(unsafe.Pointer(name)), uintptr(len(name)), dev)
	}
	if r == success {
		r = d.do(cuDeviceTotalMem, uintptr(unsafe.Pointer(&f.Memory)), dev)
	}
	attrs := new([4]int32)
	for i, a := range []uintptr{attrMultiprocessors, attrMajor, attrMinor, attrSharedOptin} {
		if r == success {
			r = d.do(cuDeviceGetAttribute, uintptr(unsafe.Pointer(&attrs[i])), a, dev)
		}
	}
	f.Name, f.Multiprocessors = cString(&name[0]), int(attrs[0])
	f.Capability, f.SharedPerBlock = int(10*attrs[1]+attrs[2]), int(attrs[3])
	return *f, d.failed(r, fmt.Sprintf("describing device %d", ordinal))
}

// ClassOf is the class that is compiled for a compute capability, that of exactly its number first; nil if the tree has none.
func ClassOf(t *kernel.Tree, capability int) *kernel.Class {
	var best *kernel.Class
	for _, name := range slices.Sorted(maps.Keys(t.Classes)) {
		c := t.Classes[name]
		if c.Vendor != kernel.NVIDIA || c.Abstract || kernel.CheckArch(c.Arch, capability/10, capability%10) != nil {
			continue
		}
		if best == nil || strings.Contains(c.Arch, strconv.Itoa(capability)) {
			best = c
		}
	}
	return best
}
