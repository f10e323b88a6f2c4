// The KV blocks that queries see: those of the sinks, then those of the window. Device code only.
#pragma once

#include "backends/gpu_llm/kernels/attention/cache_layout.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {

class VisibleBlocks {
 public:
  VisibleBlocks() = default;
  // Of the blocks [first, last): those of the first `num_sinks` tokens, and those from
  // `window_first` on.
  __device__ __forceinline__ VisibleBlocks(int first, int last, int num_sinks, int window_first)
      : first_(first) {
    const int num_sink_blocks = (num_sinks + kBlockTokens - 1) / kBlockTokens;
    before_gap_ = max(0, min(num_sink_blocks, last) - first);
    gap_ = max(0, window_first - first - before_gap_);
    count_ = before_gap_ + max(0, last - first - before_gap_ - gap_);
  }

  __device__ __forceinline__ int count() const { return count_; }
  // Number of the i-th block in the context.
  __device__ __forceinline__ int operator[](int i) const {
    return first_ + i + (i < before_gap_ ? 0 : gap_);
  }

 private:
  int first_, before_gap_, gap_, count_;
};

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
