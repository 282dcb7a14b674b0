// SPDX-License-Identifier: MIT OR Apache-2.0

// Package server speaks HTTP: routes, credentials, limits, event streams, health and metrics over one model.
//
//	loading ──Ready──► ready ──Shutdown──► draining ──► closed
//	 503 but for health     every route           503 for new work, running answers end
//
// A request that generates goes through exchange (exchange.go), a handler of its route, and a job (job.go), which submits
// one sequence per choice to the engine and carries their tokens to a sink: an event stream or one answer.
//
// Contract:
//
//  1. Everything that can be wrong with a request is answered before the first byte of a stream, as OpenAI's error object
//     with the status that diag assigns. A panic is answered too, and cuts an answer that has begun.
//  2. Whatever ends a request, its sequences end with it: closing the connection frees them within two steps of the engine.
//  3. A slow client costs memory for its own body and answer only, and is cut off when it takes nothing for WriteTimeout. Nobody
//     can hold a connection without sending a request for longer than HeaderTimeout or IdleTimeout. The bodies of all requests,
//     half sent ones too, and their images are bounded.
//  4. Reading a body, rendering, tokenising and decoding images never happen on the engine's thread.
//  5. The bytes of a stream depend on its tokens only, not on how fast they came: a chunk per token that brings text.
//  6. After Shutdown no handler runs and no goroutine of the package is left, also when the answers did not end in time.
package server
