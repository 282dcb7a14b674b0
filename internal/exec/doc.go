// SPDX-License-Identifier: MIT OR Apache-2.0

// Package exec binds plans to a device: it loads weights into the layouts that kernels want, owns arena, state and step
// block, checks every launch against the plan's sizes, and runs steps.
//
// Contract:
//
//  1. Load either gives a Model that can run every step within its Limits, or an error that names the tensor, launch or
//     size at fault, with everything freed. Launches are bound while weights are on their way: they need only their places.
//     Weights go to a device with memory of its own in large windows that several cores fill (stages.go); random ones that it can
//     make itself, it makes (generate.go).
//
//  2. Run does not allocate on the Go heap in steady state.
//
//  3. A Model may have several parts (Step.Part). They share weights, arena, step block, states of one name, and ports: arrays
//     that outlive a step. A draft head reads what the decoder's last step left in a port; the host carries a vision tower's
//     features to the steps that need them (Encode, PutFeatures), so that nothing on the device belongs to a waiting prompt.
//
//  4. A Model is used by one goroutine at a time. Logits are valid until the next Run.
//
//  5. With Options.Sampling the device draws tokens: Start queues a step with Draws, Finish waits for the oldest one. Two may be
//     under way, and a row may be fed the token that the step before draws for its seat, so that the host sees tokens one step
//     late and the device never waits for it. Start, Finish and Run allocate nothing; they launch beside the plan:
//
//     sample_feed ─► plan's launches ─► sample_greedy or sample_draw ─► results        one graph per row bucket and need
//
// With a Mask the graph ends behind the plan, and the sampler follows when the mask is there.
package exec
