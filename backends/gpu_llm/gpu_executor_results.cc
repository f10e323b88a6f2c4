// GpuExecutor: logits, draws and what a step returns. [engine thread]
#include <algorithm>
#include <cstring>

#include "backends/gpu_llm/cuda/runtime.h"
#include "backends/gpu_llm/gpu_executor.h"
#include "backends/gpu_llm/kernels/forms.h"
#include "backends/gpu_llm/kernels/sampling/logits.h"
#include "backends/gpu_llm/kernels/sampling/sample.h"
#include "backends/gpu_llm/kernels/sampling/top_tokens.h"

namespace nereid::gpu {

SampleTarget GpuExecutor::Target(const StepShape& shape) const {
  const StepLayout layout(shape);
  SampleTarget target = {};
  target.buffer_index = words_.as<int32_t>() + layout.buffer_index;
  target.ids = sampled_.as<int32_t>();
  target.log_probs = sampled_.as<float>() + 2 * max_num_logits_;
  target.slots = words_.as<int32_t>() + layout.logit_slots;
  target.last_tokens = decoder_->last_tokens();
  target.max_num_rows = max_num_logits_;
  return target;
}

Status GpuExecutor::Run(const StepShape& shape, bool may_time) {
  NEREID_RETURN_IF_ERROR(decoder_->Forward(shape, words_.as<int32_t>(), may_time, stream_.get()));
  return RunHead(shape, may_time);
}

Status GpuExecutor::RunHead(const StepShape& shape, bool may_time) {
  if (shape.num_sampled == 0) return {};
  NEREID_RETURN_IF_ERROR(decoder_->ComputeLogits(shape, words_.as<int32_t>(), 0, shape.num_sampled,
                                                 may_time, stream_.get()));
  if (options_.rank == 0) FindMostLikely(shape, 0, shape.num_sampled);
  return CudaStatus(cudaGetLastError(), "sampling");
}

void GpuExecutor::FindMostLikely(const StepShape& shape, int32_t first, int32_t count) {
  ArgMaxParams params = {};
  params.logits = decoder_->logits();
  params.partials = argmax_partials_.as<PartialArgMax>();
  params.tickets = argmax_tickets_.as<int32_t>();
  params.log_sums = log_sums_.as<float>();
  params.target = Target(shape);
  params.target.slots += first;
  params.num_rows = count;
  params.vocab_size = decoder_->logits_stride();
  if (timer_ != nullptr)
    timer_->Mark("most likely token", {4.0 * count * params.vocab_size}, stream_.get());
  ArgMax(params, stream_.get());
}

Status GpuExecutor::ComputeUnsampledRows(const llm::StepBatch& batch, const StepShape& shape,
                                         int32_t buffer_index) {
  for (int32_t first = shape.num_sampled; first < shape.num_logits; first += max_num_logits_) {
    const int32_t count = std::min(max_num_logits_, shape.num_logits - first);
    NEREID_RETURN_IF_ERROR(
        decoder_->ComputeLogits(shape, words_.as<int32_t>(), first, count, true, stream_.get()));
    if (options_.rank > 0) continue;
    FindMostLikely(shape, first, count);
    NEREID_RETURN_IF_ERROR(ExtractRows(batch, shape, first, count, buffer_index));
    num_logits_ = count;
  }
  return CudaStatus(cudaGetLastError(), "rows of logits");
}

Status GpuExecutor::ExtractRows(const llm::StepBatch& batch, const StepShape& shape, int32_t first,
                                int32_t count, int32_t buffer_index) {
  InFlightStep& in_flight = in_flight_[buffer_index];
  const auto rows = planner_.logit_rows().subspan(first, count);
  bool any_logits = false, any_log_probs = false;
  const int32_t log_probs_at = buffer_index * static_cast<int32_t>(log_probs_.size_bytes() / 8);
  for (int32_t i = 0; i < count; ++i) {
    const llm::BatchEntry& sequence = batch.entries[rows[i].sequence];
    any_logits |= sequence.returns_logits;
    if (rows[i].index < static_cast<int32_t>(sequence.next_ids.size())) {
      any_log_probs = true;
      in_flight.log_prob_rows.push_back({rows[i].sequence, log_probs_at + first + i});
    }
  }
  if (any_log_probs) {
    PickLogProbs({decoder_->logits(), log_sums_.as<float>(),
                  words_.as<int32_t>() + StepLayout(shape).next_ids + first,
                  log_probs_.as<float>() + log_probs_at + first, count, decoder_->logits_stride()},
                 stream_.get());
  }
  if (!any_logits) return {};
  NEREID_RETURN_IF_ERROR(CopyRows(0, count));
  in_flight.result.logits.resize(batch.entries.size());
  const int64_t vocab_size = limits_.vocab_size;
  for (int32_t i = 0; i < count; ++i) {
    const llm::BatchEntry& sequence = batch.entries[rows[i].sequence];
    if (!sequence.returns_logits) continue;
    std::vector<float>& to = in_flight.result.logits[rows[i].sequence];
    to.resize(sequence.num_logits * vocab_size);
    std::copy_n(host_logits_.begin() + i * vocab_size, vocab_size,
                to.begin() + rows[i].index * vocab_size);
  }
  return {};
}

// Copies rows of logits() to host_logits_ and waits.
Status GpuExecutor::CopyRows(int32_t first, int32_t count) {
  const int64_t row_bytes = int64_t{limits_.vocab_size} * 4;
  const int64_t stride = decoder_->logits_stride();
  host_logits_.resize(int64_t{limits_.vocab_size} * count);
  NEREID_RETURN_IF_CUDA_ERROR(
      cudaMemcpy2DAsync(host_logits_.data(), row_bytes, decoder_->logits() + first * stride,
                        stride * 4, row_bytes, count, cudaMemcpyDeviceToHost, stream_.get()));
  return CudaStatus(cudaStreamSynchronize(stream_.get()), "rows of logits");
}

// Beam candidates are ranked on the host, which has the rules.
Status GpuExecutor::FindCandidates(const llm::StepBatch& batch, int32_t buffer_index) {
  InFlightStep& in_flight = in_flight_[buffer_index];
  for (size_t i = 0; i < batch.entries.size(); ++i) {
    const llm::BatchEntry& sequence = batch.entries[i];
    if (sequence.num_candidates == 0 || !sequence.samples) continue;
    NEREID_RETURN_IF_ERROR(CopyRows(in_flight.rows[i], 1));
    in_flight.result.candidates.resize(batch.entries.size());
    in_flight.result.candidates[i] =
        sampler_.Candidates(host_logits_, sequence.sampling, sequence.num_candidates);
  }
  return {};
}

Status GpuExecutor::MakeTopTokens() {
  if (top_tokens_.size_bytes() > 0) return {};
  const size_t count = size_t{2} * kMaxTopTokens * static_cast<size_t>(max_num_logits_);
  NEREID_ASSIGN_OR_RETURN(top_tokens_, PinnedMemory::Allocate(8 * count));
  return {};
}

Status GpuExecutor::FindTopTokensOfRows(const llm::StepBatch& batch, int32_t buffer_index) {
  const int32_t half = max_num_logits_ * kMaxTopTokens;  // ids of one of the two steps
  NEREID_RETURN_IF_ERROR(MakeTopTokens());
  InFlightStep& in_flight = in_flight_[buffer_index];
  TopTokensParams params = {};
  params.logits = decoder_->logits();
  params.log_sums = log_sums_.as<float>();
  params.vocab_size = limits_.vocab_size;
  params.stride = decoder_->logits_stride();
  const auto launch = [&] {
    const auto first = static_cast<int32_t>(in_flight.top_tokens.size()) - params.num_rows;
    params.ids = top_tokens_.as<int32_t>() + buffer_index * half + first * kMaxTopTokens;
    params.log_probs = top_tokens_.as<float>() + (2 + buffer_index) * half + first * kMaxTopTokens;
    FindTopTokens(params, stream_.get());
    params.num_rows = 0;
  };
  for (size_t i = 0; i < batch.entries.size(); ++i) {
    const llm::BatchEntry& sequence = batch.entries[i];
    if (sequence.num_top_tokens == 0 || in_flight.rows[i] < 0) continue;
    const int32_t count =
        std::min({int32_t{sequence.num_top_tokens}, limits_.vocab_size, int32_t{kMaxTopTokens}});
    for (int32_t index = 0; index <= sequence.num_draft_tokens; ++index) {
      in_flight.top_tokens.push_back({static_cast<int32_t>(i), index, count});
      params.rows[params.num_rows] = in_flight.rows[i] + index;
      params.counts[params.num_rows] = static_cast<uint8_t>(count);
      if (++params.num_rows == kMaxTopTokenRows) launch();
    }
  }
  if (params.num_rows > 0) launch();
  return CudaStatus(cudaGetLastError(), "most likely tokens");
}

// Before the KV cache takes the memory that is left, so that a request with a grammar cannot fail
// for want of it.
Status GpuExecutor::MakeMasks() {
  if (options_.rank != 0) return {};
  const size_t size_bytes = size_t{4} * static_cast<size_t>(max_num_logits_) *
                            static_cast<size_t>(llm::TokenMaskWords(limits_.vocab_size));
  NEREID_ASSIGN_OR_RETURN(masks_, DeviceMemory::Allocate(size_bytes, "the masks of grammars"));
  NEREID_ASSIGN_OR_RETURN(host_masks_, PinnedMemory::Allocate(2 * size_bytes));
  return {};
}

// Copies the masks of a step to the device. The engine's mask threads compute them while the
// executor launches the model.
Status GpuExecutor::UploadMasks(const llm::StepBatch& batch, int32_t buffer_index) {
  const auto num_words = static_cast<size_t>(llm::TokenMaskWords(limits_.vocab_size));
  batch.wait_for_masks();
  const auto masks = draw_planner_.masks();
  if (masks.empty()) return {};  // all of these rows are sampled on the host
  uint32_t* const first = host_masks_.as<uint32_t>() + buffer_index * (masks_.size_bytes() / 4);
  for (size_t i = 0; i < masks.size(); ++i) {
    std::copy_n(masks[i].begin(), std::min(num_words, masks[i].size()), first + i * num_words);
  }
  return CudaStatus(cudaMemcpyAsync(masks_.data(), first, 4 * num_words * masks.size(),
                                    cudaMemcpyHostToDevice, stream_.get()),
                    "the masks of grammars");
}

Status GpuExecutor::Draw(const StepShape& shape) {
  if (draw_planner_.items().empty()) return {};
  DrawParams params = {};
  params.logits = decoder_->logits();
  params.log_sums = log_sums_.as<float>();
  const size_t items_at = (planner_.words().size_bytes() + 15) / 16 * 16;
  const size_t edits_at = items_at + (draw_planner_.items().size_bytes() + 15) / 16 * 16;
  params.items = reinterpret_cast<const DrawItem*>(words_.as<char>() + items_at);
  params.edits = reinterpret_cast<LogitEdit*>(words_.as<char>() + edits_at);
  params.masks = masks_.as<uint32_t>();
  params.mask_words = static_cast<int>(llm::TokenMaskWords(limits_.vocab_size));
  params.target = Target(shape);
  params.num_items = static_cast<int>(draw_planner_.items().size());
  params.vocab_size = decoder_->logits_stride();
  if (timer_ != nullptr)
    timer_->Mark("draw", {4.0 * params.num_items * params.vocab_size}, stream_.get());
  DrawTokens(params, stream_.get());
  return CudaStatus(cudaGetLastError(), "drawing");
}

Status GpuExecutor::DrawRowsOnHost(const llm::StepBatch& batch, int32_t buffer_index) {
  // Rows behind a rejected draft of a chain are not read. Those of a tree are, whose drafts may
  // have siblings.
  int32_t rejected = -1;  // the entry
  for (const DrawPlanner::HostDraw& draw : draw_planner_.on_host()) {
    if (draw.sequence == rejected) continue;
    NEREID_ASSIGN_OR_RETURN(const int32_t token, DrawOnHost(batch, draw, buffer_index));
    const llm::BatchEntry& sequence = batch.entries[draw.sequence];
    if (draw.index < sequence.num_draft_tokens && sequence.draft_parents.empty() &&
        !sequence.returns_row_tokens &&
        token != llm::DraftTokens(batch.token_ids, sequence)[draw.index]) {
      rejected = draw.sequence;
    }
  }
  return {};
}

Result<int32_t> GpuExecutor::DrawOnHost(const llm::StepBatch& batch,
                                        const DrawPlanner::HostDraw& draw, int32_t buffer_index) {
  NEREID_RETURN_IF_ERROR(CopyRows(draw.row, 1));
  const llm::BatchEntry& sequence = batch.entries[draw.sequence];
  llm::SamplingInput input = sequence.sampling;
  std::vector<int32_t> tokens(input.token_ids.begin(), input.token_ids.end());
  const auto drafts = llm::DraftTokens(batch.token_ids, sequence);
  AppendDraftsBefore(drafts, sequence.draft_parents, draw.index, tokens);
  input.token_ids = tokens;
  const size_t mask_words = sequence.token_masks.size() / (1 + sequence.num_draft_tokens);
  input.token_mask = sequence.token_masks.subspan(draw.index * mask_words, mask_words);
  const auto vocab_size = static_cast<size_t>(limits_.vocab_size);
  const bool is_drawn = draw.index < sequence.num_draft_tokens && !sequence.draft_logits.empty() &&
                        sequence.draft_parents.empty();
  const llm::SampledToken token =
      is_drawn ? sampler_.Verify(
                     host_logits_, input,
                     {.id = drafts[draw.index],
                      .logits = sequence.draft_logits.subspan(draw.index * vocab_size, vocab_size),
                      .threshold = sequence.draft_threshold})
               : sampler_.Sample(host_logits_, input);
  const int32_t at = buffer_index * max_num_logits_ + draw.row;
  sampled_.as<int32_t>()[at] = token.id;
  sampled_.as<float>()[2 * max_num_logits_ + at] = token.log_prob;
  // The slot keeps the valid id of FindMostLikely; with draft tokens, nothing reads it.
  if (token.id == llm::kNoToken || sequence.num_draft_tokens > 0) return token.id;
  NEREID_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(decoder_->last_tokens() + sequence.slot,
                                              sampled_.as<int32_t>() + at, 4,
                                              cudaMemcpyHostToDevice, stream_.get()));
  return token.id;
}

Result<llm::StepResult> GpuExecutor::Collect() {
  NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(options_.device));
  const auto buffer_index = static_cast<int32_t>(num_collected_ % 2);
  InFlightStep& in_flight = in_flight_[buffer_index];
  NEREID_RETURN_IF_CUDA_ERROR(cudaEventSynchronize(in_flight.done.get()));
  if (options_.group != nullptr) NEREID_RETURN_IF_ERROR(options_.group->status());
  if (timer_ != nullptr) NEREID_RETURN_IF_ERROR(timer_->Collect());
  ++num_collected_;
  if (num_collected_ == num_submitted_) last_collect_ = std::chrono::steady_clock::now();
  llm::StepResult result = std::move(in_flight.result);
  if (options_.rank > 0) return result;
  result.tokens.resize(in_flight.rows.size());
  for (const auto& [sequence, at] : in_flight.log_prob_rows) {
    result.prompt_log_probs.resize(in_flight.rows.size());
    result.prompt_log_probs[sequence].push_back(log_probs_.as<float>()[at]);
  }
  TakeHiddenStates(in_flight, result);
  for (size_t i = 0; i < in_flight.rows.size(); ++i) {
    if (in_flight.rows[i] < 0) continue;
    const int32_t first = buffer_index * max_num_logits_ + in_flight.rows[i];
    in_flight.drafts.Accept(i, sampled_.as<int32_t>() + first,
                            sampled_.as<float>() + 2 * max_num_logits_ + first, result);
  }
  NEREID_RETURN_IF_ERROR(MoveAccepted(in_flight.drafts, buffer_index));
  for (size_t i = 0; i < in_flight.top_tokens.size(); ++i) {
    const auto [sequence, index, count] = in_flight.top_tokens[i];
    if (index > 0 && !StepDrafts::IsAccepted(result, sequence, index - 1)) continue;
    const int32_t half = max_num_logits_ * kMaxTopTokens;
    const int32_t at = buffer_index * half + static_cast<int32_t>(i) * kMaxTopTokens;
    result.top_tokens.resize(in_flight.rows.size());
    for (int32_t k = 0; k < count; ++k) {
      result.top_tokens[sequence].push_back(
          {top_tokens_.as<int32_t>()[at + k], top_tokens_.as<float>()[2 * half + at + k]});
    }
  }
  return result;
}

Status GpuExecutor::MoveAccepted(const StepDrafts& drafts, int32_t buffer_index) {
  const auto moves = drafts.moves();
  const auto ranges = drafts.ranges();
  if (moves.empty()) return {};
  const auto half = static_cast<size_t>(max_num_logits_) * (sizeof(TokenMove) + sizeof(MoveRange));
  if (moves_.size_bytes() == 0) {
    NEREID_ASSIGN_OR_RETURN(moves_, PinnedMemory::Allocate(2 * half));
  }
  // The moves of the step before the previous one have ended: a step that followed them has.
  auto* const to_moves = reinterpret_cast<TokenMove*>(moves_.as<char>() + buffer_index * half);
  auto* const to_ranges = reinterpret_cast<MoveRange*>(to_moves + max_num_logits_);
  std::copy(moves.begin(), moves.end(), to_moves);
  std::copy(ranges.begin(), ranges.end(), to_ranges);
  return decoder_->MoveTokens(to_moves, to_ranges, static_cast<int>(ranges.size()), stream_.get());
}

Result<std::vector<float>> GpuExecutor::ReadLogits() {
  std::vector<float> logits(int64_t{num_logits_} * limits_.vocab_size);
  NEREID_RETURN_IF_CUDA_ERROR(
      cudaMemcpy2D(logits.data(), int64_t{limits_.vocab_size} * 4, decoder_->logits(),
                   int64_t{decoder_->logits_stride()} * 4, int64_t{limits_.vocab_size} * 4,
                   num_logits_, cudaMemcpyDeviceToHost));
  return logits;
}

}  // namespace nereid::gpu
