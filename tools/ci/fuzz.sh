#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Fuzzes every target of the module for the given time each: tools/ci/fuzz.sh 5s
set -eu
time=${1:-5s}
go list ./... | while read -r pkg; do
  go test -list '^Fuzz' "$pkg" | grep '^Fuzz' | while read -r target; do
    echo "fuzz $pkg $target"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$pkg" </dev/null
  done
done
