// SPDX-License-Identifier: MIT OR Apache-2.0

// Package circuit turns a checkpoint's config.json into the plan that runs it: the circuit is the model.
//
//	config.json ──config map──► point ──circuit, blocks──► Instance ──rules──► groups ──arena──► plan.Plan
//	              classify.go            instantiate.go               fuse.go           lower.go
//
// Contract:
//
//  1. There is no Go code per model family. An op is a row of Σ (sigma.go); how ops make a block, blocks a circuit, and
//     config keys a circuit's parameters is TOML in kernels/circuits; which kernels compute ops is the class's FUSIONS.toml.
//  2. Every key of a config.json is classified (dim, switch, param, variant, rope, kinds, accept, ignore), or the
//     checkpoint is refused by key, file and line before anything else happens.
//  3. An Instance is in single-assignment form: each edge is written by one node; names in TOML are rebound in order.
//  4. Edges carry named axes. An axis that is divided over devices is found by the dim in its name; an axis named as a sum
//     ("q + k + v") is divided term by term.
//  5. Lower resolves every weight against the checkpoint and reports all missing, mis-shaped and unexpected tensors in one
//     error. Every node ends in exactly one launch. Equal inputs give equal plans, byte for byte.
//  6. A model's decoder and its parts beside it (parts.go) are instances of one point, lowered one by one.
//  7. Reports (display, report, survey, venn, lab) read instances, plans and the library's texts, and change nothing.
//  8. Batches are ragged, so there is one mode: rules have no mode key, only row conditions and settings.
//
// The package is pure: it reads the kernel tree from an fs.FS that it is given, and nothing else.
package circuit
