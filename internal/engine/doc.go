// SPDX-License-Identifier: MIT OR Apache-2.0

// Package engine runs sequences on a device: the shell around the pure scheduler and sampler.
//
//	Submit ─► inbox ─┐                                     ┌─► Stream.Next
//	Cancel ─► inbox ─┤   one goroutine, the device thread   │
//	                 └─► sched.Step ─► publish ─► launch ─► land ─┐
//	                         ▲                                    │
//	                         └────── tokens, failures ────────────┘
//
// How tokens are drawn and when they come back is the router's:
//
//	host     Runner.Run gives logits, the sampler draws at once. Launching does everything.
//	device   an exec.Drawer draws. Sync: a step lands before the next is decided. Async: the next step is decided and launched
//	         while one runs (sched.Config.Ahead), and lands one turn later; rows are fed tokens that nobody has seen, a stop is
//	         found a step late, and what was computed behind it is dropped. The text is the same.
//
// Contract:
//
//  1. Only the device thread touches the Runner, from New to Close. It is locked to an OS thread where the device draws.
//     Nothing that a caller does, or fails to do, makes it wait: a stream holds at most max_tokens tokens and Next takes all
//     that are there. Where the host draws, it leaves its processor to the readers before each step: what a step gave is
//     received before the second step from then begins, however few processors Go has.
//  2. Submit refuses before any work: diag.Invalid, diag.TooLong, diag.Overloaded, diag.DeviceLost. A stream that it
//     returned always ends, with exactly one event that has Finish set.
//  3. When the context given to Submit ends or Close is called on the stream, everything that the sequence holds is free
//     before the second step from then begins.
//  4. An error of one row fails its sequence. An error or a panic of a step fails the sequences of that step. A lost device
//     fails everything, then and later.
//  5. An image is run through the tower before the first step that needs it, on the device thread, once for all sequences that
//     share it; its features are dropped when those are past it, and made again for one that is preempted.
//  6. In steady state a step allocates nothing; an idle engine uses no CPU. Two steps are under way at most.
package engine
