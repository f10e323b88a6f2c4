// An executor whose model writes a made-up text: it forwards steps, and replaces what the model
// samples. So drafters that learn from the output have something to find, although the model has
// random weights.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backends/llm_core/engine/executor.h"
#include "backends/llm_core/speculation/draft_tree.h"

namespace nereid::bench {

// Phrases of kPhrase tokens, drawn from `num_phrases`, or tokens of which hardly any comes twice if
// that is 0. What follows a token depends on it and on its position alone, so that the text is the
// same with and without drafts.
class MadeUpText {
 public:
  static constexpr int32_t kPhrase = 4;

  MadeUpText(int32_t num_phrases, int32_t vocab_size)
      : num_phrases_(num_phrases), vocab_size_(vocab_size) {}
  int32_t Next(int32_t token, int32_t position) const {
    if (num_phrases_ > 0 && token % kPhrase != kPhrase - 1) return token + 1;
    const uint32_t hash =
        Mix(static_cast<uint32_t>(position) * 0x9e3779b9u ^ Mix(static_cast<uint32_t>(token)));
    return num_phrases_ > 0 ? static_cast<int32_t>(hash % num_phrases_) * kPhrase
                            : static_cast<int32_t>(hash % vocab_size_);
  }

 private:
  static uint32_t Mix(uint32_t value) {
    value = (value ^ value >> 16) * 0x85ebca6bu;
    value = (value ^ value >> 13) * 0xc2b2ae35u;
    return value ^ value >> 16;
  }

  const uint32_t num_phrases_, vocab_size_;
};

// Shares the executor, so that several engines run on it one after the other. The executor itself
// accepts none of the drafts, so that it moves no keys and values. [engine thread]
class MadeUpTextExecutor : public llm::Executor {
 public:
  MadeUpTextExecutor(std::shared_ptr<llm::Executor> executor, MadeUpText text)
      : executor_(std::move(executor)), text_(text) {}
  const llm::ExecutorLimits& limits() const override { return executor_->limits(); }
  llm::ExecutorFeatures features() const override { return executor_->features(); }
  llm::ExecutorCounts counts() const override { return executor_->counts(); }
  llm::TypicalCosts typical_step_costs() const override { return executor_->typical_step_costs(); }
  Status Submit(const llm::StepBatch& batch) override {
    std::vector<Entry>& entries = steps_.emplace_back();
    for (const llm::BatchEntry& from : batch.entries) {
      const auto drafts = llm::DraftTokens(batch.token_ids, from);
      const int32_t num_known = from.num_tokens - from.num_draft_tokens;
      entries.push_back({from.slot,
                         batch.token_ids[from.first_token + num_known - 1],
                         from.num_cached + num_known - 1,
                         {drafts.begin(), drafts.end()},
                         {from.draft_parents.begin(), from.draft_parents.end()},
                         from.returns_row_tokens});
    }
    return executor_->Submit(batch);
  }
  Result<llm::StepResult> Collect() override {
    NEREID_ASSIGN_OR_RETURN(llm::StepResult result, executor_->Collect());
    const std::vector<Entry> entries = std::move(steps_.front());
    steps_.pop_front();
    for (size_t i = 0; i < entries.size(); ++i) {
      if (result.tokens[i].id != llm::kNoToken) Replace(entries[i], i, result);
    }
    return result;
  }

 private:
  struct Entry {
    int32_t slot, newest, position;  // a negative token is the last one that the slot had
    std::vector<int32_t> drafts, parents;
    bool returns_row_tokens;
  };

  // Samples behind the newest token and all drafts, and accepts those that were sampled.
  void Replace(const Entry& entry, size_t index, llm::StepResult& result) {
    const int32_t newest = entry.newest < 0 ? last_[entry.slot] : entry.newest;
    std::vector<int32_t> rows{text_.Next(newest, entry.position)}, path;
    for (int32_t draft = 0; draft < static_cast<int32_t>(entry.drafts.size()); ++draft) {
      llm::FindPath(entry.parents, draft, path);
      rows.push_back(
          text_.Next(entry.drafts[draft], entry.position + static_cast<int32_t>(path.size())));
    }
    std::vector<int32_t> indices;
    int32_t at = llm::kTreeRoot;
    for (int32_t next; (next = llm::FindChild(entry.drafts, entry.parents, at, rows[at + 1])) >= 0;
         at = next) {
      indices.push_back(next);
    }
    last_[entry.slot] = result.tokens[index].id = rows[at + 1];
    if (index < result.accepted.size()) {
      result.accepted[index].clear();
      for (const int32_t draft : indices)
        result.accepted[index].push_back({entry.drafts[draft], 0.0f});
    }
    if (index < result.accepted_drafts.size()) result.accepted_drafts[index] = indices;
    if (entry.returns_row_tokens && index < result.row_tokens.size())
      result.row_tokens[index] = rows;
  }

  const std::shared_ptr<llm::Executor> executor_;
  const MadeUpText text_;
  std::deque<std::vector<Entry>> steps_;  // in flight
  std::map<int32_t, int32_t> last_;       // token that a slot sampled
};

}  // namespace nereid::bench
