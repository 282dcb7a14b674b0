// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda

import (
	"unsafe"

	"github.com/metrale/metrale/internal/diag"
	"github.com/metrale/metrale/internal/gpu"
)

// Launch starts a bound launch or a graph.
func (d *Device) Launch(x gpu.Launch) error {
	d.enter()
	defer d.leave()
	if d.dead != nil {
		return d.dead
	}
	if d.queued-d.ended >= mostQueued {
		if err := d.check(d.awaitStream(d.stream), "making room for launches"); err != nil {
			return err
		}
	}
	var err error
	switch l := x.(type) {
	case *launch:
		err = d.start(l)
	case *graph:
		err = d.startGraph(l)
	default:
		return diag.Errorf(diag.Internal, "cuda: a launch of another device: %T", x)
	}
	if err == nil && d.opts.Blocking {
		err = d.check(d.awaitStream(d.stream), "running")
	}
	return err
}

// start starts a bound launch, and those that follow it; the device is entered. A programmatic launch may begin before its
// predecessor has ended, and reads before it waits what the step's first launch found complete: so one that follows a copy, or
// begins a recording, is plain.
func (d *Device) start(l *launch) error {
	if l.dev != d {
		return diag.Errorf(diag.Internal, "cuda: a launch of another device")
	}
	for _, b := range l.buffers {
		if b.ptr == 0 {
			return diag.Errorf(diag.Internal, "cuda: %s: buffer %s was freed", l.name, b.name)
		}
	}
	for ; l != nil; l = l.next {
		d.newest, d.given = l.name, l.args
		d.queued++
		all := l.config.numAttrs
		if d.plain && l.programmatic {
			l.config.numAttrs-- // the last one
		}
		d.plain = false
		a := append(d.args[:0], uintptr(unsafe.Pointer(&l.config)), l.handle, uintptr(unsafe.Pointer(unsafe.SliceData(l.params))), 0)
		r := d.drv.call(cuLaunchKernelEx, a)
		l.config.numAttrs = all
		if r != success {
			return d.check(r, l.name+" of "+l.args)
		}
	}
	return nil
}

// Sync waits for everything that was launched.
func (d *Device) Sync() error {
	d.enter()
	defer d.leave()
	if d.dead != nil {
		return d.dead
	}
	return d.check(d.awaitStream(d.stream), "waiting for the stream")
}

// Time runs f, which launches, and gives how long the stream worked on it in milliseconds: for benchmarks.
func (d *Device) Time(f func() error) (ms float64, err error) {
	events := new([2]uintptr)
	elapsed := new(float32)
	mark := func(i int) error {
		d.enter()
		defer d.leave()
		if d.dead != nil {
			return d.dead
		}
		r := d.drv.do(cuEventCreate, uintptr(unsafe.Pointer(&events[i])), 0)
		if r == success {
			r = d.drv.do(cuEventRecord, events[i], d.stream)
		}
		return d.check(r, "recording an event")
	}
	if err := mark(0); err != nil {
		return 0, err
	}
	err = f()
	if e := mark(1); err == nil {
		err = e
	}
	d.enter()
	defer d.leave()
	if err == nil {
		r := d.await(cuEventQuery, events[1:])
		if r == success {
			r = d.drv.do(cuEventElapsedTime, uintptr(unsafe.Pointer(elapsed)), events[0], events[1])
		}
		err = d.check(r, "timing")
	}
	for _, e := range events {
		if e != 0 && !d.hangs {
			d.drv.do(cuEventDestroy, e)
		}
	}
	return float64(*elapsed), err
}
