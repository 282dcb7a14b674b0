// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda

import (
	"os"

	"golang.org/x/sys/unix"
)

// Near keeps the calling thread on the processors by the device, of those that it may use: what it touches first lies in the memory
// that the device copies from fastest. It says whether there are such.
func (d *Device) Near() bool {
	var allowed, near unix.CPUSet
	if unix.SchedGetaffinity(0, &allowed) != nil {
		return false
	}
	for _, cpu := range d.processorsBy(os.DirFS("/sys")) {
		if allowed.IsSet(cpu) {
			near.Set(cpu)
		}
	}
	return near.Count() > 0 && near != allowed && unix.SchedSetaffinity(0, &near) == nil
}
