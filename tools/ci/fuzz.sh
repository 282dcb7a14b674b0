#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Fuzzes every target of the module for a number of inputs each: tools/ci/fuzz.sh 20000
# A number and not a time: go test can take the end of its own time for a failure (golang/go#75804). The limit ends an input that never does.
set -eu
inputs=${1:-20000}
packages=$(go list ./...)
for package in $packages; do
  tests=$(go test -list '^Fuzz' "$package") # beside a line on the package
  for target in $(printf '%s\n' "$tests" | sed -n '/^Fuzz/p'); do
    echo "fuzz $package $target"
    timeout 600 go test -run '^$' -fuzz "^$target\$" -fuzztime "${inputs}x" -fuzzminimizetime 100x "$package" </dev/null
  done
done
