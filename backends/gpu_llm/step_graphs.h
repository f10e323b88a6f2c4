// Decode steps as CUDA graphs. A size is recorded after its algorithms are chosen and it has
// occurred often enough, and is launched in one call from then on. If a recording fails, steps of
// that size continue to be launched kernel by kernel. [engine thread]
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>

#include "backends/gpu_llm/comm/peer_group.h"
#include "backends/gpu_llm/cuda/stream.h"
#include "backends/gpu_llm/recorded_steps.h"
#include "nereid/status.h"

namespace nereid::gpu {

class StepGraphs {
 public:
  // `group`: the GPUs that share every step, borrowed; null: a single GPU. `on_warning` gets one
  // line when the first recording fails; may be empty.
  StepGraphs(PeerGroup* group, std::function<void(const std::string&)> on_warning)
      : group_(group), on_warning_(std::move(on_warning)) {}

  // False: no graph of this size exists, and nothing was launched.
  Result<bool> Launch(const StepSize& size, cudaStream_t stream);
  // Records the work that `launch` puts on the stream at the `min_steps`-th step of this size that
  // was settled on all GPUs, once. Call it after each such step has been launched. `is_settled`: on
  // this GPU the step used its final algorithms. Returns whether a recording was tried now. An
  // error means that the device or another GPU has failed, not the recording.
  Result<bool> Record(const StepSize& size, bool is_settled, int32_t min_steps,
                      const std::function<Status()>& launch, cudaStream_t stream);

  // Drops what was recorded or refused. Steps in flight may still run.
  void Forget() { recorded_ = {}; }

  int64_t num_launches() const { return num_launches_; }
  // Sizes that are launched kernel by kernel because their recording failed.
  int64_t num_refused() const { return recorded_.num_refused(); }
  // For tests: makes every later recording fail halfway.
  void FailRecordings() { fails_ = true; }

 private:
  Result<Graph> Capture(const std::function<Status()>& launch, cudaStream_t stream);

  PeerGroup* group_;
  std::function<void(const std::string&)> on_warning_;
  RecordedSteps<Graph> recorded_;
  int64_t num_launches_ = 0;
  bool fails_ = false, has_warned_ = false;
};

}  // namespace nereid::gpu
