// What sequences request from the logits of a step besides its tokens: logits and log probabilities
// of their positions, the most likely tokens, and candidates of beams. They are taken before
// sampling rules change the logits. Two steps have their own results. [engine thread]
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/host_logits.h"
#include "backends/gpu_llm/step_plan.h"
#include "backends/llm_core/engine/batch.h"
#include "backends/llm_core/sampling/sampler.h"
#include "nereid/status.h"

namespace nereid::gpu {

class LogitOutputs {
 public:
  // Of steps of up to `max_num_tokens` tokens and `max_num_rows` sampled ones.
  static Result<LogitOutputs> Create(const StepLogits& logits, int32_t max_num_rows,
                                     int32_t max_num_tokens);
  LogitOutputs(LogitOutputs&&) noexcept = default;
  // Allocates the memory of the most likely tokens, which otherwise the first request does.
  Status AllocateTopTokens();

  // Begins a step. The previous step of this buffer (0 or 1) was collected.
  void Begin(int32_t buffer_index);
  // Some consecutive rows of the step's logit rows, from `first` on. They are the first rows of the
  // logits.
  struct Rows {
    std::span<const StepPlanner::LogitRow> owners;
    int32_t first;
    const int32_t* next_ids;  // of all logit rows of the step, on the device
    const float* log_sums;    // of these rows
  };
  // Takes the logits and the log probabilities that sequences request of the rows. Waits for the
  // step if logits are requested, which go to `result`.
  Status Extract(const llm::StepBatch& batch, const Rows& rows, int32_t buffer_index,
                 HostLogits& host_logits, cudaStream_t stream, llm::StepResult& result);
  // Ranks the candidates of beams. `first_rows`: the first sampled row of each entry; -1: the entry
  // is not sampled. Waits for the step if there are beams.
  Status FindCandidates(const llm::StepBatch& batch, std::span<const int32_t> first_rows,
                        HostLogits& host_logits, cudaStream_t stream, llm::StepResult& result);
  // Launches the search for the most likely tokens.
  Status FindTopTokens(const llm::StepBatch& batch, std::span<const int32_t> first_rows,
                       const float* log_sums, int32_t buffer_index, cudaStream_t stream);

  // Moves log probabilities and the most likely tokens to the result of a step that has completed
  // and whose drafts were compared.
  void Take(int32_t buffer_index, size_t num_entries, llm::StepResult& result) const;

 private:
  LogitOutputs(const StepLogits& logits, int32_t max_num_rows)
      : logits_(logits), max_num_rows_(max_num_rows) {}

  // Rows whose most likely tokens are in top_tokens_, in its order.
  struct TopTokens {
    int32_t sequence, index, count;  // index: of the sequence's sampled positions
  };
  struct Step {
    std::vector<std::pair<int32_t, int32_t>> log_prob_rows;  // of a sequence: index in log_probs_
    std::vector<TopTokens> top_tokens;
  };

  StepLogits logits_;
  int32_t max_num_rows_;
  llm::Sampler sampler_;
  PinnedMemory log_probs_;  // [2, tokens of a step]: of prompt tokens
  // [2, max_num_rows, kMaxTopTokens] ids, then as many log probabilities
  PinnedMemory top_tokens_;
  std::array<Step, 2> steps_;
};

}  // namespace nereid::gpu
