// The KV cache as blocks that are copied whole: a block has one part in each layer. Borrowed from
// the decoder.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backends/gpu_llm/cuda/runtime.h"
#include "nereid/status.h"

namespace nereid::gpu {

// Rows of `row_bytes` bytes, `stride` bytes apart.
struct StridedRows {
  char* data = nullptr;
  int64_t stride = 0;
};

// cudaMemcpy2DAsync() refuses strides above 2^31 - 1, which a large cache exceeds: its rows are
// then copied one by one.
inline Status CopyRowsAsync(const StridedRows& to, const StridedRows& from, int64_t row_bytes,
                            int32_t num_rows, cudaMemcpyKind kind, cudaStream_t stream) {
  constexpr int64_t kMaxStride = INT32_MAX;
  if (to.stride <= kMaxStride && from.stride <= kMaxStride) {
    NEREID_RETURN_IF_CUDA_ERROR(cudaMemcpy2DAsync(to.data, to.stride, from.data, from.stride,
                                                  row_bytes, num_rows, kind, stream));
    return {};
  }
  for (int64_t row = 0; row < num_rows; ++row) {
    NEREID_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(
        to.data + row * to.stride, from.data + row * from.stride, row_bytes, kind, stream));
  }
  return {};
}

struct CacheBlocks {
  char* data = nullptr;     // on the device: [layers][blocks]
  int64_t layer_bytes = 0;  // from one layer to the next
  int64_t part_bytes = 0;   // of a block in a layer
  int32_t num_layers = 0;
  int32_t num_blocks = 0;

  int64_t block_bytes() const { return part_bytes * num_layers; }
  StridedRows Parts(int32_t block) const { return {data + block * part_bytes, layer_bytes}; }
  // Copies a block to or from [block_bytes()] of pinned host memory.
  Status Read(int32_t block, char* to, cudaStream_t stream) const {
    return CopyRowsAsync({to, part_bytes}, Parts(block), part_bytes, num_layers,
                         cudaMemcpyDeviceToHost, stream);
  }
  Status Write(int32_t block, char* from, cudaStream_t stream) const {
    return CopyRowsAsync(Parts(block), {from, part_bytes}, part_bytes, num_layers,
                         cudaMemcpyHostToDevice, stream);
  }
  Status Copy(int32_t from, int32_t to, cudaStream_t stream) const {
    return CopyRowsAsync(Parts(to), Parts(from), part_bytes, num_layers, cudaMemcpyDeviceToDevice,
                         stream);
  }
};

}  // namespace nereid::gpu
