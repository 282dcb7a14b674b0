// SPDX-License-Identifier: MIT OR Apache-2.0

// Package sched decides what the device computes next. It is pure: Step takes the time and what happened since the last
// step, and gives the next step's work as data. It knows no device, clock, lock or goroutine.
//
//	events ──► Step ──► Decision            Submit, Token, Cancel, Fail come in;
//	                      Work   ─► device   rows of tokens with their pages and state slot,
//	                      Ends   ─► streams  and what ended, started or was put back, go out.
//
// Every sequence has a history (prompt and generated tokens) of which the first `computed` tokens are in its pages and
// state. A step computes the next rows of some histories; when a step reaches the end of a history, the last row's logits
// give the next token. So a prefill chunk, a decode row and the recomputation of a preempted sequence are one thing.
//
// Policy: first come, first served, with continuous batching and chunked prefill.
//
//  1. Decode rows (one token to compute) of all running sequences come first, then prefill chunks of running sequences,
//     oldest first, then waiting ones start while rows, places, slots and pages are left. At most Rows rows in all, at
//     most Prefill of them in chunks.
//
//  2. A sequence starts when its whole history fits into free pages with one page left for each running sequence, or when
//     nothing runs. The first waiting one is never overtaken.
//
//  3. When a decode row needs a page and none is free, the youngest running sequence is put back at the head of the line
//     and loses its pages, of which at least one is taken at once: so it does not start again in that step.
//
//  4. Generated tokens are part of the history, so preemption computes them again and never changes them.
//
//  5. With Config.Ahead a step is decided while the one before runs. A token that is being drawn is part of the history as
//     Unknown: a row follows it, and what the token means, a stop above all, is found one step later. That row is then for
//     nothing; a length is known ahead and costs none. Tokens and text are the same.
//
//     step            1           2             3
//     work of A     prompt     row of t1     row of t2            t1, t2 as Unknown
//     Token event                 t1            t2 (a stop)       before the step after the next
//
// Contract:
//
//  1. Nothing is admitted that could never end alone: Check refuses it with diag.TooLong. With rule 3 the oldest sequence
//     advances in every step, so everything ends, whatever the pool's size.
//  2. Every running sequence is older than every waiting one.
//  3. An event about a sequence that has ended is ignored. A sequence ends once, in Ends, and owns nothing afterwards:
//     a canceled one from the next Step on.
//  4. Calling Step says that the last decision's work was done (Ahead: the last but one's) and that its tokens are among the
//     events; a sequence whose work failed comes as Fail.
//  5. What Step returns is valid until the next Step. Step does not allocate in steady state.
package sched
