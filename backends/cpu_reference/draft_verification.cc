// Samples one entry draft by draft, and moves what was accepted.
#include "backends/cpu_reference/draft_verification.h"

#include <utility>
#include <vector>

#include "backends/cpu_reference/model/tree_attention.h"
#include "backends/llm_core/speculation/draft_tree.h"

namespace nereid::cpu {
namespace {

constexpr int32_t kNotSampled = -2;  // of a row; kNoToken is a result of sampling

// The rows of logits of one entry: row 0 behind the newest token, row n + 1 behind draft n.
class EntryRows {
 public:
  EntryRows(const llm::StepBatch& batch, const llm::BatchEntry& entry, std::span<float> logits,
            llm::Sampler& sampler)
      : drafts_(llm::DraftTokens(batch.token_ids, entry)),
        entry_(entry),
        num_rows_(1 + drafts_.size()),
        logits_(logits),
        sampler_(sampler),
        input_(entry.sampling) {}

  std::span<const int32_t> drafts() const { return drafts_; }
  size_t num_rows() const { return num_rows_; }
  std::span<float> LogitsOf(size_t row) const {
    const size_t vocab_size = logits_.size() / num_rows_;
    return logits_.subspan(row * vocab_size, vocab_size);
  }
  // Samples the token of a row; `tokens` are those of the sequence before it.
  llm::SampledToken Sample(size_t row, std::span<const int32_t> tokens) {
    return sampler_.Sample(LogitsOf(row), InputOf(row, tokens));
  }
  // Likewise. Where the client sent the logits from which it drew the next draft of a chain, they
  // decide whether that draft is accepted.
  llm::SampledToken Verify(size_t row, std::span<const int32_t> tokens) {
    if (row >= drafts_.size() || entry_.draft_logits.empty()) return Sample(row, tokens);
    const std::span<float> logits = LogitsOf(row);
    return sampler_.Verify(
        logits, InputOf(row, tokens),
        {.id = drafts_[row],
         .logits = entry_.draft_logits.subspan(row * logits.size(), logits.size()),
         .threshold = entry_.draft_threshold});
  }

 private:
  const llm::SamplingInput& InputOf(size_t row, std::span<const int32_t> tokens) {
    const size_t mask_words = entry_.token_masks.size() / num_rows_;
    input_.token_ids = tokens;
    input_.token_mask = entry_.token_masks.subspan(row * mask_words, mask_words);
    return input_;
  }

  const std::span<const int32_t> drafts_;
  const llm::BatchEntry& entry_;
  const size_t num_rows_;
  const std::span<float> logits_;
  llm::Sampler& sampler_;
  llm::SamplingInput input_;
};

void AppendTopTokens(std::span<const float> logits, int32_t num_top,
                     std::vector<llm::SampledToken>& to) {
  std::vector<llm::SampledToken> top;
  llm::FindTopTokens(logits, num_top, top);
  to.insert(to.end(), top.begin(), top.end());
}

// Samples the rows that `row_tokens` has not yet, as if the drafts before them were accepted.
void SampleOtherRows(EntryRows& rows, const llm::BatchEntry& entry,
                     std::vector<int32_t>& row_tokens) {
  const std::span<const int32_t> known = entry.sampling.token_ids;
  std::vector<int32_t> path, tokens(known.begin(), known.end());
  for (size_t row = 1; row < rows.num_rows(); ++row) {
    if (row_tokens[row] != kNotSampled) continue;
    llm::FindPath(entry.draft_parents, static_cast<int32_t>(row) - 1, path);
    tokens.resize(known.size());
    for (const int32_t draft : path) tokens.push_back(rows.drafts()[draft]);
    row_tokens[row] = rows.Sample(row, tokens).id;
  }
}

}  // namespace

void VerifyDrafts(const llm::StepBatch& batch, size_t index, std::span<float> logits,
                  llm::Sampler& sampler, llm::StepResult& result) {
  const llm::BatchEntry& entry = batch.entries[index];
  EntryRows rows(batch, entry, logits, sampler);
  const std::span<const int32_t> known = entry.sampling.token_ids;
  std::vector<int32_t> tokens(known.begin(), known.end());
  std::vector<int32_t> row_tokens(rows.num_rows(), kNotSampled);
  for (int32_t draft = llm::kTreeRoot;;) {
    const auto row = static_cast<size_t>(draft + 1);
    if (entry.num_top_tokens > 0) {
      AppendTopTokens(rows.LogitsOf(row), entry.num_top_tokens, result.top_tokens[index]);
    }
    const llm::SampledToken token = rows.Verify(row, tokens);
    row_tokens[row] = token.id;
    draft = llm::FindChild(rows.drafts(), entry.draft_parents, draft, token.id);
    if (draft == llm::kNoChild) {
      result.tokens[index] = token;
      break;
    }
    result.accepted[index].push_back(token);
    if (!entry.draft_parents.empty()) result.accepted_drafts[index].push_back(draft);
    tokens.push_back(token.id);
  }
  if (!entry.returns_row_tokens) return;
  SampleOtherRows(rows, entry, row_tokens);
  result.row_tokens[index] = std::move(row_tokens);
}

// In ascending order, so that no key is overwritten before it is moved.
void MoveAccepted(const llm::StepBatch& batch, const llm::StepResult& result,
                  const KvCache& cache) {
  for (size_t i = 0; i < result.accepted_drafts.size(); ++i) {
    const llm::BatchEntry& entry = batch.entries[i];
    const std::vector<int32_t>& accepted = result.accepted_drafts[i];
    for (size_t n = 0; n < accepted.size(); ++n) {
      const int32_t to = FirstDraftPlace(entry) + static_cast<int32_t>(n);
      const int32_t from = FirstDraftPlace(entry) + accepted[n];
      if (from == to) continue;
      cache.CopyToken(entry.block_table[from / kBlockSize], from % kBlockSize,
                      entry.block_table[to / kBlockSize], to % kBlockSize);
    }
  }
}

}  // namespace nereid::cpu
