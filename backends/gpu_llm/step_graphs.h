// Decode steps as CUDA graphs: recorded once the algorithms of their size are chosen and it has
// come often enough to be worth it, launched in one call from then on. A step that can not be
// recorded is no fault: its size goes on kernel by kernel. [engine thread]
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
  // `group`: of the GPUs that take every step together, borrowed; null: it is one alone.
  // `on_warning` gets one line, when the first recording fails; may be empty.
  StepGraphs(PeerGroup* group, std::function<void(const std::string&)> on_warning)
      : group_(group), on_warning_(std::move(on_warning)) {}

  // False: no step of so many rows is recorded, and nothing was launched.
  Result<bool> Launch(int32_t num_rows, cudaStream_t stream);
  // Records what `launch` puts on the stream, if steps of so many rows were not yet tried. After
  // such a step has run as it is; `is_settled`: with the algorithms that it will have from now on,
  // on this GPU. The `patience`-th time that it had them on all, it is recorded. An error: the
  // device or another GPU has failed, not the recording.
  Status Record(int32_t num_rows, bool is_settled, int32_t patience,
                const std::function<Status()>& launch, cudaStream_t stream);

  int64_t num_launches() const { return num_launches_; }
  // Sizes that are launched kernel by kernel since their recording failed.
  int64_t num_refused() const { return recorded_.num_refused(); }
  // A fault for tests: every recording from now on is spoiled halfway.
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
