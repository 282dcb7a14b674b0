// SPDX-License-Identifier: MIT OR Apache-2.0

// Package diag is the engine's word for "something is wrong": an error with a code, a public message, a position and a
// private cause.
//
// Contract:
//
//  1. The message is for whoever caused the error: it names the field, file or flag and says what was expected. It never
//     holds a secret, a Go type name or a stack.
//  2. The cause is for the operator's log. It is reachable with errors.Is and errors.As and printed only by Detail.
//  3. One table maps a code to an HTTP status and to the exit status of the process; nobody else decides either.
//  4. A position is a file and a 1-based line and column; related positions go into Notes.
package diag
