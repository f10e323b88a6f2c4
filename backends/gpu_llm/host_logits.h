// Rows of a step's logits on the host, for rules and outputs that the device does not have. [engine
// thread]
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>
#include <vector>

#include "backends/gpu_llm/cuda/runtime.h"
#include "nereid/status.h"

namespace nereid::gpu {

// The logits of the newest step on the device, and what is sampled from them. Borrowed.
struct StepLogits {
  float* rows = nullptr;  // [.., stride]
  int32_t stride = 0;     // vocab_size, padded
  int32_t vocab_size = 0;
  int32_t* last_tokens = nullptr;  // [slots]: the newest token of each sequence
};

class HostLogits {
 public:
  explicit HostLogits(const StepLogits& logits) : logits_(logits) {}

  // Copies rows [first, first + count) and waits for the step. Valid, to be changed by rules, until
  // the next call: [count, vocab_size].
  Result<std::span<float>> Read(int32_t first, int32_t count, cudaStream_t stream) {
    const int64_t row_bytes = int64_t{logits_.vocab_size} * 4, stride = logits_.stride;
    rows_.resize(static_cast<size_t>(int64_t{logits_.vocab_size} * count));
    NEREID_RETURN_IF_CUDA_ERROR(
        cudaMemcpy2DAsync(rows_.data(), row_bytes, logits_.rows + first * stride, stride * 4,
                          row_bytes, count, cudaMemcpyDeviceToHost, stream));
    NEREID_RETURN_IF_ERROR(CudaStatus(cudaStreamSynchronize(stream), "rows of logits"));
    return std::span<float>(rows_);
  }

 private:
  StepLogits logits_;
  std::vector<float> rows_;
};

}  // namespace nereid::gpu
