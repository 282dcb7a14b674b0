// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build !amd64

package linear

var paths = []*kernels{goKernels}
