// SPDX-License-Identifier: MIT OR Apache-2.0

// Package models embeds the model that every binary carries, so that met talks on a machine with no model and no network.
//
// Contract:
//
//  1. Demo is a checkpoint in Hugging Face's layout, as an fs.FS whose files are read where they lie in the binary.
//  2. A build from a tree without its weights works; Demo then holds what describes the model and no tensors.
//  3. Only the composition root (internal/cli) and tests import it; all others are handed the fs.FS.
package models
