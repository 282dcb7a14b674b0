// SPDX-License-Identifier: MIT OR Apache-2.0

// Package bench measures a model on a device: whole decode steps, and each kernel in its place in a step; and pieces of layers
// without a model, which PyTorch is measured on too.
//
// Contract:
//
//  1. Times are medians; every figure of a run stands beside the read sweep of the same run, by a kernel of ours that reads
//     memory once. Shares are of the bytes that a step (or launch) must read over that sweep.
//  2. A decode step is what serving does: the step block is written, the plan runs (recorded, where the device records), the
//     logits come to the host, and each sequence's next token is the likeliest one.
//  3. Weights may be invented: nothing here looks at what comes out, but that it is finite.
//  4. A piece of a layer (shapes.go) is a fragment of ops that the device's class lowers by its rules, as it would in a model. Where
//     several ways to have it exist, the fastest counts, and the report says what it does beyond. Repetitions are recorded
//     together. They work on the same arrays, so small ones stay in the cache, unless a number of MiB to rotate over is given;
//     256 experts are larger than caches anyway.
//  5. A shape whose quantised matrices no kernel reads as they are stored has no time, but the reason.
//  6. A prefill is one prompt from its first step to its first token; its share is of a large product of bf16 matrices by our
//     kernels in the same run. Kernels of a prompt's step are measured in their places, a few of each. A cold start begins with a checkpoint in the page cache and is reported phase by phase.
//  7. Reports print as a table or as JSON with the same fields.
package bench
