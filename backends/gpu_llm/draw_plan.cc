// DrawPlanner: turns sampling rules into draw items and logit edits. [engine thread]
#include "backends/gpu_llm/draw_plan.h"

#include <cmath>
#include <limits>

#include "backends/gpu_llm/step_drafts.h"

namespace nereid::gpu {

void DrawPlanner::Plan(const llm::StepBatch& batch) {
  items_.clear();
  edits_.clear();
  masks_.clear();
  on_host_.clear();
  int32_t row = 0;
  for (size_t i = 0; i < batch.entries.size(); ++i) {
    const llm::BatchEntry& sequence = batch.entries[i];
    if (!sequence.samples) continue;
    const int32_t first_row = row, num_rows = 1 + sequence.num_draft_tokens;
    row += num_rows;
    if (sequence.num_candidates > 0) continue;  // beam candidates: nothing is sampled
    llm::SamplingInput input = sequence.sampling;
    const llm::SamplingParams& params = *input.params;
    const bool edits = params.changes_logits() || !input.banned_ids.empty();
    if (params.is_greedy() && !edits && sequence.token_masks.empty()) continue;
    const bool verifies =
        !sequence.draft_logits.empty() && sequence.draft_parents.empty() && !params.is_greedy();
    const size_t num_known = input.token_ids.size();
    const size_t mask_words = sequence.token_masks.size() / num_rows;
    const auto drafts = llm::DraftTokens(batch.token_ids, sequence);
    if (num_rows > 1) with_drafts_.assign(input.token_ids.begin(), input.token_ids.end());
    for (int32_t index = 0; index < num_rows; ++index) {
      const HostDraw at = {static_cast<int32_t>(i), index, first_row + index};
      if (verifies && index < sequence.num_draft_tokens) {
        on_host_.push_back(at);
        continue;
      }
      if (index > 0) {
        with_drafts_.resize(num_known);
        AppendDraftsBefore(drafts, sequence.draft_parents, index, with_drafts_);
        input.token_ids = with_drafts_;
      }
      Add(at, input, sequence.token_masks.subspan(index * mask_words, mask_words));
    }
  }
}

void DrawPlanner::Add(const HostDraw& at, const llm::SamplingInput& input,
                      std::span<const uint32_t> token_mask) {
  const llm::SamplingParams& params = *input.params;
  const bool edits = params.changes_logits() || !input.banned_ids.empty();
  DrawItem item = {};
  item.row = at.row;
  item.is_greedy = params.is_greedy() ? 1 : 0;
  item.first_edit = static_cast<int32_t>(edits_.size());
  const bool fits = !edits || AddEdits(input);
  item.num_edits = static_cast<int32_t>(edits_.size()) - item.first_edit;
  for (const LogitEdit& edit : std::span(edits_).subspan(item.first_edit)) edit_of_[edit.id] = -1;
  if (!fits) {
    edits_.resize(item.first_edit);
    on_host_.push_back(at);
    return;
  }
  item.scale = item.is_greedy != 0 ? 1.0f : 1.0f / params.temperature;
  item.top_k = params.top_k;
  item.top_p = llm::DecayedTopP(params, input.token_ids.subspan(input.num_prompt));
  item.log_min_p =
      params.min_p > 0.0f ? std::log(params.min_p) : -std::numeric_limits<float>::infinity();
  item.repetition_penalty = params.repetition_penalty;
  item.presence_penalty = params.presence_penalty;
  item.frequency_penalty = params.frequency_penalty;
  item.position = static_cast<uint32_t>(input.token_ids.size());
  item.seed_low = static_cast<uint32_t>(params.seed);
  item.seed_high = static_cast<uint32_t>(params.seed >> 32);
  item.mask_row = -1;
  if (!token_mask.empty()) {
    item.mask_row = static_cast<int32_t>(masks_.size());
    masks_.push_back(token_mask);
  }
  items_.push_back(item);
}

LogitEdit* DrawPlanner::Edit(int32_t id) {
  if (edit_of_[id] < 0) {
    if (edits_.size() >= static_cast<size_t>(max_num_edits_)) return nullptr;
    edit_of_[id] = static_cast<int32_t>(edits_.size());
    edits_.push_back({id, 0, 0.0f, 0.0f});
  }
  return &edits_[edit_of_[id]];
}

bool DrawPlanner::AddEdits(const llm::SamplingInput& input) {
  const llm::SamplingParams& params = *input.params;
  // All other tokens are banned, which is nearly the whole vocabulary.
  if (!params.allowed_ids.empty()) return false;
  for (size_t id = 0; id < params.embedding_bias.size(); ++id) {
    if (params.embedding_bias[id] == 0.0f) continue;
    LogitEdit* edit = Edit(static_cast<int32_t>(id));
    if (edit == nullptr) return false;
    edit->bias = params.embedding_bias[id];
  }
  for (const llm::LogitBias& bias : params.logit_bias) {
    LogitEdit* edit = Edit(bias.id);
    if (edit == nullptr) return false;
    edit->bias += bias.value;
  }
  if (params.repetition_penalty != 1.0f || params.presence_penalty != 0.0f ||
      params.frequency_penalty != 0.0f) {
    for (const int32_t id : llm::CountedTokens(input)) {
      if (static_cast<size_t>(id) >= edit_of_.size()) continue;  // virtual
      LogitEdit* edit = Edit(id);
      if (edit == nullptr) return false;
      ++edit->count;
    }
  }
  llm::FindBannedIds(input, static_cast<int32_t>(edit_of_.size()), banned_);
  for (const int32_t id : banned_) {
    LogitEdit* edit = Edit(id);
    if (edit == nullptr) return false;
    edit->count = kBannedToken;
  }
  return true;
}

}  // namespace nereid::gpu
