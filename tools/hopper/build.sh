#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds the bench. Usage: [LIBS=folder of libcudart_static.a] build.sh OUTPUT [NVCC]
set -e
cd "$(dirname "$0")"
"${2:-nvcc}" -std=c++17 -O3 -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xcompiler -pthread -cudart static ${LIBS:+-L"$LIBS"} -o "$1" bench.cu
