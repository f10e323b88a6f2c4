// Copies the KV blocks of prefill_attention.cu to shared memory. One thread copies a bf16 cache as
// it is. For a quantized cache a group of four warps unpacks the blocks to the bf16 layout. Device
// code only.
#pragma once

#include "backends/gpu_llm/kernels/attention/cache_quantization.cuh"
#include "backends/gpu_llm/kernels/attention/prefill_work.cuh"
#include "backends/gpu_llm/kernels/device/async_copy.cuh"
#include "backends/gpu_llm/kernels/device/device.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM::prefill_attention {

// Converts two fp16 values to bf16 and multiplies them by their scales.
__device__ __forceinline__ uint32_t ScaleHalves(uint32_t halves, float low, float high) {
  const float2 values = __half22float2(*reinterpret_cast<const __half2*>(&halves));
  return PackBf16(values.x * low, values.y * high);
}

// Unpacks a quantized block of one head to the bf16 tiles. Called by the 128 threads of the
// producer group.
template <int kHeadDim, CacheFormat kFormat>
__device__ void Unpack(const char* packed, char* to) {
  const auto* scales = reinterpret_cast<const float*>(packed + QuantizedScalesOffset(kHeadDim));
  constexpr int kChunks = kHeadDim / 16;
  for (int i = threadIdx.x; i < kBlockTokens * kChunks; i += 128) {
    const int token = i / kChunks, column = i % kChunks * 16;
    const uint4 codes =
        *reinterpret_cast<const uint4*>(packed + QuantizedKeyOffset<kHeadDim>(token, column));
    const float scale = scales[token];
    const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
    uint32_t pairs[8];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      pairs[2 * w] = ScaleHalves(Decode2<kFormat>(words[w] & 0xffffu), scale, scale);
      pairs[2 * w + 1] = ScaleHalves(Decode2<kFormat>(words[w] >> 16), scale, scale);
    }
    *reinterpret_cast<uint4*>(to + KeyOffset<kHeadDim>(token, column)) = {pairs[0], pairs[1],
                                                                          pairs[2], pairs[3]};
    *reinterpret_cast<uint4*>(to + KeyOffset<kHeadDim>(token, column + 8)) = {pairs[4], pairs[5],
                                                                              pairs[6], pairs[7]};
  }
  const char* values = packed + QuantizedTileBytes(kHeadDim);
  char* value_tile = to + TileBytes(kHeadDim);
  constexpr int kQuads = kHeadDim / 4;
  for (int i = threadIdx.x; i < kBlockTokens / 8 * kQuads; i += 128) {
    const int token = i / kQuads * 8, column = i % kQuads * 4;  // eight tokens of four columns
    uint32_t pairs[4][4];                                       // [column][tokens 2 k, 2 k + 1]
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint32_t low = *reinterpret_cast<const uint32_t*>(
          values + QuantizedValueOffset<kHeadDim>(token + 2 * k, column));
      const uint32_t high = *reinterpret_cast<const uint32_t*>(
          values + QuantizedValueOffset<kHeadDim>(token + 2 * k + 1, column));
      const float2 both = *reinterpret_cast<const float2*>(scales + kBlockTokens + token + 2 * k);
      const uint32_t first = __byte_perm(low, high, 0x5140);   // columns 0, 1 of both tokens
      const uint32_t second = __byte_perm(low, high, 0x7362);  // columns 2, 3
      pairs[0][k] = ScaleHalves(Decode2<kFormat>(first & 0xffffu), both.x, both.y);
      pairs[1][k] = ScaleHalves(Decode2<kFormat>(first >> 16), both.x, both.y);
      pairs[2][k] = ScaleHalves(Decode2<kFormat>(second & 0xffffu), both.x, both.y);
      pairs[3][k] = ScaleHalves(Decode2<kFormat>(second >> 16), both.x, both.y);
    }
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      *reinterpret_cast<uint4*>(value_tile + ValueOffset<kHeadDim>(token, column + c)) = {
          pairs[c][0], pairs[c][1], pairs[c][2], pairs[c][3]};
    }
  }
}

// Copies the KV blocks of all tiles to the ring, in order. Called by one thread.
template <int kHeadDim>
__device__ void Produce(const PrefillAttentionParams& p, char* stages, uint64_t* full,
                        uint64_t* empty) {
  constexpr int kStages = PrefillShape<kHeadDim, CacheFormat::kBf16>::kStages;
  constexpr auto kBytes = static_cast<uint32_t>(HeadBytes(kHeadDim));
  const char* cache = static_cast<const char*>(p.cache);
  int n = 0;
  for (BlockCursor cursor(p); cursor.has_block(); cursor.Advance(), ++n) {
    const int stage = n % kStages;
    if (n >= kStages) BarrierWait(empty + stage, (n / kStages - 1) & 1);
    BarrierExpect(full + stage, kBytes);
    BulkCopy(stages + stage * kBytes, cache + cursor.head() * kBytes, kBytes, full + stage);
  }
}

// The same for a quantized cache, with unpacking. Called by 128 threads.
template <int kHeadDim, CacheFormat kFormat>
__device__ void ProduceUnpacked(const PrefillAttentionParams& p, char* stages, uint64_t* full,
                                uint64_t* empty, uint64_t* arrived, char* packed) {
  using Shape = PrefillShape<kHeadDim, kFormat>;
  const char* cache = static_cast<const char*>(p.cache);
  BlockCursor ahead(p);
  const auto copy = [&](int n) {
    if (threadIdx.x != 0 || !ahead.has_block()) return;
    uint64_t* barrier = arrived + n % Shape::kPackedStages;
    BarrierExpect(barrier, Shape::kPackedBytes);
    BulkCopy(packed + n % Shape::kPackedStages * Shape::kPackedBytes,
             cache + ahead.head() * Shape::kPackedBytes, Shape::kPackedBytes, barrier);
    ahead.Advance();
  };
  for (int n = 0; n < Shape::kPackedStages; ++n) copy(n);
  int n = 0;
  for (BlockCursor now(p); now.has_block(); now.Advance(), ++n) {
    const int stage = n % Shape::kStages;
    char* from = packed + n % Shape::kPackedStages * Shape::kPackedBytes;
    if (n >= Shape::kStages) BarrierWait(empty + stage, (n / Shape::kStages - 1) & 1);
    BarrierWait(arrived + n % Shape::kPackedStages, n / Shape::kPackedStages & 1);
    if (now.is_last() && now.work().num_last < kBlockTokens) {
      auto* scales = reinterpret_cast<float*>(from + QuantizedScalesOffset(kHeadDim));
      const auto token = static_cast<int>(threadIdx.x);
      if (token >= now.work().num_last && token < kBlockTokens) scales[kBlockTokens + token] = 0.0f;
      asm volatile("bar.sync 4, 128;" ::: "memory");
    }
    Unpack<kHeadDim, kFormat>(from, stages + stage * HeadBytes(kHeadDim));
    ProxyFence();
    BarrierArrive(full + stage);
    asm volatile("bar.sync 4, 128;" ::
                     : "memory");  // all threads have read what the next copy overwrites
    copy(n + Shape::kPackedStages);
  }
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::prefill_attention
