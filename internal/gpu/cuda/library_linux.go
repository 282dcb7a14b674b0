// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build linux && !nocuda

package cuda

import (
	"runtime"
	"strings"
	"sync"

	"github.com/ebitengine/purego"

	"github.com/metrale/metrale/internal/diag"
)

// opened are the libraries of this process by name; they stay open.
var opened struct {
	sync.Mutex
	drivers map[string]*driver
}

// openDriver opens the driver's library and initialises it once.
func openDriver(library string) (*driver, error) {
	opened.Lock()
	defer opened.Unlock()
	if d := opened.drivers[library]; d != nil {
		return d, nil
	}
	runtime.LockOSThread() // the loader's error text belongs to the thread
	defer runtime.UnlockOSThread()
	handle, err := purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, diag.Errorf(diag.Unsupported, "no CUDA driver: %s", strings.TrimSpace(err.Error()))
	}
	d := &driver{name: library}
	var address [numEntries]uintptr
	for e, x := range entries {
		a, err := purego.Dlsym(handle, x.symbol)
		if err != nil || a == 0 {
			if !x.optional {
				return nil, diag.Errorf(diag.Unsupported, "the CUDA driver %s is too old: it has no %s (CUDA 12.4 or later is needed)", library, x.symbol)
			}
			continue
		}
		address[e], d.has[e] = a, true
	}
	d.call = func(e entry, args []uintptr) result {
		r, _, _ := purego.SyscallN(address[e], args...)
		return result(int32(r))
	}
	if err := d.failed(d.do(cuInit, 0), "starting the driver"); err != nil {
		return nil, err
	}
	if opened.drivers == nil {
		opened.drivers = map[string]*driver{}
	}
	opened.drivers[library] = d
	return d, nil
}
