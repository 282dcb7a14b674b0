#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# From git clone to the first streamed token, in seconds, on a machine that has Go, git and curl.
#   first_token.sh [REPOSITORY]      default: the repository that this script lies in
# Clones into an empty folder, builds with empty build and module caches, serves the model in the binary, asks it once.
set -euo pipefail
repository=${1:-$(cd "$(dirname "$0")/../.." && pwd)}
case $repository in /*) repository=file://$repository ;; esac # so that --depth holds
work=$(mktemp -d)
server=
finish() {
  [ -z "$server" ] || kill "$server" 2>/dev/null || true
  chmod -R u+w "$work" # Go's module cache is read-only
  rm -rf "$work"
}
trap finish EXIT

now() { date +%s%N; }
begun=$(now) last=$begun
report() { # NAME
  local t
  t=$(now)
  awk -v name="$1" -v ns=$((t - last)) 'BEGIN { printf "%-12s %7.2f s\n", name, ns / 1e9 }'
  last=$(now)
}

git clone -q --depth 1 "$repository" "$work/metrale"
report clone
cd "$work/metrale"
export CGO_ENABLED=0 GOCACHE=$work/cache GOMODCACHE=$work/modules
go mod download
report modules
go build -o met ./cmd/met
report build

port=${PORT:-18890}
: >"$work/out"
HF_HUB_OFFLINE=1 ./met serve --port "$port" </dev/null >"$work/out" 2>"$work/log" &
server=$!
until grep -q '^Listening' "$work/out"; do
  kill -0 "$server" 2>/dev/null || { cat "$work/log" >&2; exit 1; }
  sleep 0.01
done
report start
curl -sN "http://127.0.0.1:$port/v1/chat/completions" -H 'Content-Type: application/json' \
  -d '{"messages": [{"role": "user", "content": "Tell me about rain."}], "stream": true, "max_tokens": 64}' | {
  grep -m 1 '"content":"[^"]' >"$work/first" # ends with the first token that has text
  report 'first token'
  cat >/dev/null
}
[ -s "$work/first" ] || { echo "no token came" >&2; exit 1; }
awk -v ns=$(($(now) - begun)) 'BEGIN { printf "%-12s %7.2f s\n", "in all", ns / 1e9 }'
