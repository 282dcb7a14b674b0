#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Fuzzes every target of the module for a number of inputs each: tools/ci/fuzz.sh 20000
# A number and not a time: go test can take the end of its own time for a failure (golang/go#75804). The limit ends an input that never does.
set -eu
inputs=${1:-20000}
go list ./... | while read -r pkg; do
  go test -list '^Fuzz' "$pkg" | grep '^Fuzz' | while read -r target; do
    echo "fuzz $pkg $target"
    timeout 300 go test -run '^$' -fuzz "^$target\$" -fuzztime "${inputs}x" -fuzzminimizetime 100x "$pkg" </dev/null
  done
done
