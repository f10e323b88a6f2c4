// Chains of drafts that are drawn on the host. [engine thread]
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "backends/llm_core/sampling/sampler.h"
#include "backends/llm_core/speculation/draft_chains.h"

namespace nereid::llm {
namespace {

// The most values in the store, which take 1 GiB, and the most rows.
constexpr int64_t kMostKeptValues = int64_t{1} << 28;
constexpr int64_t kMostKeptRows = int64_t{1} << 16;

// log_softmax of the greatest logit. Logits that are much smaller are left out, which changes
// nothing that drafting depends on.
float LogProbOfLikeliest(std::span<const float> logits, float max) {
  constexpr float kNegligible = 20.0f;
  double sum = 0.0;
  for (const float logit : logits) {
    if (logit > max - kNegligible) sum += std::exp(logit - max);
  }
  return static_cast<float>(-std::log(sum));
}

class HostChains : public DraftChains {
 public:
  explicit HostChains(std::unique_ptr<DraftHead> head)
      : DraftChains(
            static_cast<int32_t>(std::min(kMostKeptRows, kMostKeptValues / head->feature_size()))),
        head_(std::move(head)),
        logits_(static_cast<size_t>(head_->vocab_size())) {}
  int32_t max_positions() const override { return head_->max_positions(); }
  std::unique_ptr<HeadCache> MakeCache() const override { return head_->MakeCache(); }
  bool gives_siblings() const override { return true; }
  HiddenStatePlace place() const override { return HiddenStatePlace::kHost; }
  void Keep(const HiddenRows& rows, std::span<const int32_t> kept) override;
  Status RunChains(std::span<DraftChain> chains, float least_probability) override;

 private:
  // A chain that goes on.
  struct OpenChain {
    DraftChain* chain = nullptr;
    std::vector<float> hidden;      // of the rows that are run
    std::vector<int32_t> sequence;  // prompt, output and the drafts
  };

  // The values of the chain's kept rows, which leave the store.
  std::vector<float> TakeKept(const DraftChain& chain);
  // Draws a token from the logits of the entry. Returns whether the chain goes on.
  bool Extend(OpenChain& open, std::span<const float> logits, float least_probability);
  // The drawn token and its probability; kNoToken if the rules ban all.
  SampledToken Draw(const OpenChain& open, std::span<const float> logits);

  const std::unique_ptr<DraftHead> head_;
  std::vector<std::vector<float>> kept_;  // by row of the store
  Sampler sampler_;
  std::vector<float> logits_;       // scratch memory, [vocab_size]
  std::vector<SampledToken> top_;   // scratch memory
  std::vector<HeadEntry> entries_;  // parallel to open_
  std::vector<OpenChain> open_;
};

void HostChains::Keep(const HiddenRows& rows, std::span<const int32_t> kept) {
  const auto size = static_cast<size_t>(head_->feature_size());
  for (size_t i = 0; i < kept.size(); ++i) {
    const auto row = static_cast<size_t>(kept[i]);
    if (row >= kept_.size()) kept_.resize(row + 1);
    const std::span<const float> values = rows.values.subspan(i * size, size);
    kept_[row].assign(values.begin(), values.end());
  }
}

std::vector<float> HostChains::TakeKept(const DraftChain& chain) {
  std::vector<float> values;
  values.reserve(chain.kept.size() * static_cast<size_t>(head_->feature_size()));
  for (const int32_t row : chain.kept) {
    const std::vector<float> taken = std::exchange(kept_[static_cast<size_t>(row)], {});
    values.insert(values.end(), taken.begin(), taken.end());
  }
  return values;
}

Status HostChains::RunChains(std::span<DraftChain> chains, float least_probability) {
  entries_.clear();
  open_.clear();
  for (DraftChain& chain : chains) {
    OpenChain& open = open_.emplace_back();
    open.chain = &chain;
    open.hidden = TakeKept(chain);
    open.sequence.assign(chain.sequence.begin(), chain.sequence.end());
    HeadEntry& entry = entries_.emplace_back();
    entry.tokens = chain.tokens;
    entry.hidden = open.hidden;
    entry.first_position = chain.first_position;
    entry.cache = chain.cache;
  }
  while (!entries_.empty()) {
    NEREID_RETURN_IF_ERROR(head_->Run(entries_));
    size_t num_open = 0;
    for (size_t i = 0; i < entries_.size(); ++i) {
      if (!Extend(open_[i], entries_[i].logits, least_probability)) continue;
      if (num_open != i) {
        open_[num_open] = std::move(open_[i]);
        entries_[num_open] = std::move(entries_[i]);
      }
      ++num_open;
    }
    open_.resize(num_open);
    entries_.resize(num_open);
    // The head's own hidden state and the new draft make the next row.
    for (size_t i = 0; i < num_open; ++i) {
      HeadEntry& entry = entries_[i];
      open_[i].hidden.swap(entry.next_hidden);
      entry.first_position += static_cast<int32_t>(entry.tokens.size());
      entry.tokens = std::span<const int32_t>(open_[i].sequence).last(1);
      entry.hidden = open_[i].hidden;
      entry.is_own = true;
    }
  }
  return {};
}

bool HostChains::Extend(OpenChain& open, std::span<const float> logits, float least_probability) {
  DraftChain& chain = *open.chain;
  if (chain.max_drafts == 0) return false;
  const SampledToken drawn = Draw(open, logits);
  top_.clear();
  if (chain.num_siblings > 0) {
    FindTopTokens(logits, static_cast<size_t>(chain.num_siblings) + 1, top_);
    for (SampledToken& token : top_) token.id = head_->target_ids()[static_cast<size_t>(token.id)];
  }
  const bool goes_on = chain.Extend(drawn, top_, least_probability);
  if (goes_on) open.sequence.push_back(drawn.id);
  return goes_on;
}

SampledToken HostChains::Draw(const OpenChain& open, std::span<const float> logits) {
  const std::span<const int32_t> ids = head_->target_ids();
  const DraftChain& chain = *open.chain;
  const SamplingParams& params = *chain.sampling;
  if (params.is_greedy() && !params.changes_logits() && chain.banned_ids.empty()) {
    const int32_t likeliest = ArgMax(logits);
    return {ids[likeliest], LogProbOfLikeliest(logits, logits[likeliest])};
  }
  std::fill(logits_.begin(), logits_.end(), -std::numeric_limits<float>::infinity());
  for (size_t i = 0; i < ids.size(); ++i) logits_[ids[i]] = logits[i];
  SamplingInput input;
  input.params = &params;
  input.token_ids = open.sequence;
  input.num_prompt = chain.num_prompt;
  input.banned_ids = chain.banned_ids;
  return sampler_.Sample(logits_, input);
}

}  // namespace

std::unique_ptr<DraftChains> MakeHostChains(std::unique_ptr<DraftHead> head) {
  return std::make_unique<HostChains>(std::move(head));
}

}  // namespace nereid::llm
