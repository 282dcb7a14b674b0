// SPDX-License-Identifier: MIT OR Apache-2.0

// Package recur holds the two recurrences of linear attention on slices of host memory: the short causal convolution and
// the gated delta rule.
//
// Contract:
//
//  1. A sequence's rows are taken in order, one by one, and its state is what the rows so far made it: any chunking gives
//     the same bits.
//  2. Channels of a convolution and columns of a delta state are independent; callers may divide them.
//
// State of the convolution, the last kernel-1 inputs, oldest first (plans say [channels, kernel-1]; the order inside a slot is
// the class's own):
//
//	[kernel-1] [channels]
//
// State of the delta rule, per value head:
//
//	[k_dim] [v_dim]     S, so that v = Sᵀk
package recur
