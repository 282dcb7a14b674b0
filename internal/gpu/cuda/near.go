// SPDX-License-Identifier: MIT OR Apache-2.0

package cuda

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"unsafe"
)

// processorsBy lists the processors on the device's side of a machine of several memories, as sysfs tells; none where there is but one,
// or nothing is told.
func (d *Device) processorsBy(sys fs.FS) []int {
	v := new([3]int32)
	for i, a := range []uintptr{attrPCIDomain, attrPCIBus, attrPCIDevice} {
		if d.drv.do(cuDeviceGetAttribute, uintptr(unsafe.Pointer(&v[i])), a, uintptr(d.found.handle)) != success {
			return nil
		}
	}
	node, err := fs.ReadFile(sys, fmt.Sprintf("bus/pci/devices/%04x:%02x:%02x.0/numa_node", v[0], v[1], v[2]))
	number, err2 := strconv.Atoi(strings.TrimSpace(string(node)))
	if err != nil || err2 != nil || number < 0 {
		return nil
	}
	list, err := fs.ReadFile(sys, fmt.Sprintf("devices/system/node/node%d/cpulist", number))
	if err != nil {
		return nil
	}
	return parseProcessors(strings.TrimSpace(string(list)))
}

// parseProcessors reads sysfs's "0-3,8,10-11"; nil for anything else.
func parseProcessors(s string) (list []int) {
	for _, part := range strings.Split(s, ",") {
		low, high, ranged := strings.Cut(part, "-")
		if !ranged {
			high = low
		}
		a, err := strconv.Atoi(low)
		b, err2 := strconv.Atoi(high)
		if err != nil || err2 != nil || a < 0 || b < a || b >= 1<<16 {
			return nil
		}
		for ; a <= b; a++ {
			list = append(list, a)
		}
	}
	return list
}
