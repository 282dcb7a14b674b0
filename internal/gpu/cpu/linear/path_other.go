// SPDX-License-Identifier: MIT OR Apache-2.0

package linear

var paths = []*kernels{goKernels}
