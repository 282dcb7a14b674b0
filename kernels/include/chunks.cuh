// SPDX-License-Identifier: MIT OR Apache-2.0
// Where chunks of a step's sequences lie: a sequence has places from cu_rows[i]/Rows + i on, which are enough for its chunks of Rows.
#pragma once

#include <cstdint>

namespace chunks {

// sequence_at is the sequence that a place belongs to.
template <int Rows>
__device__ __forceinline__ int sequence_at(int place, const int32_t* cu_rows, int seqs) {
  int low = 0, high = seqs - 1;
  while (low < high) {
    const int mid = (low + high + 1) / 2;
    if (cu_rows[mid] / Rows + mid <= place) low = mid;
    else high = mid - 1;
  }
  return low;
}

}  // namespace chunks
