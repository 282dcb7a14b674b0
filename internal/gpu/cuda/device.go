// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda

import (
	"cmp"
	"fmt"
	"io/fs"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
	"github.com/metrale/metrale/internal/kernel"
)

// Options choose a device and what it runs.
type Options struct {
	Ordinal  int
	Class    *kernel.Class
	Modules  fs.FS         // compiled modules of the class: "<family>.<file>.cubin"
	Library  string        // the driver; "" is DefaultLibrary
	Timeout  time.Duration // most that a wait for the device takes, then it counts as lost; 0: for ever
	Blocking bool          // wait after every launch, so that a fault names the launch that made it
}

// Device is an NVIDIA device.
type Device struct {
	drv     *driver
	opts    Options
	found   Found
	info    gpu.Info
	context uintptr
	stream  uintptr // of launches
	upload  uintptr // of weights
	zeroed  uintptr // event behind the newest allocation's zeroes
	modules map[string]*module
	buffers map[*buffer]bool
	pinned  map[*pinned]bool
	graphs  map[*graph]bool
	bounce  *pinned // between pageable memory and the device
	newest  string  // the newest launch or graph, for errors that the driver tells later
	given   string  // its arguments; a graph has none
	plain   bool    // the next launch waits for what stands before it in the stream, whatever its manifest says
	queued  int64   // launches so far
	ended   int64   // of those, how many are known to have run

	mu    sync.Mutex
	dead  error       // the latched loss; lose sets it
	gone  atomic.Bool // there is one: for stages, which do without mu
	hangs bool        // a wait ran into its limit: the device may still use its memory, and calls may not come back
	args  [16]uintptr // of the call in progress, under mu
}

var (
	_ gpu.Device    = (*Device)(nil)
	_ gpu.Pinner    = (*Device)(nil)
	_ gpu.Stager    = (*Device)(nil)
	_ gpu.Neighbour = (*Device)(nil)
	_ gpu.Generator = (*Device)(nil)
	_ gpu.Grapher   = (*Device)(nil)
	_ gpu.Marker    = (*Device)(nil)
)

// Open takes a device's primary context.
func Open(o Options) (*Device, error) {
	drv, err := openDriver(cmp.Or(o.Library, DefaultLibrary))
	if err != nil {
		return nil, err
	}
	return open(drv, o)
}

func open(drv *driver, o Options) (_ *Device, err error) {
	sys, err := drv.query()
	if err != nil {
		return nil, err
	}
	if o.Ordinal < 0 || o.Ordinal >= len(sys.Devices) {
		return nil, diag.Errorf(diag.Unsupported, "there is no CUDA device %d: the driver has %d", o.Ordinal, len(sys.Devices)).For("device")
	}
	f := sys.Devices[o.Ordinal]
	if err := kernel.CheckArch(o.Class.Arch, f.Capability/10, f.Capability%10); err != nil {
		return nil, diag.Errorf(diag.CodeOf(err), "class %s on %s: %w", o.Class.Name, f.Name, err)
	}
	d := &Device{drv: drv, opts: o, found: f, modules: map[string]*module{}, buffers: map[*buffer]bool{}, pinned: map[*pinned]bool{}, graphs: map[*graph]bool{}}
	if err := drv.failed(drv.do(cuDevicePrimaryCtxRetain, uintptr(unsafe.Pointer(&d.context)), uintptr(f.handle)), "opening "+f.Name); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	d.enter()
	defer d.leave()
	free := new(int64)
	for _, step := range []struct {
		what string
		r    result
	}{
		{"making a stream", drv.do(cuStreamCreate, uintptr(unsafe.Pointer(&d.stream)), streamNonBlocking)},
		{"making a stream", drv.do(cuStreamCreate, uintptr(unsafe.Pointer(&d.upload)), streamNonBlocking)},
		{"making an event", drv.do(cuEventCreate, uintptr(unsafe.Pointer(&d.zeroed)), eventNoTiming)},
		{"asking for free memory", drv.do(cuMemGetInfo, uintptr(unsafe.Pointer(free)), uintptr(unsafe.Pointer(&f.Memory)))},
	} {
		if err := d.check(step.r, step.what); err != nil {
			return nil, err
		}
	}
	d.info = gpu.Info{
		Name:   fmt.Sprintf("%s, cc %d.%d, driver %s", f.Name, f.Capability/10, f.Capability%10, sys.Version),
		Class:  o.Class.Name,
		Memory: f.Memory, Free: *free, Threads: f.Multiprocessors,
	}
	return d, nil
}

// Use replaces the class and its modules by those of one of its targets, before anything is bound.
func (d *Device) Use(class *kernel.Class, modules fs.FS) {
	d.opts.Class, d.opts.Modules = class, modules
}

// enter makes the device this thread's and keeps the goroutine on the thread until leave.
func (d *Device) enter() {
	d.mu.Lock()
	runtime.LockOSThread()
	d.args[0] = d.context
	d.drv.call(cuCtxSetCurrent, d.args[:1])
}

func (d *Device) leave() {
	runtime.UnlockOSThread()
	d.mu.Unlock()
}

// check turns a result into an error and latches a loss. The device is entered.
func (d *Device) check(r result, what string) error {
	if r == success {
		return nil
	}
	d.hangs = d.hangs || r == errTimeout
	if d.dead != nil {
		return d.dead
	}
	err := d.drv.failed(r, what)
	if r == errTimeout {
		err = diag.Errorf(diag.DeviceLost, "cuda: %s: the device is not done after %v; a kernel hangs (--eager --blocking tells which), or needs a longer --device-timeout", what, d.opts.Timeout)
	}
	if diag.Is(err, diag.DeviceLost) {
		switch {
		case strings.Contains(what, d.newest): // it is named, or there was none
		case d.given != "":
			err = diag.Errorf(diag.DeviceLost, "%w (the newest launch was %s of %s)", err, d.newest, d.given)
		default:
			err = diag.Errorf(diag.DeviceLost, "%w (the newest launch was %s)", err, d.newest)
		}
		d.lose(err)
	}
	return err
}

// lose latches a loss, which every later call returns. The device is entered.
func (d *Device) lose(err error) {
	d.dead = err
	d.gone.Store(true)
}

// Info describes the device.
func (d *Device) Info() gpu.Info { return d.info }

// Stream is the device itself.
func (d *Device) Stream() gpu.Stream { return d }

// CanAccessPeer says whether this device may read and write another one's memory. It and EnablePeer are for models that lie on several
// devices, which nothing here runs yet.
func (d *Device) CanAccessPeer(other *Device) (bool, error) {
	d.enter()
	defer d.leave()
	if d.dead != nil {
		return false, d.dead
	}
	can := new(int32)
	err := d.check(d.drv.do(cuDeviceCanAccessPeer, uintptr(unsafe.Pointer(can)), uintptr(d.found.handle), uintptr(other.found.handle)), "asking for peer access")
	return *can != 0, err
}

// EnablePeer lets this device's launches and copies read and write another one's memory, until it is closed. Asking again is no
// error; without a way between the two it is diag.Unsupported.
func (d *Device) EnablePeer(other *Device) error {
	can, err := d.CanAccessPeer(other)
	if err != nil {
		return err
	}
	if !can {
		return diag.Errorf(diag.Unsupported, "cuda: device %d (%s) has no access to the memory of device %d (%s)", d.found.Ordinal, d.found.Name, other.found.Ordinal, other.found.Name)
	}
	d.enter()
	defer d.leave()
	if d.dead != nil {
		return d.dead
	}
	r := d.drv.do(cuCtxEnablePeerAccess, other.context, 0)
	if r == errPeerEnabled {
		return nil
	}
	return d.check(r, fmt.Sprintf("enabling access to the memory of device %d", other.found.Ordinal))
}

// Close waits for everything that runs and frees everything that is there. Errors are not told: a lost device has only them. A device
// that hangs is left to the end of the process.
func (d *Device) Close() error {
	if d.context == 0 {
		return nil
	}
	d.enter()
	defer d.leave()
	var streams []uintptr
	for _, s := range []uintptr{d.stream, d.upload} {
		if s != 0 {
			streams = append(streams, s)
		}
	}
	if d.idle(streams...) {
		d.freeAll(streams)
	}
	d.context = 0
	d.lose(diag.Errorf(diag.Internal, "cuda: the device is closed"))
	return nil
}

// freeAll frees everything and leaves the context; nothing runs any more.
func (d *Device) freeAll(streams []uintptr) {
	for g := range d.graphs {
		d.drv.do(cuGraphExecDestroy, g.exec)
	}
	for b := range d.buffers {
		d.drv.do(cuMemFree, b.ptr)
	}
	for p := range d.pinned {
		p.release()
	}
	for _, m := range d.modules {
		d.drv.do(cuLibraryUnload, m.library)
	}
	if d.zeroed != 0 {
		d.drv.do(cuEventDestroy, d.zeroed)
	}
	for _, s := range streams {
		d.drv.do(cuStreamDestroy, s)
	}
	d.args[0] = 0
	d.drv.call(cuCtxSetCurrent, d.args[:1])
	d.drv.do(cuDevicePrimaryCtxRelease, uintptr(d.found.handle))
}
