// SPDX-License-Identifier: MIT OR Apache-2.0

// Package sample draws the next token from a row of logits by a sequence's policy.
//
// Order of operations (vLLM's, so that its users get what they know):
//
//	logits
//	1. log-probabilities, when asked for, are of the logits as the model gave them
//	2. mask: tokens outside an allowed set, and banned ones (stop tokens before min_tokens), become -Inf
//	3. logit bias is added
//	4. repetition penalty, of tokens in prompt or text: l > 0 ? l/r : l*r
//	5. frequency penalty, of tokens in the text: l -= f*count; presence penalty: l -= p
//	6. temperature below 1e-5: the largest logit, of equal ones the lowest id. Otherwise x = (l - max) / temperature
//	7. top-n-sigma: l >= max - n*sigma, sigma the standard deviation of all finite logits
//	8. min-p: e^x >= min_p
//	9. top-k: the first k in order of (l falling, id rising)
//	10. top-p: of what is left, in that order, the shortest head whose share of the mass is at least p
//	11. one draw: of what is left, in that order, the first token at which the running sum of masses exceeds u * total
//
// The same seed and logits give the same token on every machine, also on a device that computes in another order:
//
//   - Masses are integers: e^x in units of 2^-44, by integer arithmetic (mass.go). Their sums have no order.
//   - Logits and x are float32, each operation rounded; sigma's sums are float64 in one tree (sigma.go). Nothing is fused.
//   - u is 64 bits of Philox4x32-10 (Salmon et al., SC 2011) with key = (low, high half of the seed) and counter = (low, high
//     half of the index of the generated token, 0, 0): word0 * 2^32 + word1, in units of 2^-64. u * total is rounded down, as
//     is p * total. So a draw depends on the seed, the index and the logits alone, never on the batch, on chunking or on
//     preemption.
//
// Contract:
//
//  1. Logits are only read. A row with a NaN or +Inf, or with nothing allowed, is an error of that sequence alone.
//  2. Nothing is ever a NaN or an infinity in what comes out; tokens of probability zero are not among the top.
//  3. No allocation in steady state; the work space is a Scratch, used by one goroutine at a time.
//  4. A token less than e^-30 times as likely as the best counts as impossible; a vocabulary has at most 2^19 tokens.
package sample
