// SPDX-License-Identifier: MIT OR Apache-2.0

// Package script is an exec.Runner whose model is a Go function, for tests of what stands above exec and for measuring its
// overhead. It is also a model checker of the step block.
//
// The runner keeps a fake memory: in each KV slot the token that was written there, its position and a running hash of the
// history up to it; in each state slot the running hash of the tokens it has seen. The next token is a function of the
// history as it is read back from the sequence's pages. So every use of a page or a slot that belongs to someone else, is
// stale, or was skipped shows as an error, or as another text than the function gives for the true history: what is
// chunked, batched, preempted or cached equals what is not by construction.
//
// Contract:
//
//  1. Run refuses a step that breaks the step block's contract or whose memory does not spell each sequence's history, with
//     diag.Internal and what is wrong.
//  2. The logits are Base everywhere but Peak at the next token, unless Options.Logits writes them.
//  3. A Drawer is a Runner that also draws and feeds tokens, with the CPU's sampler.
//  4. With Options.Trust nothing is checked and Next sees only the row's own token: for measurements.
package script
