// SPDX-License-Identifier: MIT OR Apache-2.0

// Package kv decides who owns which KV page and which recurrent-state slot. It knows ids, never memory.
//
// A page holds the keys and values of page_size consecutive tokens, of every attention layer. A sequence reaches its pages
// through a table, in order of position; a page may stand in several tables when sequences begin with the same tokens:
//
//	table A   [ 7 | 2 | 5 ]        refs  page 7: 2   page 2: 2   page 5: 1   page 4: 1
//	table B   [ 7 | 2 | 4 ]        A and B share 32 tokens when page_size is 16
//
// Contract:
//
//  1. Every page is free with no reference or held with at least one; free + used = total. The same for slots, with one
//     holder each. A page is freed by the release of its last reference.
//  2. Shared pages are full and never written again: Share takes only whole pages, what follows is the sharer's own.
//  3. All or nothing: a call that cannot get all that it asks for takes nothing.
//  4. No allocation on the Go heap once tables have reached their largest size.
//  5. Misuse (double free, a page that is not held) panics in builds with the tag `invariants`, and is the caller's fault.
package kv
