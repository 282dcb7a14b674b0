// SPDX-License-Identifier: MIT OR Apache-2.0

// Package kernel reads what the kernel tree says about hardware: device models (DEVICES.toml), hardware classes
// (HARDWARE.toml) and the kernels that a class has (KERNEL_FAMILIES.toml), with their arguments, attributes and numerics.
//
// Contract:
//
//  1. A manifest is data, read strictly from an fs.FS: an unknown key, a bad shape or a dangling name is an error that names
//     file and line.
//  2. Shapes are written in one small language: an axis is a name, which the first array that has it binds, or an
//     expression over bound names and attributes ("heads*head_dim"). Unify is the only reader of that language.
//  3. A class inherits families and kernels of the class it names; an entry of the same name replaces the parent's.
//  4. Numbers of a device are facts with a source; a speed that we measured is never one of them.
package kernel
