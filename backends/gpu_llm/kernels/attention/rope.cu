// A head is spread over head_dim / 16 lanes. A lane has two pieces of eight neighbouring columns,
// 16 bytes each, which rotate with each other, and the angles of its columns for all heads of a
// row; so one pass of a warp is several heads. Values lie transposed in the cache: in long steps a
// warp takes up to 16 neighbouring tokens of a head, whose values of one column are 32 bytes that
// lie together.
#include <algorithm>

#include "gpu_llm/kernels/attention/cache_layout.h"
#include "gpu_llm/kernels/attention/rope.h"
#include "gpu_llm/kernels/device/byte_format.cuh"
#include "gpu_llm/kernels/device/device.cuh"
#include "gpu_llm/kernels/device/launch.h"

namespace nereid::gpu {
namespace {

constexpr int kWarps = 8;
constexpr int kPieceColumns = 8;  // 16 bytes
constexpr int kLongPasses = 5;    // of a warp in long steps, at most
constexpr int kLongStep = 512;    // rows; in short ones a warp has one pass or one value
constexpr int kWindow = 16;       // rows of values a warp takes at a time

template <int kHeadDim>
struct HeadLanes {
  static constexpr int kCount = kHeadDim / (2 * kPieceColumns);
  static constexpr int kHeads = 32 / kCount;  // of a pass; lanes may be left over

  // Of a head's lanes, known to all of them; the whole warp calls.
  template <typename Join>
  static __device__ __forceinline__ float Reduce(float value, Join join) {
    if constexpr ((kCount & (kCount - 1)) == 0) {
#pragma unroll
      for (int distance = kCount / 2; distance > 0; distance /= 2)
        value = join(value, __shfl_xor_sync(0xffffffffu, value, distance));
      return value;
    } else {
      const int first = static_cast<int>(threadIdx.x) % 32 / kCount * kCount;
      float all = __shfl_sync(0xffffffffu, value, first);
#pragma unroll
      for (int i = 1; i < kCount; ++i)
        all = join(all, __shfl_sync(0xffffffffu, value, min(first + i, 31)));
      return all;
    }
  }
};

__device__ __forceinline__ void Unpack4(uint2 packed, float* values) {
  values[0] = LowBf16(packed.x), values[1] = HighBf16(packed.x);
  values[2] = LowBf16(packed.y), values[3] = HighBf16(packed.y);
}

__device__ __forceinline__ int RowHeads(const RopeWriteParams& p) {
  return p.num_heads + 2 * p.num_kv_heads;
}

template <int kHeadDim>
__device__ __forceinline__ char* HeadOf(const RopeWriteParams& p, int slot, int kv_head) {
  return static_cast<char*>(p.cache) +
         (int64_t{slot / kBlockTokens} * p.num_kv_heads + kv_head) * HeadBytes(kHeadDim, p.format);
}

// A key's or value's factor, known to all who hold a part of it; `greatest`: its greatest
// magnitude.
template <int kHeadDim, bool kIsKey>
__device__ __forceinline__ float WriteFactor(const RopeWriteParams& p, int slot, int kv_head,
                                             float greatest, bool writes) {
  const float factor = greatest / GreatestCode(p.format);
  if (writes) {
    char* factors = HeadOf<kHeadDim>(p, slot, kv_head) + ByteScalesOffset(kHeadDim);
    reinterpret_cast<float*>(factors)[slot % kBlockTokens + (kIsKey ? 0 : kBlockTokens)] = factor;
  }
  return factor > 0.0f ? 1.0f / factor : 0.0f;
}

// What a lane has of one head.
struct Pieces {
  int low, high;  // first columns
  float values[2][kPieceColumns];

  __device__ __forceinline__ int column(int piece, int i) const {
    return (piece == 0 ? low : high) + i;
  }
};

// Where the halves that rotate with each other do not begin with whole pieces: the other value of
// each column is read again. The head is not written before all have read.
template <int kHeadDim>
__device__ void RotateColumns(const RopeWriteParams& p, int64_t row, int head, const bf16* norm,
                              float scale, Pieces& pieces) {
  const int half = p.rope_dim / 2;
  const float2* cos_sin = p.cos_sin + int64_t{p.positions[row]} * half;
  const bf16* from = p.qkv + (row * RowHeads(p) + head) * kHeadDim;
#pragma unroll
  for (int piece = 0; piece < 2; ++piece) {
#pragma unroll
    for (int i = 0; i < kPieceColumns; ++i) {
      const int column = pieces.column(piece, i);
      if (column >= p.rope_dim) continue;
      const bool is_first = column < half;
      const int at = is_first ? column + half : column - half;
      float other = __bfloat162float(from[at]);
      if (p.bias != nullptr) other += __bfloat162float(p.bias[head * kHeadDim + at]);
      if (norm != nullptr) other *= scale * __bfloat162float(norm[at]);
      const float2 rotation = cos_sin[is_first ? column : at];
      float& value = pieces.values[piece][i];
      value = value * rotation.x + (is_first ? -other : other) * rotation.y;
    }
  }
}

// A query to where it came from, a key to the cache. The whole warp calls; `is_there`: for real.
template <int kHeadDim, bool kIsInBytes>
__device__ __forceinline__ void StoreHead(const RopeWriteParams& p, int64_t row, int slot, int head,
                                          const Pieces& pieces, bool is_there) {
  const bool is_query = head < p.num_heads;
  const int kv_head = head - p.num_heads;
  float inverse = 0.0f;
  if constexpr (kIsInBytes) {
    float greatest = 0.0f;
#pragma unroll
    for (const auto& piece : pieces.values) {
#pragma unroll
      for (const float value : piece) greatest = fmaxf(greatest, fabsf(value));
    }
    greatest = HeadLanes<kHeadDim>::Reduce(greatest, [](float a, float b) { return fmaxf(a, b); });
    const bool is_key = is_there && !is_query && slot >= 0;
    if (is_key) inverse = WriteFactor<kHeadDim, true>(p, slot, kv_head, greatest, pieces.low == 0);
  }
  if (!is_there || (!is_query && slot < 0)) return;
  const int token = slot % kBlockTokens;
#pragma unroll
  for (int piece = 0; piece < 2; ++piece) {
    const int column = pieces.column(piece, 0);
    const float(&values)[kPieceColumns] = pieces.values[piece];
    if (is_query) {
      bf16* to = p.qkv + (row * RowHeads(p) + head) * kHeadDim + column;
      *reinterpret_cast<uint4*>(to) = Pack8(values);
    } else if constexpr (kIsInBytes) {
      char* to = HeadOf<kHeadDim>(p, slot, kv_head) + ByteKeyOffset<kHeadDim>(token, column);
      const float first[4] = {values[0], values[1], values[2], values[3]};
      const float second[4] = {values[4], values[5], values[6], values[7]};
      *reinterpret_cast<uint2*>(to) = {Encode4(first, inverse, p.format),
                                       Encode4(second, inverse, p.format)};
    } else {
      char* to = HeadOf<kHeadDim>(p, slot, kv_head) + KeyOffset<kHeadDim>(token, column);
      *reinterpret_cast<uint4*>(to) = Pack8(values);
    }
  }
}

// Queries and keys of a row, `count` passes of them, all on their way before the first is used;
// one pass where halves are no whole pieces.
template <int kHeadDim, bool kIsInBytes, int kMaxPasses>
__device__ void RotateHeads(const RopeWriteParams& p, int64_t row, int first_pass, int count) {
  using Lanes = HeadLanes<kHeadDim>;
  const int lane = threadIdx.x % 32, in_head = lane % Lanes::kCount;
  const int half = p.rope_dim / 2, num_rotated = p.num_heads + p.num_kv_heads;
  const bool is_whole = half % kPieceColumns == 0;
  const bool rotates = is_whole && in_head * kPieceColumns < half;
  Pieces pieces;
  pieces.low = in_head * kPieceColumns * (rotates ? 1 : 2);
  pieces.high = pieces.low + (rotates ? half : kPieceColumns);
  const int slot = p.cache_slots[row];
  float2 rotation[kPieceColumns] = {};
  if (rotates) {
    const float2* from = p.cos_sin + int64_t{p.positions[row]} * half + pieces.low;
#pragma unroll
    for (int i = 0; i < kPieceColumns; i += 2) {
      const float4 two = *reinterpret_cast<const float4*>(from + i);
      rotation[i] = {two.x, two.y}, rotation[i + 1] = {two.z, two.w};
    }
  }
  const auto head_of = [&](int pass) {
    return (first_pass + pass) * Lanes::kHeads + lane / Lanes::kCount;
  };
  const bool is_left_over = lane / Lanes::kCount >= Lanes::kHeads;
  WaitForPrevious();
  uint4 loaded[kMaxPasses][2];
#pragma unroll
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    loaded[pass][0] = loaded[pass][1] = {};
    if (pass >= count || is_left_over || head_of(pass) >= num_rotated) continue;
    const bf16* from = p.qkv + (row * RowHeads(p) + head_of(pass)) * kHeadDim;
    loaded[pass][0] = *reinterpret_cast<const uint4*>(from + pieces.low);
    loaded[pass][1] = *reinterpret_cast<const uint4*>(from + pieces.high);
  }
#pragma unroll
  for (int pass = 0; pass < kMaxPasses; ++pass) {
    if (pass >= count) break;
    const bool is_there = !is_left_over && head_of(pass) < num_rotated;
    const int head = is_there ? head_of(pass) : 0;
#pragma unroll
    for (int piece = 0; piece < 2; ++piece) {
      Unpack8(loaded[pass][piece], pieces.values[piece]);
      if (p.bias == nullptr) continue;
      float biases[kPieceColumns];
      Unpack8(*reinterpret_cast<const uint4*>(p.bias + head * kHeadDim + pieces.column(piece, 0)),
              biases);
#pragma unroll
      for (int i = 0; i < kPieceColumns; ++i) pieces.values[piece][i] += biases[i];
    }
    const bf16* norm = head < p.num_heads ? p.q_norm : p.k_norm;
    float scale = 1.0f;
    if (p.q_norm != nullptr || p.k_norm != nullptr) {
      float sum = 0.0f;
#pragma unroll
      for (const auto& piece : pieces.values) {
#pragma unroll
        for (const float value : piece) sum += value * value;
      }
      sum = Lanes::Reduce(sum, [](float a, float b) { return a + b; });
      scale = rsqrtf(sum / kHeadDim + p.epsilon);
    }
#pragma unroll
    for (int piece = 0; piece < 2 && norm != nullptr; ++piece) {
      float weights[kPieceColumns];
      Unpack8(*reinterpret_cast<const uint4*>(norm + pieces.column(piece, 0)), weights);
#pragma unroll
      for (int i = 0; i < kPieceColumns; ++i) pieces.values[piece][i] *= scale * weights[i];
    }
    if (rotates) {
#pragma unroll
      for (int i = 0; i < kPieceColumns; ++i) {
        const float low = pieces.values[0][i], high = pieces.values[1][i];
        pieces.values[0][i] = low * rotation[i].x - high * rotation[i].y;
        pieces.values[1][i] = high * rotation[i].x + low * rotation[i].y;
      }
    }
    if constexpr (kMaxPasses == 1) {
      if (!is_whole) {
        if (is_there) RotateColumns<kHeadDim>(p, row, head, norm, scale, pieces);
        __syncwarp();
      }
    }
    StoreHead<kHeadDim, kIsInBytes>(p, row, slot, head, pieces, is_there);
  }
}

// Four columns of the value of a row and head.
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

// Value `i` of four.
__device__ __forceinline__ uint32_t ValueBits(uint2 packed, int i) {
  return (i < 2 ? packed.x : packed.y) >> (i % 2 * 16) & 0xffffu;
}

// Four columns of a token's value, each to its place.
template <int kHeadDim>
__device__ __forceinline__ void StoreValue(char* head, int token, int column, uint2 packed) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    char* to = head + TileBytes(kHeadDim) + ValueOffset<kHeadDim>(token, column + i);
    *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>(ValueBits(packed, i));
  }
}

// The value of one row and head.
template <int kHeadDim, bool kIsInBytes>
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
  if constexpr (kIsInBytes) {
    float greatest = 0.0f;
#pragma unroll
    for (const uint2 four : packed) {
      float values[4];
      Unpack4(four, values);
#pragma unroll
      for (const float value : values) greatest = fmaxf(greatest, fabsf(value));
    }
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffffu, greatest, distance));
    inverse = WriteFactor<kHeadDim, false>(p, slot, kv_head, greatest, lane == 0);
  }
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int column = 4 * (i * 32 + lane);
    if (column >= kHeadDim) break;
    if constexpr (kIsInBytes) {
      float values[4];
      Unpack4(packed[i], values);
      char* to = head + ByteTileBytes(kHeadDim) + ByteValueOffset<kHeadDim>(token, column);
      *reinterpret_cast<uint32_t*>(to) = Encode4(values, inverse, p.format);
    } else {
      StoreValue<kHeadDim>(head, token, column, packed[i]);
    }
  }
}

// The values of rows [row, row + count) of one head, whose slots follow each other, none over a
// multiple of kWindow.
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
    for (int piece = 0; piece < kWindow; piece += 8) {
      const bool is_whole = first <= piece && piece + 8 <= first + count;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (is_whole) {
          uint32_t pairs[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            pairs[i] = ValueBits(packed[piece + 2 * i], j) | ValueBits(packed[piece + 2 * i + 1], j)
                                                                 << 16;
          }
          char* to = head + TileBytes(kHeadDim) + ValueOffset<kHeadDim>(token + piece, column + j);
          *reinterpret_cast<uint4*>(to) = {pairs[0], pairs[1], pairs[2], pairs[3]};
          continue;
        }
#pragma unroll
        for (int i = piece; i < piece + 8; ++i) {
          if (i < first || i >= first + count) continue;
          char* to = head + TileBytes(kHeadDim) + ValueOffset<kHeadDim>(token + i, column + j);
          *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>(ValueBits(packed[i], j));
        }
      }
    }
  }
}

// The values of rows first + i whose bit i is set, none of which follow each other; lane i + 1 has
// the slot of row i.
template <int kHeadDim>
__device__ void WriteSingles(const RopeWriteParams& p, int64_t first, uint32_t singles, int slot,
                             int kv_head) {
  for (int turn = 0; turn < (kHeadDim + 127) / 128; ++turn) {
    const int column = (turn * 32 + static_cast<int>(threadIdx.x) % 32) * 4;
    uint2 packed[kWindow];
#pragma unroll
    for (int i = 0; i < kWindow; ++i) {
      packed[i] = {};
      if ((singles >> i & 1) != 0 && column < kHeadDim)
        packed[i] = LoadValue<kHeadDim>(p, first + i, kv_head, column);
    }
#pragma unroll
    for (int i = 0; i < kWindow; ++i) {
      const int to = __shfl_sync(0xffffffffu, slot, i + 1);
      if ((singles >> i & 1) == 0 || column >= kHeadDim) continue;
      StoreValue<kHeadDim>(HeadOf<kHeadDim>(p, to, kv_head), to % kBlockTokens, column, packed[i]);
    }
  }
}

// The runs of neighbouring slots that begin in the warp's window.
template <int kHeadDim>
__device__ void WriteWindow(const RopeWriteParams& p, int64_t first, int kv_head) {
  // Lane: row first - 1 + lane; the last run may reach beyond the window.
  const int lane = threadIdx.x % 32;
  const int64_t looked_at = first - 1 + lane;
  const int slot = looked_at >= 0 && looked_at < p.num_rows ? p.cache_slots[looked_at] : -2;
  const int before = __shfl_up_sync(0xffffffffu, slot, 1);
  const int after = __shfl_down_sync(0xffffffffu, slot, 1);
  const auto follows = [](int next, int one) { return next == one + 1 && next % kWindow != 0; };
  const bool begins =
      lane >= 1 && lane <= kWindow && slot >= 0 && !(before >= 0 && follows(slot, before));
  const bool is_single = begins && !follows(after, slot);
  const uint32_t singles = __ballot_sync(0xffffffffu, is_single) >> 1;
  uint32_t runs = __ballot_sync(0xffffffffu, begins && !is_single) >> 1;
  WaitForPrevious();
  if (singles != 0) WriteSingles<kHeadDim>(p, first, singles, slot, kv_head);
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

// How the warps share the work: those of queries and keys, then those of values.
struct Work {
  int passes_a_warp, warps_a_row;  // of queries and keys
  int rotating_blocks;
  bool has_windows;  // of values; else a warp has one
};

template <int kHeadDim, bool kIsInBytes, bool kIsLong>
__global__ void __launch_bounds__(32 * kWarps) RopeWriteKernel(RopeWriteParams p, Work work) {
  LaunchNext();
  const int block = static_cast<int>(blockIdx.x) - work.rotating_blocks;
  if (block < 0) {
    const int warp = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
    const int row = warp / work.warps_a_row;
    const int first_pass = warp % work.warps_a_row * work.passes_a_warp;
    if (row < p.num_rows) {
      RotateHeads<kHeadDim, kIsInBytes, kIsLong ? kLongPasses : 1>(p, row, first_pass,
                                                                   work.passes_a_warp);
    }
    return;
  }
  const int warp = block * kWarps + static_cast<int>(threadIdx.x) / 32;
  const int unit = warp / p.num_kv_heads, kv_head = warp % p.num_kv_heads;
  if constexpr (kIsLong && !kIsInBytes) {
    if (work.has_windows) {
      if (unit * kWindow < p.num_rows) WriteWindow<kHeadDim>(p, unit * kWindow, kv_head);
      return;
    }
  }
  if (unit >= p.num_rows) return;
  const int slot = p.cache_slots[unit];
  WaitForPrevious();
  if (slot >= 0) WriteValue<kHeadDim, kIsInBytes>(p, unit, slot, kv_head);
}

template <int kHeadDim>
void LaunchFor(const RopeWriteParams& p, cudaStream_t stream) {
  const auto parts = [](int whole, int part) { return (whole + part - 1) / part; };
  const bool is_in_bytes = p.format != CacheFormat::kBf16;
  const bool is_long = p.num_rows >= kLongStep && p.rope_dim / 2 % kPieceColumns == 0;
  const int passes = parts(p.num_heads + p.num_kv_heads, HeadLanes<kHeadDim>::kHeads);
  Work work = {};
  work.warps_a_row = is_long ? parts(passes, kLongPasses) : passes;
  work.passes_a_warp = parts(passes, work.warps_a_row);
  work.rotating_blocks = parts(p.num_rows * work.warps_a_row, kWarps);
  work.has_windows = is_long && !is_in_bytes && !p.rows_are_single;
  const int units = work.has_windows ? parts(p.num_rows, kWindow) : p.num_rows;
  const int blocks = work.rotating_blocks + parts(units * p.num_kv_heads, kWarps);
  const auto launch = [&](auto kernel) { Launch(kernel, blocks, 32 * kWarps, 0, stream, p, work); };
  if (is_long) {
    launch(is_in_bytes ? RopeWriteKernel<kHeadDim, true, true>
                       : RopeWriteKernel<kHeadDim, false, true>);
  } else {
    launch(is_in_bytes ? RopeWriteKernel<kHeadDim, true, false>
                       : RopeWriteKernel<kHeadDim, false, false>);
  }
}

__global__ void RopeTableKernel(const float* inv_freq, int half_dim, int64_t count, float magnitude,
                                float2* cos_sin) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float angle = static_cast<float>(i / half_dim) * inv_freq[i % half_dim];
  cos_sin[i] = {cosf(angle) * magnitude, sinf(angle) * magnitude};
}

}  // namespace

void RopeWrite(const RopeWriteParams& params, cudaStream_t stream) {
  switch (params.head_dim) {
    case 64:
      return LaunchFor<64>(params, stream);
    case 80:
      return LaunchFor<80>(params, stream);
    case 96:
      return LaunchFor<96>(params, stream);
    case 128:
      return LaunchFor<128>(params, stream);
    case 256:
      return LaunchFor<256>(params, stream);
    case 16:
      return LaunchFor<16>(params, stream);
    case 32:
      return LaunchFor<32>(params, stream);
  }
}

void FillRopeTable(const float* inv_freq, int half_dim, int max_positions, float magnitude,
                   float2* cos_sin, cudaStream_t stream) {
  const int64_t count = int64_t{half_dim} * max_positions;
  RopeTableKernel<<<static_cast<unsigned>((count + 255) / 256), 256, 0, stream>>>(
      inv_freq, half_dim, count, magnitude, cos_sin);
}

}  // namespace nereid::gpu
