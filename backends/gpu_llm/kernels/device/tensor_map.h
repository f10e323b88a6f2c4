// Maps of arrays in device memory, for the tensor copies of the native kernels. Host code.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace nereid::gpu {

// Bytes of a row of a copied box: the widest swizzle of wgmma.
inline constexpr int kTensorMapRowBytes = 128;

// The driver's function; null if the driver has none.
inline decltype(&cuTensorMapEncodeTiled) TensorMapEncoder() {
  static const auto encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
    (void)cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                           cudaEnableDefault, &result);
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
  }();
  return encode;
}

// A map of an array of `kRank` dimensions, the innermost first, of bf16 or bytes; `strides` are
// those of the other dimensions, in bytes. Boxes have `box_rows` rows of kTensorMapRowBytes.
// Elements outside the array read as zero.
template <int kRank>
cudaError_t EncodeTensorMap(CUtensorMap& map, const void* data, int element_bytes,
                            const std::array<int64_t, kRank>& sizes,
                            const std::array<int64_t, kRank - 1>& strides, int box_rows) {
  const auto encode = TensorMapEncoder();
  if (encode == nullptr) return cudaErrorNotSupported;
  std::array<cuuint64_t, kRank> map_sizes = {};
  std::array<cuuint64_t, kRank - 1> map_strides = {};
  std::array<cuuint32_t, kRank> box = {}, steps = {};
  std::copy(sizes.begin(), sizes.end(), map_sizes.begin());
  std::copy(strides.begin(), strides.end(), map_strides.begin());
  box.fill(1);
  steps.fill(1);
  box[0] = static_cast<cuuint32_t>(kTensorMapRowBytes / element_bytes);
  box[1] = static_cast<cuuint32_t>(box_rows);
  const CUresult result = encode(
      &map, element_bytes == 1 ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      kRank, const_cast<void*>(data), map_sizes.data(), map_strides.data(), box.data(),
      steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace nereid::gpu
