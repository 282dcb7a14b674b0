#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The demo model end to end on one GPU: chats of the teacher, data, training, evaluation, export.
#   run.sh SmolLM2-135M-Instruct.Q4_1.gguf OUT [TEACHER_SECONDS TRAIN_SECONDS]
# The defaults are what the model in the binary had; on an H200 all of it takes under eleven minutes (the data card says what took how long).
# Needs PyTorch, Triton and a C compiler, gguf, tokenizers, safetensors, jinja2. With 0 seconds for the teacher, OUT/chats*.gz are used as they are.
set -euo pipefail
gguf=$1 out=$2 teach=${3:-125} train=${4:-270}
cd "$(dirname "$0")"
mkdir -p "$out"
export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-$out/compiled}
[ "$teach" = 0 ] || python3 teacher.py --gguf "$gguf" --seconds "$teach" --out "$out/chats.jsonl.gz"
python3 prepare.py --chats "$out/chats*.gz" --out "$out"
python3 train.py "$out" --seconds "$train"
python3 evaluate.py "$out"
python3 export.py "$out" --out "$out/checkpoints"
# What is worth keeping, in files below 16 MiB: the weights in bf16 in two parts, and everything else.
mkdir -p "$out/keep"
split -b 15000000 "$out/checkpoints/bf16/model.safetensors" "$out/keep/model.safetensors."
(cd "$out" && tar czf keep/rest.tar.gz ./*.json log.jsonl heldout.jsonl.gz evaluation.md curve.svg)
echo done
