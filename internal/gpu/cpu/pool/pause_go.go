// SPDX-License-Identifier: MIT OR Apache-2.0

//go:build !amd64 && !arm64

package pool

import "runtime"

func pause(int) { runtime.Gosched() }
