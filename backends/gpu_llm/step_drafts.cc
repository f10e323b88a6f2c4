// Acceptance of drafts along chains and trees. [engine thread]
#include "backends/gpu_llm/step_drafts.h"

#include <algorithm>

#include "backends/llm_core/speculation/draft_tree.h"

namespace nereid::gpu {

void StepDrafts::Take(const llm::StepBatch& batch, const StepPlanner& planner) {
  entries_.clear();
  drafts_.clear();
  parents_.clear();
  slots_.clear();
  moves_.clear();
  ranges_.clear();
  for (size_t i = 0; i < batch.entries.size(); ++i) {
    const llm::BatchEntry& sequence = batch.entries[i];
    const int32_t count = sequence.num_draft_tokens;
    if (count == 0) continue;
    entries_.resize(batch.entries.size());
    Entry& entry = entries_[i];
    entry.first = static_cast<int32_t>(drafts_.size());
    entry.count = count;
    entry.returns_row_tokens = sequence.returns_row_tokens;
    const auto drafts = llm::DraftTokens(batch.token_ids, sequence);
    drafts_.insert(drafts_.end(), drafts.begin(), drafts.end());
    if (sequence.draft_parents.empty()) continue;
    entry.first_parent = static_cast<int32_t>(parents_.size());
    parents_.insert(parents_.end(), sequence.draft_parents.begin(), sequence.draft_parents.end());
    entry.first_slot = static_cast<int32_t>(slots_.size());
    const auto slots =
        planner.words().subspan(StepLayout(planner.shape()).cache_slots + sequence.first_token +
                                sequence.num_tokens - 1 - count);
    slots_.insert(slots_.end(), slots.begin(), slots.begin() + 1 + count);
  }
}

void StepDrafts::Accept(size_t sequence, const int32_t* ids, const float* log_probs,
                        llm::StepResult& result) {
  result.tokens[sequence] = {ids[0], log_probs[0]};
  if (entries_.empty() || entries_[sequence].count == 0) return;
  const Entry& entry = entries_[sequence];
  const size_t num_entries = entries_.size();
  result.accepted.resize(num_entries);
  const bool is_chain = entry.first_slot < 0;
  const auto drafts = std::span(drafts_).subspan(entry.first, entry.count);
  const auto parents = std::span(parents_).subspan(entry.first_parent, is_chain ? 0 : entry.count);
  std::vector<int32_t> accepted;
  int32_t last = llm::kTreeRoot;
  for (int32_t next; (next = llm::FindChild(drafts, parents, last, ids[last + 1])) >= 0;) {
    result.accepted[sequence].push_back({ids[last + 1], log_probs[last + 1]});
    accepted.push_back(next);
    last = next;
  }
  result.tokens[sequence] = {ids[last + 1], log_probs[last + 1]};
  if (entry.returns_row_tokens) {
    result.row_tokens.resize(num_entries);
    result.row_tokens[sequence].assign(ids, ids + 1 + entry.count);
  }
  if (is_chain) return;
  AddMoves(entry, accepted);
  result.accepted_drafts.resize(num_entries);
  result.accepted_drafts[sequence] = std::move(accepted);
}

void StepDrafts::Follow(const llm::StepResult& result) {
  const size_t count = std::min(entries_.size(), result.accepted_drafts.size());
  for (size_t i = 0; i < count; ++i) {
    if (entries_[i].first_slot >= 0) AddMoves(entries_[i], result.accepted_drafts[i]);
  }
}

// A draft's place is never before that of its depth, so that no move writes what a later one reads.
void StepDrafts::AddMoves(const Entry& entry, std::span<const int32_t> accepted) {
  const int32_t* const slots = slots_.data() + entry.first_slot + 1;  // of drafts
  const auto first = static_cast<int32_t>(moves_.size());
  for (size_t i = 0; i < accepted.size(); ++i) {
    if (accepted[i] != static_cast<int32_t>(i)) moves_.push_back({slots[accepted[i]], slots[i]});
  }
  if (const auto count = static_cast<int32_t>(moves_.size()) - first; count > 0)
    ranges_.push_back({first, count});
}

bool StepDrafts::IsAccepted(const llm::StepResult& result, int32_t sequence, int32_t draft) {
  for (size_t n = 0; n < result.accepted[sequence].size(); ++n)
    if (llm::AcceptedDraft(result, static_cast<size_t>(sequence), n) == draft) return true;
  return false;
}

Status CheckDraftTrees(const llm::StepBatch& batch) {
  for (const llm::BatchEntry& sequence : batch.entries) {
    const auto parents = sequence.draft_parents;
    if (parents.empty()) continue;
    if (parents.size() != static_cast<size_t>(sequence.num_draft_tokens) ||
        sequence.num_draft_tokens >= kMaxTreeTokens) {
      return InternalError("a draft tree has ", sequence.num_draft_tokens, " drafts and ",
                           parents.size(), " parents, at most ", kMaxTreeTokens - 1);
    }
    if (!llm::IsTree(parents, parents.size()))
      return InternalError("a draft of a tree is before the draft that it follows");
  }
  return {};
}

void AppendDraftsBefore(std::span<const int32_t> drafts, std::span<const int32_t> parents,
                        int32_t index, std::vector<int32_t>& tokens) {
  if (parents.empty()) {
    tokens.insert(tokens.end(), drafts.begin(), drafts.begin() + index);
    return;
  }
  const auto first = static_cast<std::ptrdiff_t>(tokens.size());
  for (int32_t draft = index - 1; draft >= 0; draft = llm::ParentOf(parents, draft))
    tokens.push_back(drafts[draft]);
  std::reverse(tokens.begin() + first, tokens.end());
}

}  // namespace nereid::gpu
