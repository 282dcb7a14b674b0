#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Runs the CUDA classes without a GPU: kernels compiled for the host behind the driver's interface.
#   tools/ci/cudahost.sh CUDA_INCLUDE WORK MET
# The kernels' own tests, plans of the fused ones, then every tiny checkpoint launch by launch against the CPU; one whose ops the class lacks is named.
# Last, a step that never ends: its request and the one beside it fail, and met ends with the status of a lost device.
set -euo pipefail
include=$1 work=$2 met=$3
root=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$work"
work=$(cd "$work" && pwd)
bash "$root/tools/cudahost/build.sh" "$include" "$work" hopper
library=$work/libcuda_host.so modules=$work/bin/hopper
(cd "$root" && go test -timeout 30m ./internal/gpu/cuda ./internal/exec ./internal/engine -args -cuda-library "$library" -modules "$modules")
(cd "$root" && go test -timeout 30m ./internal/cli -run TestFusedPlansOnTheDevice -args -cuda-library "$library" -modules "$modules")
for archive in "$root"/testdata/tiny/*.tar.gz "$root"/testdata/tiny/quantised/*.tar.gz; do
  name=$(basename "$archive" .tar.gz)
  rm -rf "$work/model"
  mkdir "$work/model"
  python3 "$root/tools/tiny/pack.py" --unpack "$archive" "$work/model"
  rm -f "$work/model/ref.safetensors"
  status=0
  "$met" circuit diff "$work/model" --device cuda --cuda-library "$library" --cuda-modules "$modules" --summary >"$work/diff" 2>&1 || status=$?
  case $status in
  0) echo "ok      $name" ;;
  6) echo "lacking $name: $(sed -n 's/.*no rule lowers/no rule lowers/p; /no circuit maps/p' "$work/diff" | cut -c1-120)" ;;
  *) echo "FAIL    $name" && cat "$work/diff" && exit 1 ;;
  esac
done

CUDAHOST_ENDLESS=5 "$met" serve demo --device cuda --cuda-library "$library" --cuda-modules "$modules" --device-timeout 2s --port 0 >"$work/serve" 2>&1 &
server=$!
until url=$(sed -n 's/^Listening on //p' "$work/serve") && [ -n "$url" ]; do
  kill -0 $server || { cat "$work/serve" && exit 1; }
  sleep 0.2
done
ask() { curl -s -m 60 -w '%{http_code}' "$url/v1/completions" -H 'Content-Type: application/json' -d "{\"prompt\": \"$1\", \"max_tokens\": 40}" >"$work/answer$2"; }
ask hello 1 & first=$!
ask world 2 || true
wait $first || true
status=0
wait $server || status=$?
for n in 1 2; do
  grep -q 'device_lost.*500$' "$work/answer$n" || { echo "FAIL    a step that never ends: $(cat "$work/answer$n")" && exit 1; }
done
grep -q 'is not done after 2s' "$work/serve" && [ $status = 70 ] || { echo "FAIL    a step that never ends: status $status" && cat "$work/serve" && exit 1; }
echo "ok      a step that never ends"
