#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Makes sure that clang-19 and its linker are there: the compiler of AMD classes, from Debian's own packages.
set -eu
if command -v clang-19 >/dev/null && command -v ld.lld-19 >/dev/null; then exit 0; fi
as_root=""
[ "$(id -u)" = 0 ] || as_root=sudo
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq
$as_root apt-get install -y -qq --no-install-recommends clang-19 lld-19 >/dev/null
