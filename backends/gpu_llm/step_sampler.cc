#include "backends/gpu_llm/step_sampler.h"

#include <algorithm>

#include "backends/gpu_llm/cuda/runtime.h"
#include "backends/gpu_llm/step_drafts.h"

namespace nereid::gpu {

// The masks are allocated before the KV cache takes the memory that is left, so that a request with
// a grammar cannot fail for want of it.
Result<StepSampler> StepSampler::Create(const StepLogits& logits, int32_t max_num_rows,
                                        bool draws) {
  StepSampler sampler(logits, max_num_rows, draws);
  const auto rows = static_cast<size_t>(max_num_rows);
  NEREID_ASSIGN_OR_RETURN(sampler.partials_,
                          DeviceMemory::Allocate(sizeof(PartialArgMax) * kArgMaxSplits * rows,
                                                 "partial results of sampling"));
  NEREID_ASSIGN_OR_RETURN(sampler.tickets_,
                          DeviceMemory::Allocate(4 * rows, "sampling's counters"));
  NEREID_RETURN_IF_CUDA_ERROR(
      cudaMemset(sampler.tickets_.data(), 0, sampler.tickets_.size_bytes()));
  NEREID_ASSIGN_OR_RETURN(sampler.log_sums_, DeviceMemory::Allocate(4 * rows, "log sums"));
  NEREID_ASSIGN_OR_RETURN(sampler.sampled_, PinnedMemory::Allocate(16 * rows));
  if (!draws) return sampler;
  const size_t mask_bytes = 4 * rows * static_cast<size_t>(llm::TokenMaskWords(logits.vocab_size));
  NEREID_ASSIGN_OR_RETURN(sampler.masks_,
                          DeviceMemory::Allocate(mask_bytes, "the masks of grammars"));
  NEREID_ASSIGN_OR_RETURN(sampler.host_masks_, PinnedMemory::Allocate(2 * mask_bytes));
  return sampler;
}

SampleTarget StepSampler::Target(const Launch& launch) const {
  const StepLayout layout(launch.shape);
  SampleTarget target = {};
  target.buffer_index = launch.upload.words() + layout.buffer_index;
  target.ids = sampled_.as<int32_t>();
  target.log_probs = sampled_.as<float>() + 2 * max_num_rows_;
  target.slots = launch.upload.words() + layout.logit_slots;
  target.last_tokens = logits_.last_tokens;
  target.max_num_rows = max_num_rows_;
  return target;
}

void StepSampler::FindMostLikely(const Launch& launch, int32_t first, int32_t count) {
  ArgMaxParams params = {};
  params.logits = logits_.rows;
  params.partials = partials_.as<PartialArgMax>();
  params.tickets = tickets_.as<int32_t>();
  params.log_sums = log_sums_.as<float>();
  params.target = Target(launch);
  params.target.slots += first;
  params.num_rows = count;
  params.vocab_size = logits_.stride;
  if (launch.timer != nullptr)
    launch.timer->Mark("most likely token", {4.0 * count * params.vocab_size}, launch.stream);
  ArgMax(params, launch.stream);
}

Status StepSampler::Draw(const Launch& launch, const llm::StepBatch& batch, int32_t buffer_index,
                         HostLogits& host_logits) {
  if (!draws_) return {};
  if (batch.has_token_masks)
    NEREID_RETURN_IF_ERROR(UploadMasks(batch, buffer_index, launch.stream));
  NEREID_RETURN_IF_ERROR(DrawOnDevice(launch));
  return DrawRowsOnHost(batch, buffer_index, host_logits, launch.stream);
}

// The engine's mask threads compute the masks while the executor launches the model.
Status StepSampler::UploadMasks(const llm::StepBatch& batch, int32_t buffer_index,
                                cudaStream_t stream) {
  const auto num_words = static_cast<size_t>(llm::TokenMaskWords(logits_.vocab_size));
  batch.wait_for_masks();
  const auto masks = draw_planner_.masks();
  if (masks.empty()) return {};  // all of these rows are sampled on the host
  uint32_t* const first = host_masks_.as<uint32_t>() + buffer_index * (masks_.size_bytes() / 4);
  for (size_t i = 0; i < masks.size(); ++i) {
    std::copy_n(masks[i].begin(), std::min(num_words, masks[i].size()), first + i * num_words);
  }
  return CudaStatus(cudaMemcpyAsync(masks_.data(), first, 4 * num_words * masks.size(),
                                    cudaMemcpyHostToDevice, stream),
                    "the masks of grammars");
}

Status StepSampler::DrawOnDevice(const Launch& launch) {
  if (items().empty()) return {};
  DrawParams params = {};
  params.logits = logits_.rows;
  params.log_sums = log_sums_.as<float>();
  params.items = launch.upload.items();
  params.edits = launch.upload.edits();
  params.masks = masks_.as<uint32_t>();
  params.mask_words = static_cast<int>(llm::TokenMaskWords(logits_.vocab_size));
  params.target = Target(launch);
  params.num_items = static_cast<int>(items().size());
  params.vocab_size = logits_.stride;
  if (launch.timer != nullptr)
    launch.timer->Mark("draw", {4.0 * params.num_items * params.vocab_size}, launch.stream);
  DrawTokens(params, launch.stream);
  return CudaStatus(cudaGetLastError(), "drawing");
}

Status StepSampler::DrawRowsOnHost(const llm::StepBatch& batch, int32_t buffer_index,
                                   HostLogits& host_logits, cudaStream_t stream) {
  // Rows behind a rejected draft of a chain are not read. Those of a tree are, whose drafts may
  // have siblings.
  int32_t rejected = -1;  // the entry
  for (const DrawPlanner::HostDraw& draw : draw_planner_.on_host()) {
    if (draw.sequence == rejected) continue;
    NEREID_ASSIGN_OR_RETURN(const int32_t token,
                            DrawOnHost(batch, draw, buffer_index, host_logits, stream));
    const llm::BatchEntry& sequence = batch.entries[draw.sequence];
    if (draw.index < sequence.num_draft_tokens && sequence.draft_parents.empty() &&
        !sequence.returns_row_tokens &&
        token != llm::DraftTokens(batch.token_ids, sequence)[draw.index]) {
      rejected = draw.sequence;
    }
  }
  return {};
}

Result<int32_t> StepSampler::DrawOnHost(const llm::StepBatch& batch,
                                        const DrawPlanner::HostDraw& draw, int32_t buffer_index,
                                        HostLogits& host_logits, cudaStream_t stream) {
  NEREID_ASSIGN_OR_RETURN(const std::span<float> logits, host_logits.Read(draw.row, 1, stream));
  const llm::BatchEntry& sequence = batch.entries[draw.sequence];
  llm::SamplingInput input = sequence.sampling;
  std::vector<int32_t> tokens(input.token_ids.begin(), input.token_ids.end());
  const auto drafts = llm::DraftTokens(batch.token_ids, sequence);
  AppendDraftsBefore(drafts, sequence.draft_parents, draw.index, tokens);
  input.token_ids = tokens;
  const size_t mask_words = sequence.token_masks.size() / (1 + sequence.num_draft_tokens);
  input.token_mask = sequence.token_masks.subspan(draw.index * mask_words, mask_words);
  const auto vocab_size = static_cast<size_t>(logits_.vocab_size);
  const bool is_drawn = draw.index < sequence.num_draft_tokens && !sequence.draft_logits.empty() &&
                        sequence.draft_parents.empty();
  const llm::SampledToken token =
      is_drawn ? sampler_.Verify(
                     logits, input,
                     {.id = drafts[draw.index],
                      .logits = sequence.draft_logits.subspan(draw.index * vocab_size, vocab_size),
                      .threshold = sequence.draft_threshold})
               : sampler_.Sample(logits, input);
  const int32_t at = buffer_index * max_num_rows_ + draw.row;
  sampled_.as<int32_t>()[at] = token.id;
  sampled_.as<float>()[2 * max_num_rows_ + at] = token.log_prob;
  // The slot keeps the valid id of FindMostLikely; with draft tokens, nothing reads it.
  if (token.id == llm::kNoToken || sequence.num_draft_tokens > 0) return token.id;
  NEREID_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(logits_.last_tokens + sequence.slot,
                                              sampled_.as<int32_t>() + at, 4,
                                              cudaMemcpyHostToDevice, stream));
  return token.id;
}

}  // namespace nereid::gpu
