// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build !(linux || darwin || freebsd || netbsd || openbsd)

package weights

import (
	"errors"
	"os"
)

func mapFile(*os.File, int) ([]byte, error) { return nil, errors.ErrUnsupported }
func unmapFile([]byte)                      {}
func dropPages([]byte)                      {}
