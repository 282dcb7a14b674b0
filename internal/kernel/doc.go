// SPDX-License-Identifier: MIT OR Apache-2.0

// Package kernel reads the kernel tree: device models (DEVICES.toml), hardware classes (HARDWARE.toml), the kernels that a
// class has (KERNEL_FAMILIES.toml and a file per family), and targets: what is compiled for a class and for the models that have leaves in it.
//
//	Load ──► Tree: Classes ── kernels, launches, numerics          Check   rules over the whole tree
//	               Targets ── modules: source, flags, closure      Resolve checkpoint → target
//	               Devices                                         OpenCode target → native code, proven fresh
//
// Contract:
//
//  1. A manifest is data, read strictly from an fs.FS: an unknown key, a bad shape or a dangling name is an error that names
//     file and line.
//  2. Shapes are written in one small language: an axis is a name, which the first array that has it binds, or an
//     expression over bound names and attributes ("heads*head_dim"). Unify is the only reader of that language.
//  3. A class inherits families and kernels of the class it names; an entry of the same name replaces the parent's.
//  4. Numbers of a device are facts with a source; a speed that we measured is never one of them.
//  5. A target's sources come in layers: its leaf, its class's common, then those of each ancestor. Of two sources of one
//     module the nearer is taken, whole, and only if its layer declares the shadow with reason and measurement. A shadow
//     that hides nothing or equals what it hides, and a private copy of another source, are errors.
//  6. Code is keyed by the closure of what it was compiled from, and is not opened when the tree says otherwise.
package kernel
