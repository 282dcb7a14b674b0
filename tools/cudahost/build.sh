#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
# Compiles a class's kernels for the host, to run and test them without a GPU:
#   tools/cudahost/build.sh CUDA_INCLUDE OUT CLASS [FAMILY/NAME …]
# makes OUT/libcuda_host.so (pass it as the CUDA library) and OUT/bin/CLASS/<family>.<name>.cubin: of all modules, and of no others, unless
# some are named. Sources are the class's and its ancestors', nearest first, as kbuild takes them.
set -euo pipefail
cuda=$1 out=$2 class=$3
shift 3
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../kernels" && pwd)
[ $# -gt 0 ] || rm -rf "$out/bin/$class"
mkdir -p "$out/bin/$class" "$out/obj"
out=$(cd "$out" && pwd)
cxx="g++ -std=c++17 -O2 -mavx2 -mfma -fPIC -w -Wno-psabi -I$cuda -I$root/include -I$root"

# stale FILE SOURCE…: FILE is not there, or older than one of its sources, a header or this script.
stale() { [ ! -e "$1" ] || [ -n "$(find "${@:2}" -newer "$1" -print -quit; find "$here" "$root"/*/ -name "*.*h*" -newer "$1" -print -quit)" ]; }

if stale "$out/libcuda_host.so" "$here"/*.cpp; then
  $cxx -shared -include "$here/cuda_host.h" "$here/block.cpp" "$here/driver.cpp" -o "$out/libcuda_host.so" -ldl -pthread
fi

one() {
  local src=$1 name=$2 so="$out/obj/$2.so" text="$out/obj/$2.cpp"
  if stale "$so" "$src"; then
    # Dynamic shared memory is a pointer here; entries are found by the word that __global__ became. A module has its static one for itself,
    # that of inline functions too (-fno-gnu-unique).
    $cxx -x c++ -E -include "$here/cuda_host.h" -I"$(dirname "$src")" "$src" |
      sed -E 's/extern static thread_local +(alignas\([0-9]+\) +)?((unsigned +)?[A-Za-z_0-9:]+) +([A-Za-z_0-9]+)\[\];/\2* \4 = static_cast<\2*>(::cudahost::cudahost_place()->shared);/g' >"$text.i"
    { sed 's/METRALE_ENTRY/ /g' "$text.i"
      grep -oE 'METRALE_ENTRY +void +[A-Za-z_0-9]+' "$text.i" | awk '{print $3}' | sort -u |
        awk '{printf "static cudahost::Kernel<%s> register_%s(\"%s\");\n", $1, $1, $1}'
    } >"$text"
    $cxx -fno-gnu-unique -fpreprocessed -shared "$text" -o "$so" -L"$out" -l:libcuda_host.so -Wl,-rpath,"$out"
    rm "$text.i"
  fi
  printf 'METRALE-HOST %s\n' "$so" >"$out/bin/$class/$name.cubin"
}

declare -A done=()
c=$class
while [ -n "$c" ]; do
  for src in "$root/$c"/common/*/*.cu; do
    [ -e "$src" ] || continue
    family=$(basename "$(dirname "$src")") file=$(basename "$src" .cu)
    [ -z "${done[$family/$file]:-}" ] || continue
    done[$family/$file]=1
    if [ $# -gt 0 ] && [[ " $* " != *" $family/$file "* ]]; then continue; fi
    one "$src" "$family.$file"
  done
  c=$(sed -nE 's/^inherits *= *"(.*)"/\1/p' "$root/$c/HARDWARE.toml")
done
