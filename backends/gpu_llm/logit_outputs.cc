#include "backends/gpu_llm/logit_outputs.h"

#include <algorithm>

#include "backends/gpu_llm/cuda/runtime.h"
#include "backends/gpu_llm/kernels/sampling/logits.h"
#include "backends/gpu_llm/kernels/sampling/top_tokens.h"
#include "backends/gpu_llm/step_drafts.h"

namespace nereid::gpu {

Result<LogitOutputs> LogitOutputs::Create(const StepLogits& logits, int32_t max_num_rows,
                                          int32_t max_num_tokens) {
  LogitOutputs outputs(logits, max_num_rows);
  NEREID_ASSIGN_OR_RETURN(outputs.log_probs_,
                          PinnedMemory::Allocate(size_t{8} * static_cast<size_t>(max_num_tokens)));
  return outputs;
}

Status LogitOutputs::AllocateTopTokens() {
  if (top_tokens_.size_bytes() > 0) return {};
  const size_t count = size_t{2} * kMaxTopTokens * static_cast<size_t>(max_num_rows_);
  NEREID_ASSIGN_OR_RETURN(top_tokens_, PinnedMemory::Allocate(8 * count));
  return {};
}

void LogitOutputs::Begin(int32_t buffer_index) {
  steps_[buffer_index].log_prob_rows.clear();
  steps_[buffer_index].top_tokens.clear();
}

Status LogitOutputs::Extract(const llm::StepBatch& batch, const Rows& rows, int32_t buffer_index,
                             HostLogits& host_logits, cudaStream_t stream,
                             llm::StepResult& result) {
  const auto count = static_cast<int32_t>(rows.owners.size());
  const int32_t log_probs_at =
      buffer_index * static_cast<int32_t>(log_probs_.size_bytes() / 8) + rows.first;
  bool any_logits = false, any_log_probs = false;
  for (int32_t i = 0; i < count; ++i) {
    const auto [owner, index] = rows.owners[i];
    const llm::BatchEntry& sequence = batch.entries[owner];
    any_logits |= sequence.returns_logits;
    if (index < static_cast<int32_t>(sequence.next_ids.size())) {
      any_log_probs = true;
      steps_[buffer_index].log_prob_rows.push_back({owner, log_probs_at + i});
    }
  }
  if (any_log_probs) {
    PickLogProbs({logits_.rows, rows.log_sums, rows.next_ids + rows.first,
                  log_probs_.as<float>() + log_probs_at, count, logits_.stride},
                 stream);
  }
  if (!any_logits) return {};
  NEREID_ASSIGN_OR_RETURN(const std::span<const float> logits, host_logits.Read(0, count, stream));
  result.logits.resize(batch.entries.size());
  const int64_t vocab_size = logits_.vocab_size;
  for (int32_t i = 0; i < count; ++i) {
    const auto [owner, index] = rows.owners[i];
    const llm::BatchEntry& sequence = batch.entries[owner];
    if (!sequence.returns_logits) continue;
    std::vector<float>& to = result.logits[owner];
    to.resize(sequence.num_logits * vocab_size);
    std::copy_n(logits.begin() + i * vocab_size, vocab_size, to.begin() + index * vocab_size);
  }
  return {};
}

// Beam candidates are ranked on the host, which has the rules.
Status LogitOutputs::FindCandidates(const llm::StepBatch& batch,
                                    std::span<const int32_t> first_rows, HostLogits& host_logits,
                                    cudaStream_t stream, llm::StepResult& result) {
  for (size_t i = 0; i < batch.entries.size(); ++i) {
    const llm::BatchEntry& sequence = batch.entries[i];
    if (sequence.num_candidates == 0 || !sequence.samples) continue;
    NEREID_ASSIGN_OR_RETURN(const std::span<float> logits,
                            host_logits.Read(first_rows[i], 1, stream));
    result.candidates.resize(batch.entries.size());
    result.candidates[i] = sampler_.Candidates(logits, sequence.sampling, sequence.num_candidates);
  }
  return {};
}

Status LogitOutputs::FindTopTokens(const llm::StepBatch& batch, std::span<const int32_t> first_rows,
                                   const float* log_sums, int32_t buffer_index,
                                   cudaStream_t stream) {
  NEREID_RETURN_IF_ERROR(AllocateTopTokens());
  const int32_t half = max_num_rows_ * kMaxTopTokens;  // ids of one of the two steps
  std::vector<TopTokens>& rows = steps_[buffer_index].top_tokens;
  TopTokensParams params = {};
  params.logits = logits_.rows;
  params.log_sums = log_sums;
  params.vocab_size = logits_.vocab_size;
  params.stride = logits_.stride;
  const auto launch = [&] {
    const auto first = static_cast<int32_t>(rows.size()) - params.num_rows;
    params.ids = top_tokens_.as<int32_t>() + buffer_index * half + first * kMaxTopTokens;
    params.log_probs = top_tokens_.as<float>() + (2 + buffer_index) * half + first * kMaxTopTokens;
    gpu::FindTopTokens(params, stream);
    params.num_rows = 0;
  };
  for (size_t i = 0; i < batch.entries.size(); ++i) {
    const llm::BatchEntry& sequence = batch.entries[i];
    if (sequence.num_top_tokens == 0 || first_rows[i] < 0) continue;
    const int32_t count =
        std::min({int32_t{sequence.num_top_tokens}, logits_.vocab_size, int32_t{kMaxTopTokens}});
    for (int32_t index = 0; index <= sequence.num_draft_tokens; ++index) {
      rows.push_back({static_cast<int32_t>(i), index, count});
      params.rows[params.num_rows] = first_rows[i] + index;
      params.counts[params.num_rows] = static_cast<uint8_t>(count);
      if (++params.num_rows == kMaxTopTokenRows) launch();
    }
  }
  if (params.num_rows > 0) launch();
  return CudaStatus(cudaGetLastError(), "most likely tokens");
}

void LogitOutputs::Take(int32_t buffer_index, size_t num_entries, llm::StepResult& result) const {
  const Step& step = steps_[buffer_index];
  for (const auto& [sequence, at] : step.log_prob_rows) {
    result.prompt_log_probs.resize(num_entries);
    result.prompt_log_probs[sequence].push_back(log_probs_.as<float>()[at]);
  }
  const int32_t half = max_num_rows_ * kMaxTopTokens;
  for (size_t i = 0; i < step.top_tokens.size(); ++i) {
    const auto [sequence, index, count] = step.top_tokens[i];
    if (index > 0 && !StepDrafts::IsAccepted(result, sequence, index - 1)) continue;
    const int32_t at = buffer_index * half + static_cast<int32_t>(i) * kMaxTopTokens;
    result.top_tokens.resize(num_entries);
    for (int32_t k = 0; k < count; ++k) {
      result.top_tokens[sequence].push_back(
          {top_tokens_.as<int32_t>()[at + k], top_tokens_.as<float>()[2 * half + at + k]});
    }
  }
}

}  // namespace nereid::gpu
