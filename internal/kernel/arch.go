// SPDX-License-Identifier: MIT OR Apache-2.0

package kernel

import (
	"strconv"
	"strings"

	"github.com/metrale/metrale/internal/diag"
)

// CheckArch says whether native code of an architecture runs on an NVIDIA device of that compute capability:
//
//	sm_90a   that capability only
//	sm_120f  its family: the same major, from that minor on
//	sm_80    the same major, from that minor on
//
// It is asked before anything is loaded.
func CheckArch(arch string, major, minor int) error {
	digits, ok := strings.CutPrefix(arch, "sm_")
	number, exact := strings.CutSuffix(digits, "a")
	number = strings.TrimSuffix(number, "f")
	n, err := strconv.Atoi(number)
	if !ok || err != nil {
		return diag.Errorf(diag.Unsupported, "code for %s runs on no NVIDIA device", arch)
	}
	if n/10 == major && (n%10 == minor || !exact && n%10 < minor) {
		return nil
	}
	return diag.Errorf(diag.Unsupported, "the kernels are compiled for %s; this device has compute capability %d.%d", arch, major, minor)
}
