// Writes of values to the cache, which stores them transposed. In long steps a warp handles up to
// kWindow adjacent tokens of a head, whose values of one column are 32 contiguous bytes. Device
// code only.
#pragma once

#include "backends/gpu_llm/kernels/attention/rope_cache.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::rope {

constexpr int kWindow = 16;  // rows of values a warp handles at a time

__device__ __forceinline__ void Unpack4(uint2 packed, float* values) {
  values[0] = LowBf16(packed.x), values[1] = HighBf16(packed.x);
  values[2] = LowBf16(packed.y), values[3] = HighBf16(packed.y);
}

// Loads four columns of the value of a row and head, with the bias.
template <int kHeadDim>
__device__ __forceinline__ uint2 LoadValue(const RopeWriteParams& p, int64_t row, int kv_head,
                                           int column) {
  const int head = p.num_heads + p.num_kv_heads + kv_head;
  const uint2 packed =
      *reinterpret_cast<const uint2*>(p.qkv + (row * RowHeads(p) + head) * kHeadDim + column);
  if (p.bias == nullptr) return packed;
  float values[4], biases[4];
  Unpack4(packed, values);
  Unpack4(*reinterpret_cast<const uint2*>(p.bias + head * kHeadDim + column), biases);
#pragma unroll
  for (int i = 0; i < 4; ++i) values[i] += biases[i];
  return {PackBf16(values[0], values[1]), PackBf16(values[2], values[3])};
}

// Bits of value `i` of four.
__device__ __forceinline__ uint32_t ValueBits(uint2 packed, int i) {
  return (i < 2 ? packed.x : packed.y) >> (i % 2 * 16) & 0xffffu;
}

// Stores four columns of a token's value.
template <int kHeadDim>
__device__ __forceinline__ void StoreValue(char* head, int token, int column, uint2 packed) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    char* to = head + TileBytes(kHeadDim) + ValueOffset<kHeadDim>(token, column + i);
    *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>(ValueBits(packed, i));
  }
}

// Writes the value of one row and head.
template <int kHeadDim, bool kIsQuantized>
__device__ void WriteValue(const RopeWriteParams& p, int64_t row, int slot, int kv_head) {
  constexpr int kQuads = kHeadDim / 4, kPerLane = (kQuads + 31) / 32;
  const int lane = threadIdx.x % 32, token = slot % kBlockTokens;
  uint2 packed[kPerLane] = {};
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    if (i * 32 + lane < kQuads)
      packed[i] = LoadValue<kHeadDim>(p, row, kv_head, 4 * (i * 32 + lane));
  }
  char* head = HeadOf<kHeadDim>(p, slot, kv_head);
  float inverse = 0.0f;
  if constexpr (kIsQuantized) {
    float max_magnitude = 0.0f;
#pragma unroll
    for (const uint2 four : packed) {
      float values[4];
      Unpack4(four, values);
#pragma unroll
      for (const float value : values) max_magnitude = fmaxf(max_magnitude, fabsf(value));
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      max_magnitude = fmaxf(max_magnitude, __shfl_xor_sync(0xffffffffu, max_magnitude, distance));
    inverse = WriteScale<kHeadDim, false>(p, slot, kv_head, max_magnitude, lane == 0);
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int column = 4 * (i * 32 + lane);
    if (column >= kHeadDim) break;
    if constexpr (kIsQuantized) {
      float values[4];
      Unpack4(packed[i], values);
      char* to =
          head + QuantizedTileBytes(kHeadDim) + QuantizedValueOffset<kHeadDim>(token, column);
      *reinterpret_cast<uint32_t*>(to) = Encode4(values, inverse, p.format);
    } else {
      StoreValue<kHeadDim>(head, token, column, packed[i]);
    }
  }
}

// Writes the values of rows [row, row + count) of one head. Their slots are consecutive and do not
// cross a multiple of kWindow.
template <int kHeadDim>
__device__ void WriteValues(const RopeWriteParams& p, int64_t row, int count, int slot,
                            int kv_head) {
  char* head = HeadOf<kHeadDim>(p, slot, kv_head);
  const int first = slot % kWindow, token = slot % kBlockTokens - first;
  for (int column = threadIdx.x % 32 * 4; column < kHeadDim; column += 128) {
    uint2 packed[kWindow];
#pragma unroll
    for (int i = 0; i < kWindow; ++i) {
      packed[i] = {};
      if (i >= first && i < first + count)
        packed[i] = LoadValue<kHeadDim>(p, row + i - first, kv_head, column);
    }
#pragma unroll
    for (int chunk = 0; chunk < kWindow; chunk += 8) {
      const bool is_whole = first <= chunk && chunk + 8 <= first + count;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (is_whole) {
          uint32_t pairs[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            pairs[i] = ValueBits(packed[chunk + 2 * i], j) | ValueBits(packed[chunk + 2 * i + 1], j)
                                                                 << 16;
          }
          char* to = head + TileBytes(kHeadDim) + ValueOffset<kHeadDim>(token + chunk, column + j);
          *reinterpret_cast<uint4*>(to) = {pairs[0], pairs[1], pairs[2], pairs[3]};
          continue;
        }
#pragma unroll
        for (int i = chunk; i < chunk + 8; ++i) {
          if (i < first || i >= first + count) continue;
          char* to = head + TileBytes(kHeadDim) + ValueOffset<kHeadDim>(token + i, column + j);
          *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>(ValueBits(packed[i], j));
        }
      }
    }
  }
}

// Writes the values of rows first + i whose bit i is set in `isolated_rows`; none has an adjacent
// row in the cache. Lane i + 1 has the slot of row i.
template <int kHeadDim>
__device__ void WriteIsolatedRows(const RopeWriteParams& p, int64_t first, uint32_t isolated_rows,
                                  int slot, int kv_head) {
  for (int turn = 0; turn < (kHeadDim + 127) / 128; ++turn) {
    const int column = (turn * 32 + static_cast<int>(threadIdx.x) % 32) * 4;
    uint2 packed[kWindow];
#pragma unroll
    for (int i = 0; i < kWindow; ++i) {
      packed[i] = {};
      if ((isolated_rows >> i & 1) != 0 && column < kHeadDim)
        packed[i] = LoadValue<kHeadDim>(p, first + i, kv_head, column);
    }
#pragma unroll
    for (int i = 0; i < kWindow; ++i) {
      const int to = __shfl_sync(0xffffffffu, slot, i + 1);
      if ((isolated_rows >> i & 1) == 0 || column >= kHeadDim) continue;
      StoreValue<kHeadDim>(HeadOf<kHeadDim>(p, to, kv_head), to % kBlockTokens, column, packed[i]);
    }
  }
}

// Writes the runs of consecutive slots that begin in the warp's window.
template <int kHeadDim>
__device__ void WriteWindow(const RopeWriteParams& p, int64_t first, int kv_head) {
  // The lane checks row first - 1 + lane. The last run may extend beyond the window.
  const int lane = threadIdx.x % 32;
  const int64_t checked_row = first - 1 + lane;
  const int slot = checked_row >= 0 && checked_row < p.num_rows ? p.cache_slots[checked_row] : -2;
  const int before = __shfl_up_sync(0xffffffffu, slot, 1);
  const int after = __shfl_down_sync(0xffffffffu, slot, 1);
  const auto follows = [](int next, int one) { return next == one + 1 && next % kWindow != 0; };
  const bool begins =
      lane >= 1 && lane <= kWindow && slot >= 0 && !(before >= 0 && follows(slot, before));
  const bool is_isolated = begins && !follows(after, slot);
  const uint32_t isolated_rows = __ballot_sync(0xffffffffu, is_isolated) >> 1;
  uint32_t runs = __ballot_sync(0xffffffffu, begins && !is_isolated) >> 1;
  WaitForPrevious();
  if (isolated_rows != 0) WriteIsolatedRows<kHeadDim>(p, first, isolated_rows, slot, kv_head);
  for (; runs != 0; runs &= runs - 1) {
    const int from = __ffs(static_cast<int>(runs));  // the lane
    const int begin = __shfl_sync(0xffffffffu, slot, from);
    int count = 1;
    while (from + count < 32 &&
           follows(__shfl_sync(0xffffffffu, slot, from + count), begin + count - 1)) {
      ++count;
    }
    WriteValues<kHeadDim>(p, first + from - 1, count, begin, kv_head);
  }
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::rope
