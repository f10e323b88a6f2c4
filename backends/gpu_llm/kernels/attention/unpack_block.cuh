// Unpacks a quantized KV block of one head to the bf16 tiles of cache_layout.h: each element is its
// code times the scale of its token, rounded to bf16. The work is divided into pieces, which a
// group of kUnpackThreads threads shares. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/attention/cache_quantization.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {

constexpr int kUnpackThreads = 128;

// Converts two fp16 values to bf16 and multiplies them by their scales.
__device__ __forceinline__ uint32_t ScaleHalves(uint32_t halves, float low, float high) {
  const float2 values = __half22float2(*reinterpret_cast<const __half2*>(&halves));
  return PackBf16(values.x * low, values.y * high);
}

// 16 columns of the key of one token. kBlocks: blocks whose rows a panel of the unpacked keys has.
template <int kHeadDim, CacheFormat kFormat, int kBlocks>
struct KeyPiece {
  static constexpr int kEach = kHeadDim / 16, kCount = kBlockTokens * kEach;
  static constexpr int kPanelBytes = kBlockTokens * KeyPanelColumns(kHeadDim) * 2;  // of one block
  uint4 codes;
  float scale;

  __device__ __forceinline__ void Load(const char* packed, int i) {
    codes = *reinterpret_cast<const uint4*>(
        packed + QuantizedKeyOffset<kHeadDim>(i / kEach, i % kEach * 16));
    scale = reinterpret_cast<const float*>(packed + QuantizedScalesOffset(kHeadDim))[i / kEach];
  }
  __device__ __forceinline__ void Store(char* to, int i) const {
    const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
    uint32_t pairs[8];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      pairs[2 * w] = ScaleHalves(Decode2<kFormat>(words[w] & 0xffffu), scale, scale);
      pairs[2 * w + 1] = ScaleHalves(Decode2<kFormat>(words[w] >> 16), scale, scale);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int column = i % kEach * 16 + 8 * half;
      const int at = KeyOffset<kHeadDim>(i / kEach, column) +
                     column / KeyPanelColumns(kHeadDim) * (kBlocks - 1) * kPanelBytes;
      *reinterpret_cast<uint4*>(to + at) = {pairs[4 * half], pairs[4 * half + 1],
                                            pairs[4 * half + 2], pairs[4 * half + 3]};
    }
  }
};

// Four columns of the values of eight tokens.
template <int kHeadDim, CacheFormat kFormat>
struct ValuePiece {
  static constexpr int kEach = kHeadDim / 4, kCount = kBlockTokens / 8 * kEach;
  uint32_t codes[8];
  float2 scales[4];

  __device__ __forceinline__ void Load(const char* packed, int i) {
    const int token = i / kEach * 8, column = i % kEach * 4;
    const char* values = packed + QuantizedTileBytes(kHeadDim);
    const auto* all = reinterpret_cast<const float*>(packed + QuantizedScalesOffset(kHeadDim));
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      scales[k] = *reinterpret_cast<const float2*>(all + kBlockTokens + token + 2 * k);
#pragma unroll
      for (int b = 0; b < 2; ++b) {
        codes[2 * k + b] = *reinterpret_cast<const uint32_t*>(
            values + QuantizedValueOffset<kHeadDim>(token + 2 * k + b, column));
      }
    }
  }
  __device__ __forceinline__ void Store(char* to, int i) const {
    const int token = i / kEach * 8, column = i % kEach * 4;
    uint32_t pairs[4][4];  // [column][tokens 2 k, 2 k + 1]
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      // Columns 0 and 1 of both tokens, then columns 2 and 3.
      const uint32_t first = __byte_perm(codes[2 * k], codes[2 * k + 1], 0x5140);
      const uint32_t second = __byte_perm(codes[2 * k], codes[2 * k + 1], 0x7362);
      const float2 both = scales[k];
      pairs[0][k] = ScaleHalves(Decode2<kFormat>(first & 0xffffu), both.x, both.y);
      pairs[1][k] = ScaleHalves(Decode2<kFormat>(first >> 16), both.x, both.y);
      pairs[2][k] = ScaleHalves(Decode2<kFormat>(second & 0xffffu), both.x, both.y);
      pairs[3][k] = ScaleHalves(Decode2<kFormat>(second >> 16), both.x, both.y);
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      *reinterpret_cast<uint4*>(to + ValueOffset<kHeadDim>(token, column + c)) = {
          pairs[c][0], pairs[c][1], pairs[c][2], pairs[c][3]};
    }
  }
};

// Unpacks `packed`, in global or shared memory, to shared memory. Called by kUnpackThreads threads
// with consecutive numbers from a multiple of kUnpackThreads on.
template <int kHeadDim, CacheFormat kFormat, int kBlocks = 1>
__device__ void UnpackBlock(const char* packed, char* keys, char* values) {
  const auto unpack = [&](auto piece, char* to) {
    for (int i = threadIdx.x % kUnpackThreads; i < piece.kCount; i += kUnpackThreads) {
      piece.Load(packed, i);
      piece.Store(to, i);
    }
  };
  unpack(KeyPiece<kHeadDim, kFormat, kBlocks>(), keys);
  unpack(ValuePiece<kHeadDim, kFormat>(), values);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
