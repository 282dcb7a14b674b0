// SPDX-License-Identifier: MIT OR Apache-2.0

// Package modelconf reads what a checkpoint says about itself: config.json, hf_quant_config.json, generation_config.json, or
// a GGUF file's metadata.
//
// Contract:
//
//  1. A file becomes a tree of Nodes that keeps every key, its order and its position, so that whoever classifies the keys
//     (a config map) can name file and line of one it does not know. Nothing is dropped and nothing is defaulted here.
//  2. JSON is read strictly: no duplicate keys, no trailing text, no lone surrogates, bounded depth. The only addition is
//     NaN, Infinity and -Infinity, which Python's json module writes.
//  3. What has one meaning in every checkpoint is typed: the quantisation scheme of each module (Quant) and the sampling
//     defaults (Generation). A quantisation key or value that is not understood refuses the checkpoint by name.
//  4. Absent and zero differ: optional numbers are pointers.
//  5. GGUF metadata is translated to the key names of config.json, so that above this package there is one kind of config.
package modelconf
