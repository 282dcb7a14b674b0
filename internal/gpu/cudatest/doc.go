// SPDX-License-Identifier: MIT OR Apache-2.0

// Package cudatest opens the CUDA device that a test runs on.
//
// Contract:
//
//  1. Only tests import it. They hand it the kernel tree. Where no device is, or none that a class is made for, or no code of that class in
//     the binary, the test is skipped.
//
//  2. It gives their binaries two flags, to run them without a GPU or with other modules than those embedded:
//
//     go test ./internal/exec -args -cuda-library libcuda_host.so -modules bin/hopper
package cudatest
