// SPDX-License-Identifier: MIT OR Apache-2.0

// Package text turns the tokens of one sequence into the text that its client gets: streaming decode, stop strings, and
// which token made which part of the text. Every wire format stands on it.
//
//	token ─► Decoder ─► matcher ─────────► Piece{Text, Tokens}
//	          holds what    holds what may still
//	          is no whole   become a stop string
//	          character
//
// Contract:
//
//  1. The pieces' texts joined do not depend on how tokens were grouped into events, and each is UTF-8 by itself.
//  2. A text ends before the stop string that is complete first; of several that end at the same byte, the longest. Nothing
//     of it ever leaves, unless IncludeStop says that all of it does.
//  3. A token leaves with the piece that completes its text, so pieces and tokens joined say the same. Of a text that a
//     stop string cut, tokens that begin before the cut are there.
//  4. Pure: no clock, no lock, no goroutine.
package text
