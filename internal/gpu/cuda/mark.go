// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda

import (
	"runtime"
	"unsafe"

	"github.com/metrale/metrale/internal/gpu"
)

// mark is an event of the stream of launches.
type mark struct {
	dev   *Device
	event uintptr
	last  string     // the launch before it
	upTo  int64      // launches before it
	args  [1]uintptr // of the call in progress
}

// Mark makes a place in the stream; waiting for one that was not set returns at once.
func (d *Device) Mark() (gpu.Mark, error) {
	d.enter()
	defer d.leave()
	if d.dead != nil {
		return nil, d.dead
	}
	m := &mark{dev: d}
	if err := d.check(d.drv.do(cuEventCreate, uintptr(unsafe.Pointer(&m.event)), eventNoTiming), "making an event"); err != nil {
		return nil, err
	}
	return m, nil
}

// Set puts the mark behind what was queued so far.
func (m *mark) Set() error {
	d := m.dev
	d.enter()
	defer d.leave()
	if d.dead != nil {
		return d.dead
	}
	m.last, m.upTo = d.newest, d.queued
	a := append(d.args[:0], m.event, d.stream)
	if r := d.drv.call(cuEventRecord, a); r != success {
		return d.check(r, "recording an event")
	}
	return nil
}

// Wait waits without keeping others from the device.
func (m *mark) Wait() error {
	d := m.dev
	d.enter()
	dead := d.dead
	d.mu.Unlock() // the thread stays the device's
	defer runtime.UnlockOSThread()
	if dead != nil {
		return dead
	}
	m.args[0] = m.event
	r := d.await(cuEventQuery, m.args[:])
	d.mu.Lock()
	defer d.mu.Unlock()
	if r != success {
		return d.check(r, "waiting for "+m.last)
	}
	d.ended = max(d.ended, m.upTo)
	return nil
}

// Free is called once, when nothing waits.
func (m *mark) Free() {
	d := m.dev
	d.enter()
	defer d.leave()
	if d.context != 0 && !d.hangs {
		d.drv.do(cuEventDestroy, m.event)
	}
}
