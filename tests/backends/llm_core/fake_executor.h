// An executor without a model. Its "cache" stores the token ids that were written, and the next
// token is a hash of all tokens that a sequence can see through its block table. A block that is
// shared by mistake, freed too early or written at the wrong position changes the tokens. With
// ExecutorFeatures::overlap, a step is copied in Submit and run in Collect, and borrowed data is
// not read after Submit.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "backends/llm_core/engine/executor.h"
#include "backends/llm_core/speculation/draft_tree.h"
#include "tests/backends/llm_core/fake_storage.h"

namespace nereid::llm::testing {

inline uint64_t Hash(uint64_t state, uint64_t value) {
  state ^= value + 0x9e3779b97f4a7c15u + (state << 6) + (state >> 2);
  state *= 0xff51afd7ed558ccdu;
  return state ^ (state >> 33);
}

// Whether the last of `num_tokens` tokens sees the token at `position`.
inline bool IsVisible(int32_t position, int32_t num_tokens, const ExecutorLimits& limits) {
  return limits.attention_window == 0 || position < limits.num_sink_tokens ||
         position >= num_tokens - (limits.attention_window - limits.num_sink_tokens);
}

// The token that follows `tokens`; `seed` 0: greedy.
inline int32_t NextToken(std::span<const int32_t> tokens, const ExecutorLimits& limits,
                         uint64_t seed = 0) {
  const auto num_tokens = static_cast<int32_t>(tokens.size());
  const bool uses_long_rope =
      limits.long_rope_positions > 0 && num_tokens > limits.long_rope_positions;
  uint64_t state = 1 + seed + (uses_long_rope ? 1000 : 0);
  for (int32_t i = 0; i < num_tokens; ++i) {
    if (IsVisible(i, num_tokens, limits)) state = Hash(state, static_cast<uint64_t>(tokens[i]));
  }
  return static_cast<int32_t>(state % static_cast<uint64_t>(limits.vocab_size));
}

inline int32_t NextToken(std::span<const int32_t> tokens, int32_t vocab_size) {
  ExecutorLimits limits;
  limits.vocab_size = vocab_size;
  return NextToken(tokens, limits);
}

// The logits after `tokens`, in [-4, 4), from the same hash as NextToken.
inline std::vector<float> LogitsAfter(std::span<const int32_t> tokens,
                                      const ExecutorLimits& limits) {
  ExecutorLimits wide = limits;
  wide.vocab_size = 1 << 30;
  const auto state = static_cast<uint64_t>(NextToken(tokens, wide));
  std::vector<float> logits(limits.vocab_size);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>(Hash(state, i) % 4096) / 512.0f - 4.0f;
  }
  return logits;
}

class FakeExecutor : public Executor {
 public:
  explicit FakeExecutor(const ExecutorLimits& limits, const ExecutorFeatures& features = {})
      : limits_(limits),
        features_(features),
        cache_(static_cast<size_t>(limits.num_blocks) * limits.block_size, -1) {}

  const ExecutorLimits& limits() const override { return limits_; }
  ExecutorFeatures features() const override { return features_; }
  BlockStorage* block_storage() override { return storage_.get(); }
  // Before the engine is created: keeps blocks outside the cache.
  FakeStorage& KeepBlocks(int32_t num_host, int32_t num_file, uint32_t seed) {
    storage_ = std::make_unique<FakeStorage>(&cache_, limits_.num_blocks, limits_.block_size,
                                             num_host, num_file, seed);
    return *storage_;
  }

  Result<std::vector<FailedAdapter>> LoadAdapters(
      std::span<const std::shared_ptr<const LoraAdapter>> adapters) override {
    return on_load_adapters ? on_load_adapters(adapters) : std::vector<FailedAdapter>();
  }

  Status Submit(const StepBatch& batch) override {
    if (on_submit) {
      Status status = on_submit(batch);
      if (!status.ok()) return status;
    }
    if (batch.has_token_masks) batch.wait_for_masks();
    submitted_.emplace_back(batch);
    if (storage_ != nullptr) storage_->OnSubmit();
    max_outstanding = std::max(max_outstanding, static_cast<int>(submitted_.size()));
    if (submitted_.size() > (features_.overlap ? 2 : 1)) {
      return InternalError(submitted_.size(), " steps are not collected");
    }
    return features_.overlap ? Status() : Run();
  }
  Result<StepResult> Collect() override {
    if (submitted_.empty()) return InternalError("Collect without a step");
    if (features_.overlap) NEREID_RETURN_IF_ERROR(Run());
    submitted_.pop_front();
    return result_;
  }

  std::function<Status(const StepBatch&)> on_submit;
  std::function<std::vector<FailedAdapter>(std::span<const std::shared_ptr<const LoraAdapter>>)>
      on_load_adapters;
  std::function<bool(const BatchEntry&)> bans_all;  // whether the entry gets kNoToken
  int num_steps = 0;
  int64_t num_tokens = 0;   // computed in total
  int max_outstanding = 0;  // steps submitted and not collected

 private:
  // A step with copies of the data that its StepBatch borrows.
  struct OwnedBatch : StepBatch {
    explicit OwnedBatch(const StepBatch& from) : StepBatch(from) {
      const auto own = [this](std::span<const int32_t> ids) {
        return std::span<const int32_t>(lists.emplace_back(ids.begin(), ids.end()));
      };
      for (BatchEntry& sequence : entries) {
        sequence.block_table = own(sequence.block_table);
        sequence.next_ids = own(sequence.next_ids);
        sequence.draft_parents = own(sequence.draft_parents);
        if (!sequence.samples) continue;
        if (!sequence.token_masks.empty()) {
          sequence.token_masks =
              masks.emplace_back(sequence.token_masks.begin(), sequence.token_masks.end());
        }
        sequence.sampling.token_ids = own(sequence.sampling.token_ids);
        sequence.sampling.banned_ids = own(sequence.sampling.banned_ids);
        sequence.sampling.params = &params.emplace_back(*sequence.sampling.params);
      }
    }
    OwnedBatch(OwnedBatch&&) = delete;
    std::deque<TokenIds> lists;
    std::deque<std::vector<uint32_t>> masks;
    std::deque<SamplingParams> params;
  };

  // Runs the oldest step.
  Status Run() {
    OwnedBatch& batch = submitted_.front();
    if (storage_ != nullptr) storage_->OnRun();
    NEREID_RETURN_IF_ERROR(FillPending(batch));
    NEREID_RETURN_IF_ERROR(Copy(batch));
    result_ = {};
    result_.tokens.resize(batch.entries.size());
    result_.candidates.resize(batch.entries.size());
    result_.accepted.resize(batch.entries.size());
    result_.accepted_drafts.resize(batch.entries.size());
    result_.row_tokens.resize(batch.entries.size());
    result_.logits.resize(batch.entries.size());
    result_.top_tokens.resize(batch.entries.size());
    result_.prompt_log_probs.resize(batch.entries.size());
    for (const BatchEntry& sequence : batch.entries) Write(batch, sequence);
    for (size_t i = 0; i < batch.entries.size(); ++i) Answer(batch.entries[i], i);
    drawn_.clear();
    for (size_t i = 0; i < batch.entries.size(); ++i) {
      if (batch.entries[i].samples)
        drawn_[batch.entries[i].slot] = std::max(0, result_.tokens[i].id);
    }
    ++num_steps;
    num_tokens += static_cast<int64_t>(batch.token_ids.size());
    return {};
  }
  // Replaces pending tokens. Only those that the previous step sampled for the same slot are
  // allowed.
  Status FillPending(StepBatch& batch) const {
    for (const BatchEntry& sequence : batch.entries) {
      for (int32_t i = 0; i < sequence.num_tokens; ++i) {
        int32_t& id = batch.token_ids[sequence.first_token + i];
        if (id >= 0) continue;
        const auto drawn = drawn_.find(sequence.slot);
        if (!features_.overlap || id != PendingTokenId(sequence.slot) || drawn == drawn_.end()) {
          return InternalError("token id ", id, " for slot ", sequence.slot);
        }
        id = drawn->second;
      }
    }
    return {};
  }
  Status Copy(const StepBatch& batch) {
    std::set<int32_t> read, written;
    for (const BlockCopy& copy : batch.block_copies) {
      read.insert(copy.from);
      if (!written.insert(copy.to).second) return InternalError("block ", copy.to, " copied twice");
      std::copy_n(cache_.begin() + copy.from * limits_.block_size, limits_.block_size,
                  cache_.begin() + copy.to * limits_.block_size);
    }
    for (const int32_t block : written) {
      if (read.count(block) > 0) return InternalError("block ", block, " is read and written");
    }
    return {};
  }
  int32_t& Slot(const BatchEntry& sequence, int32_t position) {
    const int32_t block = sequence.block_table[position / limits_.block_size];
    return cache_[block * limits_.block_size + position % limits_.block_size];
  }
  void Write(const StepBatch& batch, const BatchEntry& sequence) {
    for (int32_t i = 0; i < sequence.num_tokens; ++i) {
      Slot(sequence, sequence.num_cached + i) =
          batch.token_ids[sequence.first_token + i] + CacheKeyVariant(sequence);
    }
  }
  // The first `count` tokens, as stored in the cache.
  std::vector<int32_t> Read(const BatchEntry& sequence, int32_t count) {
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < count; ++i) {
      // Tokens written with another variant give wrong values.
      tokens.push_back(IsVisible(i, count, limits_) ? Slot(sequence, i) - CacheKeyVariant(sequence)
                                                    : -1);
    }
    return tokens;
  }
  void Answer(const BatchEntry& sequence, size_t index) {
    const int32_t count = sequence.num_cached + sequence.num_tokens;
    for (int32_t row = 0; row < sequence.num_logits; ++row) {
      if (!sequence.returns_logits && sequence.next_ids.empty()) break;
      const std::vector<float> logits = LogitsAfter(
          sequence.num_draft_tokens > 0 ? ReadPath(sequence, row - 1)
                                        : Read(sequence, count - sequence.num_logits + row + 1),
          limits_);
      std::vector<float>& kept = result_.logits[index];
      if (sequence.returns_logits) kept.insert(kept.end(), logits.begin(), logits.end());
      if (static_cast<size_t>(row) < sequence.next_ids.size()) {
        result_.prompt_log_probs[index].push_back(LogProb(logits, sequence.next_ids[row]));
      }
    }
    if (!sequence.samples) return;
    if (sequence.num_draft_tokens > 0) return Verify(sequence, index);
    if (sequence.num_top_tokens > 0) {
      FindTopTokens(LogitsAfter(Read(sequence, count), limits_), sequence.num_top_tokens,
                    result_.top_tokens[index]);
    }
    if (sequence.num_candidates > 0) {
      std::vector<float> logits = LogitsAfter(Read(sequence, count), limits_);
      result_.candidates[index] =
          Sampler().Candidates(logits, sequence.sampling, sequence.num_candidates);
      return;
    }
    if (bans_all && bans_all(sequence)) {
      result_.tokens[index] = {kNoToken, 0.0f};
      return;
    }
    if (!sequence.token_masks.empty()) {
      std::vector<float> logits = LogitsAfter(Read(sequence, count), limits_);
      SamplingInput input = sequence.sampling;
      input.token_mask = sequence.token_masks;
      result_.tokens[index] = Sampler().Sample(logits, input);
      return;
    }
    const SamplingParams& params = *sequence.sampling.params;
    const uint64_t seed = params.is_greedy() ? 0 : params.seed;
    result_.tokens[index] = {NextToken(Read(sequence, count), limits_, seed), -0.5f};
  }

  // The place of a draft in the cache.
  static int32_t DraftPlace(const BatchEntry& sequence, int32_t draft) {
    return sequence.num_cached + sequence.num_tokens - sequence.num_draft_tokens + draft;
  }
  // The tokens up to a draft, as stored in the cache.
  std::vector<int32_t> ReadPath(const BatchEntry& sequence, int32_t draft) {
    std::vector<int32_t> path;
    FindPath(sequence.draft_parents, draft, path);
    const int32_t num_before = DraftPlace(sequence, 0);
    const int32_t count = num_before + static_cast<int32_t>(path.size());
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < count; ++i) {
      const int32_t place = i < num_before ? i : num_before + path[i - num_before];
      const bool is_visible = IsVisible(i, count, limits_);
      tokens.push_back(is_visible ? Slot(sequence, place) - CacheKeyVariant(sequence) : -1);
    }
    return tokens;
  }

  // Samples behind the newest token and each accepted draft, and with returns_row_tokens behind all
  // drafts. Then moves the accepted drafts.
  void Verify(const BatchEntry& sequence, size_t index) {
    const int32_t num_drafts = sequence.num_draft_tokens;
    const std::span<const int32_t> parents = sequence.draft_parents;
    std::vector<int32_t> drafts;
    for (int32_t i = 0; i < num_drafts; ++i) {
      drafts.push_back(Slot(sequence, DraftPlace(sequence, i)) - CacheKeyVariant(sequence));
    }
    std::vector<int32_t> accepted;
    for (int32_t draft = kTreeRoot;;) {
      if (sequence.num_top_tokens > 0) {
        std::vector<SampledToken> top;
        FindTopTokens(LogitsAfter(ReadPath(sequence, draft), limits_), sequence.num_top_tokens,
                      top);
        result_.top_tokens[index].insert(result_.top_tokens[index].end(), top.begin(), top.end());
      }
      const SampledToken token = SampleBehind(sequence, draft, drafts);
      draft = FindChild(drafts, parents, draft, token.id);
      if (draft == kNoChild) {
        result_.tokens[index] = token;
        break;
      }
      accepted.push_back(draft);
      result_.accepted[index].push_back(token);
    }
    for (int32_t draft = kTreeRoot; draft < num_drafts && sequence.returns_row_tokens; ++draft) {
      result_.row_tokens[index].push_back(SampleBehind(sequence, draft, drafts).id);
    }
    if (parents.empty()) return;
    for (size_t n = 0; n < accepted.size(); ++n) {
      Slot(sequence, DraftPlace(sequence, static_cast<int32_t>(n))) =
          Slot(sequence, DraftPlace(sequence, accepted[n]));
    }
    result_.accepted_drafts[index] = std::move(accepted);
  }

  SampledToken SampleBehind(const BatchEntry& sequence, int32_t draft,
                            std::span<const int32_t> drafts) {
    const SamplingParams& params = *sequence.sampling.params;
    const std::vector<int32_t> tokens = ReadPath(sequence, draft);
    if (sequence.token_masks.empty()) {
      return {NextToken(tokens, limits_, params.is_greedy() ? 0 : params.seed), -0.5f};
    }
    std::vector<int32_t> known(sequence.sampling.token_ids.begin(),
                               sequence.sampling.token_ids.end());
    std::vector<int32_t> path;
    FindPath(sequence.draft_parents, draft, path);
    for (const int32_t each : path) known.push_back(drafts[each]);
    const size_t num_words = sequence.token_masks.size() / (1 + sequence.num_draft_tokens);
    SamplingInput input = sequence.sampling;
    input.token_ids = known;
    input.token_mask = sequence.token_masks.subspan((1 + draft) * num_words, num_words);
    std::vector<float> logits = LogitsAfter(tokens, limits_);
    return Sampler().Sample(logits, input);
  }

  // Added to the cached tokens of a sequence, to detect a mix of key variants.
  int32_t CacheKeyVariant(const BatchEntry& sequence) const {
    const bool is_dynamic =
        limits_.dynamic_rope_positions > 0 && sequence.num_prompt > limits_.dynamic_rope_positions;
    return (sequence.uses_long_rope ? 1 << 20 : 0) + (is_dynamic ? sequence.num_prompt << 21 : 0);
  }

  const ExecutorLimits limits_;
  const ExecutorFeatures features_;
  std::vector<int32_t> cache_;
  std::unique_ptr<FakeStorage> storage_;
  std::deque<OwnedBatch> submitted_;
  std::map<int32_t, int32_t> drawn_;  // by slot, from the last step
  StepResult result_;
};

}  // namespace nereid::llm::testing
