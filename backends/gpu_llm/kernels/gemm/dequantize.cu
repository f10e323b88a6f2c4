// Each thread writes 8 contiguous outputs at a time. Bound by memory bandwidth: gate and up of an
// 8B model reach 75 (int4) and 82 (fp8) % of an H200's 4.65 TB/s.
#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/device/launch.h"
#include "backends/gpu_llm/kernels/gemm/weight_kernels.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

constexpr int kThreads = 256;

__device__ __forceinline__ float Fp8ToFloat(uint32_t byte) {
  // Moves sign, exponent and mantissa to a float's positions. The exponent biases differ by 120.
  return __uint_as_float((byte & 0x80u) << 24 | (byte & 0x7fu) << 20) * 0x1p120f;
}

__global__ void __launch_bounds__(kThreads) DequantizeFp8Kernel(WeightMatrix weights, uint4* out) {
  LaunchNext();
  WaitForPrevious();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t row = i * 8 / weights.depth;
  if (row >= weights.num_outputs) return;
  const uint2 packed = static_cast<const uint2*>(weights.data)[i];
  float scale = weights.row_scales[row];
  if (weights.block_scales != nullptr) {
    const int64_t block = i * 8 % weights.depth / kFp8BlockColumns;
    const uint32_t scales =
        weights.block_scales[block * NumFp8Tiles(weights.num_outputs) + row / kFp8TileRows];
    scale *= row % kFp8TileRows < kFp8ScaleRows ? LowBf16(scales) : HighBf16(scales);
  }
  float values[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    values[j] = Fp8ToFloat((j < 4 ? packed.x : packed.y) >> (j % 4 * 8) & 0xffu) * scale;
  }
  out[i] = Pack8(values);
}

// One warp for each block of a tile.
__global__ void __launch_bounds__(kThreads)
    DequantizeInt4Kernel(WeightMatrix weights, bf16* out, int num_blocks) {
  LaunchNext();
  WaitForPrevious();
  const int64_t unit = int64_t{blockIdx.x} * (kThreads / 32) + threadIdx.x / 32;
  const int64_t tile = unit / num_blocks;
  const int block = static_cast<int>(unit % num_blocks);
  if (tile * kInt4TileRows >= weights.num_outputs) return;
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const char* from =
      static_cast<const char*>(weights.data) + unit * Int4BlockBytes(weights.scales_per_block);
  const auto* scales = reinterpret_cast<const uint32_t*>(from + kInt4ValueBytes);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint4 packed = reinterpret_cast<const uint4*>(from)[32 * half + lane];
    const uint32_t words[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
    for (int w = 0; w < 4; ++w) {  // step w / 2, row g + 8 (w % 2)
      const int in_block = half * 64 + w / 2 * 32 + 8 * t, row_in_tile = g + w % 2 * 8;
      const int column = block * kInt4BlockColumns + in_block;
      const int64_t row = tile * kInt4TileRows + row_in_tile;
      if (column >= weights.depth || row >= weights.num_outputs) continue;
      const uint32_t scale_word =
          scales[in_block * weights.scales_per_block / kInt4BlockColumns * kInt4TileRows +
                 row_in_tile];
      const float scale = __uint_as_float(scale_word & ~31u);
      const int zero = static_cast<int>(scale_word & 31u);
      float values[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const auto value = static_cast<int>(words[w] >> LocateInInt4Block(0, j).shift & 15u);
        values[j] = static_cast<float>(value - zero) * scale;
      }
      *reinterpret_cast<uint4*>(out + row * weights.depth + column) = Pack8(values);
    }
  }
}

}  // namespace

void Dequantize(const WeightMatrix& weights, __nv_bfloat16* out, cudaStream_t stream) {
  if (weights.format == WeightFormat::kFp8) {
    const int64_t units = int64_t{weights.num_outputs} * weights.depth / 8;
    Launch(DequantizeFp8Kernel, static_cast<unsigned>((units + kThreads - 1) / kThreads), kThreads,
           0, stream, weights, reinterpret_cast<uint4*>(out));
    return;
  }
  const int num_blocks = NumInt4Blocks(weights.depth);
  const int64_t units =
      int64_t{(weights.num_outputs + kInt4TileRows - 1) / kInt4TileRows} * num_blocks;
  constexpr int kUnits = kThreads / 32;
  Launch(DequantizeInt4Kernel, static_cast<unsigned>((units + kUnits - 1) / kUnits), kThreads, 0,
         stream, weights, out, num_blocks);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
