#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# The demo model end to end on one GPU: chats of the teacher, training, evaluation, export.
#   run.sh SmolLM2-135M-Instruct.Q4_1.gguf OUT [TEACHER_SECONDS TRAIN_SECONDS]
# Needs PyTorch, Triton, gguf, tokenizers, safetensors, jinja2. With 0 seconds for the teacher, OUT/chats.jsonl.gz is used as it is.
set -euo pipefail
gguf=$1 out=$2 teach=${3:-170} train=${4:-330}
cd "$(dirname "$0")"
mkdir -p "$out"
[ "$teach" = 0 ] || python3 teacher.py --gguf "$gguf" --seconds "$teach" --out "$out/chats.jsonl.gz"
python3 train.py --chats "$out/chats.jsonl.gz" --seconds "$train" --out "$out"
python3 evaluate.py "$out" >"$out/evaluation.md"
python3 export.py "$out" --out "$out/checkpoints"
