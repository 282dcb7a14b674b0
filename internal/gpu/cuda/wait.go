// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda

import "time"

const (
	// attentive is how long a wait looks without a pause, as the driver's own waits do: whoever waits for a token gets it at once.
	attentive = 250 * time.Millisecond
	// nap is what lies between later looks.
	nap = time.Millisecond
	// mostQueued is how many launches may be under way. The driver's queue takes 1024 of launches and copies; then a launch waits in the
	// driver, where no limit holds.
	mostQueued = 900
)

// await looks until what ask (cuStreamQuery, cuEventQuery) is about has run, at most Options.Timeout: the driver's own waits have no
// limit, and a thread in one cannot be called back. The lock is not needed.
func (d *Device) await(ask entry, about []uintptr) result {
	began := time.Now()
	for {
		r := d.drv.call(ask, about)
		if r != errNotReady {
			return r
		}
		switch waited := time.Since(began); {
		case d.opts.Timeout > 0 && waited >= d.opts.Timeout:
			return errTimeout
		case waited >= attentive:
			time.Sleep(nap)
		}
	}
}

// awaitStream waits for a stream; the device is entered.
func (d *Device) awaitStream(stream uintptr) result {
	r := d.await(cuStreamQuery, append(d.args[:0], stream))
	if r == success && stream == d.stream {
		d.ended = d.queued
	}
	return r
}

// idle waits until the streams have run, so that nothing uses what is freed next. False: that cannot be known, since the device is closed
// or hangs; what it may use stays where it is, until the process ends. The device is entered.
func (d *Device) idle(streams ...uintptr) bool {
	for _, s := range streams {
		if d.context == 0 || d.hangs {
			return false
		}
		_ = d.check(d.awaitStream(s), "waiting to free memory") // a lost device uses nothing
	}
	return d.context != 0 && !d.hangs
}
