// Keeps the hidden states between layers of the newest step, for drafters that continue them.
// [engine thread]
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/gpu_llm/cuda/memory.h"
#include "nereid/status.h"

namespace nereid::gpu {

class HiddenStates {
 public:
  // `layers`: whose inputs are kept; the number of layers means the last one's output. Without
  // rows, nothing is kept: another GPU does.
  static Result<HiddenStates> Create(std::vector<int32_t> layers, int32_t hidden_size,
                                     int32_t max_num_rows);

  // Keeps the residual in front of `layer`, if it is one of the layers.
  Status Store(int32_t layer, const __nv_bfloat16* residual, int32_t num_rows,
               cudaStream_t stream) const;
  std::span<const int32_t> layers() const { return layers_; }
  bool has(int32_t layer) const {
    return std::find(layers_.begin(), layers_.end(), layer) != layers_.end();
  }
  // [rows of the step, row_size()]: the layers of a row side by side.
  __nv_bfloat16* rows() const { return rows_.as<__nv_bfloat16>(); }
  int64_t row_size() const { return static_cast<int64_t>(layers_.size()) * hidden_size_; }
  int64_t memory_bytes() const { return static_cast<int64_t>(rows_.size_bytes()); }

 private:
  std::vector<int32_t> layers_;
  int64_t hidden_size_ = 0;
  DeviceMemory rows_;
};

}  // namespace nereid::gpu
