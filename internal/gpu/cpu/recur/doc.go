// SPDX-License-Identifier: MIT OR Apache-2.0

// Package recur holds what runs along a sequence on slices of host memory: the short causal convolution, the gated delta rule
// and the state space scan of linear attention, and the pooling of windows that compressed attention caches.
//
// Contract:
//
//  1. A sequence's rows are taken in order, one by one, and its state is what the rows so far made it: any chunking gives
//     the same bits.
//  2. Channels of a convolution, columns of a delta state and heads of a scan are independent; callers may divide them.
//
// State of the convolution, the last kernel-1 inputs, oldest first (plans say [channels, kernel-1]; the order inside a slot is
// the class's own):
//
//	[kernel-1] [channels]
//
// State of the delta rule, per value head:
//
//	[k_dim] [v_dim]     S, so that v = Sᵀk
//
// State of the scan, per head (plans say [head_dim, state_dim]):
//
//	[state_dim] [head_dim]
//
// State of the pooling, running softmaxes of channels (Compress.Sums of them), so small whatever the window:
//
//	[sums] [3] [channels]     the largest gate, Σ exp(gate-top), Σ exp(gate-top)*value
package recur
