// Draft tokens.
#include "backends/cpu_reference/draft_verification.h"

#include <utility>
#include <vector>

#include "backends/cpu_reference/model/tree_attention.h"
#include "backends/llm_core/speculation/draft_tree.h"

namespace nereid::cpu {
namespace {

constexpr int32_t kNotSampled = -2;  // of a row; kNoToken is a result of sampling

}  // namespace

void VerifyDrafts(const llm::StepBatch& batch, size_t index, std::span<float> logits,
                  llm::Sampler& sampler, llm::StepResult& result) {
  const llm::BatchEntry& sequence = batch.entries[index];
  const auto num_drafts = static_cast<size_t>(sequence.num_draft_tokens);
  const size_t vocab_size = logits.size() / (1 + num_drafts);
  const std::span<const int32_t> drafts = llm::DraftTokens(batch.token_ids, sequence);
  const std::span<const int32_t> parents = sequence.draft_parents;
  const std::span<const int32_t> known = sequence.sampling.token_ids;
  std::vector<int32_t> tokens(known.begin(), known.end());
  std::vector<int32_t> row_tokens(1 + num_drafts, kNotSampled);
  llm::SamplingInput input = sequence.sampling;
  const size_t mask_words = sequence.token_masks.size() / (1 + num_drafts);
  for (int32_t draft = llm::kTreeRoot;;) {
    const auto row = static_cast<size_t>(draft + 1);
    const std::span<float> row_logits = logits.subspan(row * vocab_size, vocab_size);
    if (sequence.num_top_tokens > 0) {
      std::vector<llm::SampledToken> top;
      llm::FindTopTokens(row_logits, sequence.num_top_tokens, top);
      std::vector<llm::SampledToken>& all = result.top_tokens[index];
      all.insert(all.end(), top.begin(), top.end());
    }
    input.token_ids = tokens;
    input.token_mask = sequence.token_masks.subspan(row * mask_words, mask_words);
    const bool is_drawn = row < num_drafts && !sequence.draft_logits.empty();
    const llm::SampledToken token =
        is_drawn
            ? sampler.Verify(row_logits, input,
                             {.id = drafts[row],
                              .logits = sequence.draft_logits.subspan(row * vocab_size, vocab_size),
                              .threshold = sequence.draft_threshold})
            : sampler.Sample(row_logits, input);
    row_tokens[row] = token.id;
    draft = llm::FindChild(drafts, parents, draft, token.id);
    if (draft == llm::kNoChild) {
      result.tokens[index] = token;
      break;
    }
    result.accepted[index].push_back(token);
    if (!parents.empty()) result.accepted_drafts[index].push_back(draft);
    tokens.push_back(token.id);
  }
  if (!sequence.returns_row_tokens) return;
  std::vector<int32_t> path;
  for (size_t row = 1; row <= num_drafts; ++row) {
    if (row_tokens[row] != kNotSampled) continue;
    llm::FindPath(parents, static_cast<int32_t>(row) - 1, path);
    tokens.resize(known.size());
    for (const int32_t draft : path) tokens.push_back(drafts[draft]);
    input.token_ids = tokens;
    input.token_mask = sequence.token_masks.subspan(row * mask_words, mask_words);
    row_tokens[row] = sampler.Sample(logits.subspan(row * vocab_size, vocab_size), input).id;
  }
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
