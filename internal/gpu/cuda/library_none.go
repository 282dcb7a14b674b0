// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build !linux || nocuda

package cuda

import "github.com/metrale/metrale/internal/diag"

// openDriver says that this build has no driver to open.
func openDriver(string) (*driver, error) {
	return nil, diag.Errorf(diag.Unsupported, "no CUDA driver: this binary was built without CUDA (tag nocuda, or not for Linux)")
}
