// Times a step's operators on the device: an event between each two on the stream. They run one
// after the other then, without the overlap of a plain step; and the stream is held back at a
// step's begin, so that nothing waits for the host to launch it. [engine thread]
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
  // `on_table` is called after every `num_steps` steps with the table of those.
  static Result<std::unique_ptr<OperatorTimer>> Create(
      int device, int32_t num_steps, std::function<void(const std::string&)> on_table);

  void BeginStep(bool is_decode, const llm::Batch& batch, cudaStream_t stream);
  // What is launched from here to the next call is this operator's. `name` is a literal.
  void Mark(const char* name, const OperatorWork& work, cudaStream_t stream);
  // Also what went wrong since BeginStep.
  Status EndStep(cudaStream_t stream);
  // Once the device is through with the step.
  Status Collect();

  // Of the step's attention in a layer that sees so many tokens back (0: all): tokens of the cache
  // that are read, and pairs of query and key, of decoding sequences or of prompts.
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
  struct Run {
    int32_t num_tokens, num_cached;
  };

  OperatorTimer() = default;
  void Record(cudaStream_t stream);

  Roof roof_;
  int32_t num_steps_ = 0;
  std::function<void(const std::string&)> on_table_;
  StepProfile profile_;
  bool is_decode_ = false;
  int32_t num_tokens_ = 0;
  std::vector<Run> runs_;
  std::vector<Timed> timed_;   // operators of the step
  std::vector<Event> events_;  // one more of them are in use
  size_t num_events_ = 0;
  Status status_;
};

}  // namespace nereid::gpu
