// SPDX-License-Identifier: MIT OR Apache-2.0

// Package telemetry holds the numbers that the engine counts while it works: counters, gauges and histograms, as plain
// structs of atomics.
//
// Contract:
//
//  1. Writing is a few atomic additions: no lock, no allocation, no name look-up. The zero value is ready.
//  2. Anyone may read at any time. Each number is exact; two numbers read one after the other may differ by a step.
//  3. Durations are nanoseconds inside; exporters, which live at the rim, choose names and units.
package telemetry
