// Measures the operators of a step on the device with an event between each two of them. Operators
// then run one after the other, without the overlap of a normal step. At the start of a step the
// stream is delayed, so that no operator waits for its launch by the host. [engine thread]
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/gpu_llm/cuda/stream.h"
#include "backends/gpu_llm/step_profile.h"
#include "backends/llm_core/engine/batch.h"
#include "nereid/status.h"

namespace nereid::gpu {

class OperatorTimer {
 public:
  // `on_table` is called with a table after every `num_steps` steps.
  static Result<std::unique_ptr<OperatorTimer>> Create(
      int device, int32_t num_steps, std::function<void(const std::string&)> on_table);

  void BeginStep(bool is_decode, const llm::StepBatch& batch, cudaStream_t stream);
  // The kernels launched from here to the next call belong to this operator. `name` is a literal.
  void Mark(const char* name, const OperatorWork& work, cudaStream_t stream);
  // Also returns the first error since BeginStep().
  Status EndStep(cudaStream_t stream);
  // Call it when the device has completed the step.
  Status Collect();

  // The work of attention in a layer with this window (0: none), of decoding sequences or of
  // prompts: tokens read from the cache, and pairs of query and key.
  struct AttentionWork {
    double tokens_read = 0.0;
    double pairs = 0.0;
  };
  AttentionWork Attention(bool of_decoding, int32_t window) const;

 private:
  struct Timed {
    const char* name;
    OperatorWork work;
  };
  struct SequenceChunk {
    int32_t num_tokens, num_cached;
    bool is_decoding;
  };

  OperatorTimer() = default;
  void Record(cudaStream_t stream);

  DeviceRoofline roofline_;
  int32_t num_steps_ = 0;
  std::function<void(const std::string&)> on_table_;
  StepProfile profile_;
  bool is_decode_ = false;
  int32_t num_tokens_ = 0;
  std::vector<SequenceChunk> chunks_;
  std::vector<Timed> timed_;   // operators of the step
  std::vector<Event> events_;  // one more of them than operators is in use
  size_t num_events_ = 0;
  Status status_;
};

}  // namespace nereid::gpu
