// SPDX-License-Identifier: MIT OR Apache-2.0

// Package record holds the two devices that tests are made of: one that executes nothing and remembers what it was asked,
// and a wrapper that makes any device fail at a chosen call.
//
// Contract of Device:
//
//  1. Nothing is computed. Memory reads as zeros where nothing was written; only written pages exist, so a plan of any size
//     can be bound.
//  2. Print is stable: two runs that ask the same print the same, even if they pack weights concurrently. It shows every
//     buffer with what was packed into it, then every other call in order.
//  3. Misuse panics: freeing twice, touching freed memory, going past a buffer's end.
//
// Contract of Faults: the n-th call of an operation returns the error without reaching the device; others pass. An error
// with code diag.DeviceLost answers every later call too, as a real device would.
package record
