// SPDX-License-Identifier: MIT OR Apache-2.0

package cpu

// taskFloats is the work of a task in elementwise kernels, about two microseconds: less would not pay for waking a worker.
const taskFloats = 8192

// region runs work over [0, n) items in tasks of grain items. One task runs on the caller without a barrier.
type region struct {
	dev   *Device
	grain int
	n     int
	work  func(lo, hi, worker int)
	task  func(i, worker int)
}

// region prepares work whose item touches size floats. Results must not depend on where items are cut.
func (d *Device) region(size int, work func(lo, hi, worker int)) *region {
	r := &region{dev: d, grain: max(1, taskFloats/max(1, size)), work: work}
	r.task = func(i, worker int) { r.work(i*r.grain, min((i+1)*r.grain, r.n), worker) }
	return r
}

// run runs the region over n items.
func (r *region) run(n int) {
	r.n = n
	if tasks := (n + r.grain - 1) / r.grain; tasks > 1 {
		r.dev.pool.Run(tasks, r.task)
	} else if n > 0 {
		r.work(0, n, 0)
	}
}
