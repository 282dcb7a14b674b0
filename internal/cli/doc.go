// SPDX-License-Identifier: MIT OR Apache-2.0

// Package cli is the composition root: the verbs of met, and the only place where the parts meet.
//
// Contract:
//
//  1. Main parses, runs one verb and gives the exit status that diag assigns to its error; nothing else ends the process.
//  2. Verbs write to the streams that they were given. What a person asked for goes to stdout, progress and errors to stderr.
//  3. Environment variables are read in environment.go and nowhere else; docs/environment.md lists them.
//  4. A switch is a flag that is there or not; a value for it is refused.
package cli
