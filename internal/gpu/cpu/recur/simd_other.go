// SPDX-License-Identifier: MIT OR Apache-2.0

package recur

import "github.com/metrale/metrale/internal/gpu/cpu/vec"

// step is one token of one head.
func step(_ vec.Level, s, y, q, k, v []float32, decay, beta float32) {
	stepGo(s, y, q, k, v, decay, beta)
}
