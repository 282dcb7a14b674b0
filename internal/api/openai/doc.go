// SPDX-License-Identifier: MIT OR Apache-2.0

// Package openai is OpenAI's wire format for chat completions, completions and models, with the extra fields that vLLM's
// clients send: bytes to checked requests, and tokens to bytes.
//
//	body ─► DecodeChat, DecodeCompletion ─► *ChatRequest, *CompletionRequest ─► seq.Request
//	text.Piece ─► Renderer ─► chunks of a stream, or one answer
//
// Contract:
//
//  1. A body is decoded whole or refused with diag.Invalid (or Unsupported, for what is well-formed but not built), before
//     any work. Param is the path of the field in the client's spelling ("messages.0.content").
//  2. Numbers are within their documented ranges, ids within the vocabulary, texts valid UTF-8: what is behind may trust it.
//  3. null counts as left out. Fields that nobody knows are accepted and named in Unknown. Of fields given twice the last
//     counts. A lone surrogate in a string becomes U+FFFD.
//  4. Memory is bounded by a small multiple of the body, whatever is in it.
//  5. A Renderer writes an answer's pieces the same way streamed and whole, and never writes NaN or an infinity.
//
// The package knows no engine, no HTTP and no clock.
package openai
