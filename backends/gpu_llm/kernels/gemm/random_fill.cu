// Fills dummy weights, once at load.
#include <cmath>

#include "backends/gpu_llm/kernels/device/device.cuh"
#include "backends/gpu_llm/kernels/gemm/weight_kernels.h"
#include "backends/llm_core/sampling/philox.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

__global__ void RandomFillKernel(bf16* out, int64_t count, float bound, uint64_t seed) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < (count + 7) / 8;
       i += stride) {
    const llm::PhiloxBlock bits =
        llm::Philox4x32({{static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 1, 0}},
                        static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
    for (int j = 0; j < 8 && 8 * i + j < count; ++j) {
      const uint32_t half = bits.words[j / 2] >> (16 * (j % 2)) & 0xffff;
      out[8 * i + j] = __float2bfloat16((static_cast<float>(half) / 32767.5f - 1.0f) * bound);
    }
  }
}

__global__ void ConstantFillKernel(bf16* out, int64_t count, float value) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) out[i] = __float2bfloat16(value);
}

// Replaces nibbles of 0 with 8, the zero point, so that the mean of a word's values is not below
// it.
__device__ __forceinline__ uint32_t WithoutZeros(uint32_t word) {
  uint32_t bits = word | word >> 1;
  bits = (bits | bits >> 2) & 0x11111111u;  // the last bit of each nibble: it is not 0
  return word | (bits ^ 0x11111111u) << 3;
}

// Random values around the zero point for all of a block, then its scales.
__global__ void RandomFillInt4Kernel(uint32_t* out, int words_a_block, uint32_t scale_word,
                                     uint64_t seed) {
  uint32_t* block = out + int64_t{blockIdx.x} * words_a_block;
  for (int i = threadIdx.x; i < words_a_block; i += blockDim.x) {
    const llm::PhiloxBlock bits =
        llm::Philox4x32({{blockIdx.x, static_cast<uint32_t>(i), 2, 0}}, static_cast<uint32_t>(seed),
                        static_cast<uint32_t>(seed >> 32));
    block[i] = i < kInt4ValueBytes / 4 ? WithoutZeros(bits.words[0]) : scale_word;
  }
}

// Values with one exponent: magnitudes 0.5 to 0.94, either sign.
__global__ void RandomFillFp8Kernel(uint32_t* out, int64_t count, uint64_t seed) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    const llm::PhiloxBlock bits =
        llm::Philox4x32({{static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 3, 0}},
                        static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
    out[i] = (bits.words[0] & 0x87878787u) | 0x30303030u;
  }
}

// Block scales from 1 to 2, whose mean square is 2.33.
__global__ void RandomFillScalesKernel(uint32_t* out, int64_t count, uint64_t seed) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const llm::PhiloxBlock bits =
      llm::Philox4x32({{static_cast<uint32_t>(i), static_cast<uint32_t>(i >> 32), 4, 0}},
                      static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  out[i] = (bits.words[0] & 0x007f007fu) | 0x3f803f80u;
}

// Scales of rows, which differ from row to row.
__global__ void FillRowScalesKernel(float* out, int64_t count, float mean) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) out[i] = mean * (0.75f + 0.25f * static_cast<float>(i % 3));
}

}  // namespace

void RandomFillMatrix(const WeightMatrix& matrix, uint64_t seed, cudaStream_t stream) {
  const float deviation = 1.0f / sqrtf(static_cast<float>(matrix.depth));
  void* data = const_cast<void*>(matrix.data);
  const int64_t count = int64_t{matrix.num_outputs} * matrix.depth;
  switch (matrix.format) {
    case WeightFormat::kBf16:
      return RandomFill(static_cast<bf16*>(data), count, deviation * 1.732f, seed, stream);
    case WeightFormat::kFp8: {
      RandomFillFp8Kernel<<<2048, 256, 0, stream>>>(static_cast<uint32_t*>(data), count / 4, seed);
      const bool has_blocks = matrix.block_scales != nullptr;
      FillRowScalesKernel<<<(matrix.num_outputs + 255) / 256, 256, 0, stream>>>(
          const_cast<float*>(matrix.row_scales), matrix.num_outputs,
          deviation / 0.73f / (has_blocks ? 1.53f : 1.0f));
      if (!has_blocks) return;
      const int64_t num_scales = NumFp8BlockScales(matrix.num_outputs, matrix.depth);
      RandomFillScalesKernel<<<static_cast<unsigned>((num_scales + 255) / 256), 256, 0, stream>>>(
          const_cast<uint32_t*>(matrix.block_scales), num_scales, seed);
      return;
    }
    case WeightFormat::kInt4: {
      const int64_t tiles = (matrix.num_outputs + kInt4TileRows - 1) / kInt4TileRows;
      const int block_bytes = Int4BlockBytes(matrix.scales_per_block);
      const int64_t blocks =
          tiles * Int4TileBytes(matrix.depth, matrix.scales_per_block) / block_bytes;
      RandomFillInt4Kernel<<<static_cast<unsigned>(blocks), 128, 0, stream>>>(
          static_cast<uint32_t*>(data), block_bytes / 4, Int4ScaleWord(deviation / 4.18f, 8), seed);
      return;
    }
  }
}

void RandomFill(__nv_bfloat16* out, int64_t count, float bound, uint64_t seed,
                cudaStream_t stream) {
  RandomFillKernel<<<2048, 256, 0, stream>>>(out, count, bound, seed);
}

void ConstantFill(__nv_bfloat16* out, int64_t count, float value, cudaStream_t stream) {
  ConstantFillKernel<<<static_cast<unsigned>((count + 255) / 256), 256, 0, stream>>>(out, count,
                                                                                     value);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
