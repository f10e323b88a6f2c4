// Samples the tokens of a step from its logits: the most likely token of every row, then the draws
// of rows with sampling parameters or rules, on the device or, where rules change too many logits,
// on the host. Sampled ids stay on the device, where the next step reads them, and come to pinned
// memory, where two steps have their rows. [engine thread]
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/draw_plan.h"
#include "backends/gpu_llm/host_logits.h"
#include "backends/gpu_llm/kernels/sampling/sample.h"
#include "backends/gpu_llm/operator_timer.h"
#include "backends/gpu_llm/step_plan.h"
#include "backends/gpu_llm/step_upload.h"
#include "backends/llm_core/engine/batch.h"
#include "backends/llm_core/sampling/sampler.h"
#include "nereid/status.h"

namespace nereid::gpu {

// Logits that rules may change in one step, 16 bytes each.
inline constexpr int32_t kMaxLogitEdits = 1 << 16;

class StepSampler {
 public:
  // For logits of up to `max_num_rows` rows. `draws`: this GPU samples; the others of a group only
  // have its tokens.
  static Result<StepSampler> Create(const StepLogits& logits, int32_t max_num_rows, bool draws);
  StepSampler(StepSampler&&) noexcept = default;

  // Plans the draws of a step: items() and edits() are uploaded with the step's plan.
  void Plan(const llm::StepBatch& batch) {
    if (draws_) draw_planner_.Plan(batch);
  }
  std::span<const DrawItem> items() const { return draw_planner_.items(); }
  std::span<const LogitEdit> edits() const { return draw_planner_.edits(); }

  // What the following calls read and launch. All borrowed.
  struct Launch {
    const StepShape& shape;
    const StepUpload& upload;
    OperatorTimer* timer;  // null: no profile
    cudaStream_t stream;
  };
  // Finds the most likely token and the log sum of rows [first, first + count) of the step's logit
  // rows, which are the first rows of the logits.
  void FindMostLikely(const Launch& launch, int32_t first, int32_t count);
  // Draws the planned rows. `buffer_index`: of the step. Waits for the step if the host draws some.
  Status Draw(const Launch& launch, const llm::StepBatch& batch, int32_t buffer_index,
              HostLogits& host_logits);

  // Of a step that has completed: by row of logits.
  const int32_t* ids(int32_t buffer_index) const {
    return sampled_.as<int32_t>() + buffer_index * max_num_rows_;
  }
  const float* log_probs(int32_t buffer_index) const {
    return sampled_.as<float>() + (2 + buffer_index) * max_num_rows_;
  }
  // On the device: of the rows of the newest FindMostLikely.
  const float* log_sums() const { return log_sums_.as<float>(); }
  size_t device_bytes() const { return partials_.size_bytes(); }
  size_t pinned_bytes() const { return sampled_.size_bytes(); }

 private:
  StepSampler(const StepLogits& logits, int32_t max_num_rows, bool draws)
      : logits_(logits),
        max_num_rows_(max_num_rows),
        draws_(draws),
        draw_planner_(logits.vocab_size, kMaxLogitEdits) {}
  SampleTarget Target(const Launch& launch) const;
  // Waits for the masks of the step's grammars and copies them to the device.
  Status UploadMasks(const llm::StepBatch& batch, int32_t buffer_index, cudaStream_t stream);
  Status DrawOnDevice(const Launch& launch);
  // Samples the rows on the host whose rules change too many logits for the plan, and verifies
  // drafts with logits. Copies one row of logits for each of them.
  Status DrawRowsOnHost(const llm::StepBatch& batch, int32_t buffer_index, HostLogits& host_logits,
                        cudaStream_t stream);
  // Returns the token of one such row.
  Result<int32_t> DrawOnHost(const llm::StepBatch& batch, const DrawPlanner::HostDraw& draw,
                             int32_t buffer_index, HostLogits& host_logits, cudaStream_t stream);

  StepLogits logits_;
  int32_t max_num_rows_;
  bool draws_;
  DrawPlanner draw_planner_;
  llm::Sampler sampler_;
  DeviceMemory partials_, tickets_, log_sums_;  // of the most likely tokens
  PinnedMemory sampled_;  // [2, max_num_rows] ids, then as many log probabilities
  // [max_num_rows, words of a mask], and twice as much on the host; empty without draws.
  DeviceMemory masks_;
  PinnedMemory host_masks_;
};

}  // namespace nereid::gpu
