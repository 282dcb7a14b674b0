#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Makes the goldens of internal/chat again with jinja2 from PyPI and compares them with the committed ones.
#
#   sh tools/chat/ci.sh DIR     DIR is for the virtual environment and what is made; about 15 s
#
# Exits 1 if anything differs.
set -eu
dir=${1:?usage: ci.sh DIR}
here=$(cd "$(dirname "$0")" && pwd)
data=$here/../../testdata/chat

mkdir -p "$dir"
[ -x "$dir/venv/bin/python" ] || python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install --quiet --disable-pip-version-check 'jinja2>=3.1.6,<3.2'
"$dir/venv/bin/python" "$here/make_goldens.py" --out "$dir/goldens"

status=0
for f in goldens cases random; do
	# The texts are compared, not the archives: zlib may pack them differently.
	gzip -dc "$dir/goldens/$f.json.gz" >"$dir/new.json"
	gzip -dc "$data/$f.json.gz" >"$dir/committed.json"
	if ! cmp -s "$dir/committed.json" "$dir/new.json"; then
		echo "testdata/chat/$f.json.gz differs from what jinja2 renders:"
		diff "$dir/committed.json" "$dir/new.json" | head -n 40 || true
		status=1
	fi
done
[ $status = 0 ] && echo "chat goldens: as jinja2 renders them"
exit $status
