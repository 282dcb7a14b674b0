#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Builds a bench of many-row kernels. Usage: [LIBS=folder of libcudart_static.a] prefill.sh SOURCE OUTPUT [NVCC]
set -e
cd "$(dirname "$0")"
"${3:-nvcc}" -std=c++17 -O3 -I../../kernels/include -lineinfo -gencode=arch=compute_90a,code=sm_90a -Xcompiler -pthread -cudart static ${LIBS:+-L"$LIBS"} -o "$2" "$1"
