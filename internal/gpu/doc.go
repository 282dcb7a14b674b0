// SPDX-License-Identifier: MIT OR Apache-2.0

// Package gpu is the seam to what computes: devices, buffers, launches, streams. Three kinds stand behind it: cuda (the
// real one), cpu (executes the same plans with Go kernels; the reference), record (remembers and executes nothing).
//
// Contract:
//
//  1. Bind does all checking and may allocate; Stream.Launch does neither and returns at once or runs to the end, as the
//     device likes; Sync waits.
//  2. What varies from step to step is read from buffers, so a bound launch may be replayed forever.
//  3. A device is used by one goroutine at a time; but stages, Generate and Layout.Pack fill buffers while Alloc and Bind prepare launches.
//     Buffers are freed once; a use after Free panics in test builds.
//  4. Errors that lose the device have code diag.DeviceLost, and every later call returns the same. A device that does not end
//     its work may count as lost, too, so that nobody waits for ever.
package gpu
