// SPDX-License-Identifier: MIT OR Apache-2.0

// Package hub brings checkpoints from the Hugging Face Hub (or a mirror that speaks its API) to this machine, into the cache
// that Hugging Face's own tools use, so that either finds what the other has fetched:
//
//	<cache>/models--org--name/blobs/<etag>                     contents: SHA-256 of large files, git's SHA-1 of small ones
//	                          blobs/<etag>.incomplete          a download to be resumed
//	                          snapshots/<commit>/<file>        relative link to ../../blobs/<etag>
//	                          refs/<revision>                  the commit that a branch or tag was seen at
//	<cache>/.locks/models--org--name/<etag>.lock               flock(2) of whoever writes the blob
//
// Contract:
//
//  1. Resolve returns a snapshot folder that has every wanted file, or an error that says which one and why. It is safe to
//     call from several processes at once.
//  2. A blob appears under its name only complete and with the right size and checksum. What was cut is resumed (Range), in
//     the same call and in later ones.
//  3. Only wanted files are fetched: configuration, tokenizer, templates and weights as safetensors, or one GGUF file.
//     Scripts, pickles and other formats are not. File names that could leave the snapshot folder are refused.
//  4. The token is sent to the endpoint's host and to no other, whatever redirects say, and stands in no message.
//  5. Answers 5xx and 429, timeouts and cut connections are tried again with growing pauses; other answers are not.
//  6. Offline, and when the endpoint cannot be reached, what is complete in the cache is used as it is.
//
// Environment variables that are honoured are listed at ReadEnv, and read nowhere else.
package hub
