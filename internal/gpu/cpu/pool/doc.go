// SPDX-License-Identifier: MIT OR Apache-2.0

// Package pool runs parallel regions on a fixed set of workers with a barrier at the end of each: the CPU class's grid.
//
// Contract:
//
//  1. Run(n, task) calls task(i, worker) once for every i in [0, n), rising where one worker takes them, and returns when
//     all have returned. The caller is worker 0; a worker's number is in [0, Workers()) and no two tasks run at the same
//     time under one number, so it may index scratch.
//  2. Run does not allocate. One caller at a time; tasks do not call Run.
//  3. A panic in a task ends the region as usual and comes out of Run as *Panic.
//  4. Workers spin for a while after a region, so that the next one starts within a microsecond, then yield, then sleep: an
//     idle pool uses no processor. Run wakes the sleepers and starts without waiting for them: tasks go to whoever is there,
//     by one atomic counter, so a late or descheduled worker costs only its own share, and the caller alone (GOMAXPROCS=1)
//     finishes every region.
//  5. Close ends the workers and waits for them. Workers are goroutines that are not locked to threads: a locked one would
//     cost two thread switches whenever the runtime preempts it.
//
// How a region passes, with left the one word that all contend for:
//
//	caller                        worker
//	task, n, done = …             spin while left <= 0
//	left = n              ──────▶ i = n - left--  (owned when left was > 0)
//	take tasks like a worker      task(i)
//	spin until done == n  ◀────── done++
//
// Owning a task keeps the region open, so task and n are stable wherever they are read.
package pool
