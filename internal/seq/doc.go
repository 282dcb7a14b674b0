// SPDX-License-Identifier: MIT OR Apache-2.0

// Package seq holds the words that the scheduler, the sampler, the engine and the server share: a request for one
// sequence of tokens, how to sample it, and what comes back.
//
// Contract: plain data. A Request is checked by whoever builds it (api/*), so the bands below may trust it; it is never
// changed after it was handed to the engine.
package seq
