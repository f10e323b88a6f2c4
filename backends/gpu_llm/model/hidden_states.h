// The hidden states between layers of the newest step, for drafters that continue them, and those
// of some tokens that a drafter keeps until it runs them. [engine thread]
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/cuda/stream.h"
#include "backends/llm_core/speculation/hidden_rows.h"
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

// A drafter's store of hidden states, one row for each of its numbers.
class KeptHiddenStates {
 public:
  // Room for `num_rows` rows of `row_size` values.
  Status Allocate(int64_t num_rows, int64_t row_size);

  // Notes that the given rows of the newest step go to the rows `kept` of the store.
  void Keep(const llm::HiddenRows& rows, std::span<const int32_t> kept);
  // Copies them from `captured`, which has the newest step; null: no model keeps any, which is an
  // error if there is something to copy. The stream is that of the model, so that its next step
  // begins after the copy.
  Status Finish(const HiddenStates* captured, cudaStream_t stream);

  // [num_rows, row_size]
  __nv_bfloat16* rows() const { return rows_.as<__nv_bfloat16>(); }
  size_t size_bytes() const { return rows_.size_bytes(); }

 private:
  int64_t row_size_ = 0;
  DeviceMemory rows_;
  std::vector<int32_t> from_, to_;
  PinnedMemory lists_;  // both lists of a copy that runs
  Event copied_;
};

}  // namespace nereid::gpu
