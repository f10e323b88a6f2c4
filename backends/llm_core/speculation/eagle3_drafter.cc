// Chains of drafts by an EAGLE-3 head.
#include "backends/llm_core/speculation/eagle3_drafter.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace nereid::llm {
namespace {

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

}  // namespace

// The cache has the rows of positions [first, first + its rows); kept() has the target's hidden
// states of the positions behind them.
class Eagle3Drafter::State : public DrafterState {
 public:
  State(std::unique_ptr<HeadCache> own_cache, std::shared_ptr<size_t> num_values)
      : cache(std::move(own_cache)), num_values_(std::move(num_values)) {}
  ~State() override { *num_values_ -= kept_.size(); }

  int32_t next_kept(int32_t feature_size) const {
    return num_run_end() + static_cast<int32_t>(kept_.size()) / feature_size;
  }
  std::span<const float> kept() const { return kept_; }
  void Keep(std::span<const float> rows) {
    kept_.insert(kept_.end(), rows.begin(), rows.end());
    *num_values_ += rows.size();
  }
  void ForgetFirst(size_t num_values) {
    kept_.erase(kept_.begin(), kept_.begin() + static_cast<ptrdiff_t>(num_values));
    *num_values_ -= num_values;
  }
  int32_t num_run_end() const { return first + cache->num_rows(); }
  void Restart(int32_t position) {
    cache->Truncate(0);
    *num_values_ -= kept_.size();
    kept_ = {};
    first = num_true_end = position;
  }
  // Forgets the rows of the last call's drafts, which are built on the head's own hidden states.
  void ForgetOwnRows() { cache->Truncate(std::max(0, num_true_end - first)); }

  const std::unique_ptr<HeadCache> cache;
  int32_t first = 0;
  int32_t num_true_end = 0;       // the rows before this position are built on the target's states
  std::vector<float> own_hidden;  // of the chain that is drafted: the head's last hidden state
  // Of the chain that is drafted: the tokens of the sequence and the drafts.
  TokenIds tokens;
  SamplingParams sampling;  // the target's, with log probabilities
  bool has_sampling = false;

 private:
  std::vector<float> kept_;
  const std::shared_ptr<size_t> num_values_;
};

Eagle3Drafter::Eagle3Drafter(std::unique_ptr<DraftHead> head, float least_probability)
    : head_(std::move(head)),
      least_probability_(least_probability),
      logits_(static_cast<size_t>(head_->vocab_size())) {}

Eagle3Drafter::~Eagle3Drafter() = default;

void Eagle3Drafter::Observe(std::unique_ptr<DrafterState>& owned, int32_t first_position,
                            std::span<const float> hidden_states) {
  const int32_t size = head_->feature_size();
  if (owned == nullptr) owned = std::make_unique<State>(head_->MakeCache(), num_values_);
  State& state = static_cast<State&>(*owned);
  state.ForgetOwnRows();
  auto num_rows = static_cast<int32_t>(hidden_states.size()) / size;
  int32_t next = state.next_kept(size);
  if (first_position > next) {  // the tokens between were found in the prefix cache
    state.Restart(first_position);
    next = first_position;
  }
  // A preempted sequence computes again what is known.
  const int32_t known = std::min(next - first_position, num_rows);
  num_rows -= known;
  std::span<const float> rows = hidden_states.subspan(static_cast<size_t>(known) * size);
  const int32_t num_kept = next - state.num_run_end();
  if (num_kept + num_rows > kMostKept || *num_values_ + rows.size() > kMostValues) {
    const int32_t end = next + num_rows;
    const int32_t num_left = std::min(num_rows, kMostKept);
    state.Restart(end - num_left);
    rows = rows.last(static_cast<size_t>(num_left) * size);
  }
  state.Keep(rows);
}

void Eagle3Drafter::Propose(std::span<DraftQuery> queries) {
  int32_t num_behind = kMostBehind;
  entries_.clear();
  chains_.clear();
  if (has_failed_) return;
  for (DraftQuery& query : queries) AppendFirst(query, num_behind);
  while (!entries_.empty()) {
    if (!head_->Run(entries_).ok()) {
      has_failed_ = true;
      for (DraftQuery& query : queries) query.drafts->clear();
      return;
    }
    size_t kept = 0;
    for (size_t i = 0; i < entries_.size(); ++i) {
      State& state = *chains_[i].state;
      if (!entries_[i].is_own) {
        state.ForgetFirst(entries_[i].hidden.size());
      }
      const auto num_tokens = static_cast<int32_t>(state.tokens.size());
      const int32_t last_row = state.num_run_end() - 1;
      if (last_row + 2 < num_tokens) continue;  // further behind than one call may run
      if (!Extend(chains_[i], entries_[i])) continue;
      chains_[kept] = chains_[i];
      if (kept != i) entries_[kept] = std::move(entries_[i]);
      ++kept;
    }
    chains_.resize(kept);
    entries_.resize(kept);
    // The head's own hidden state and the new draft make the next row.
    for (size_t i = 0; i < kept; ++i) {
      HeadEntry& entry = entries_[i];
      State& state = *chains_[i].state;
      entry.tokens = std::span<const int32_t>(state.tokens).last(1);
      state.own_hidden.swap(entry.next_hidden);
      entry.hidden = state.own_hidden;
      entry.is_own = true;
      entry.first_position = state.num_run_end();
    }
  }
}

bool Eagle3Drafter::AppendFirst(DraftQuery& query, int32_t& num_behind) {
  query.match_class = 0;
  if (*query.state == nullptr) return false;  // no hidden states yet
  State& state = static_cast<State&>(**query.state);
  const auto num_tokens = static_cast<int32_t>(query.tokens.size());
  const int32_t size = head_->feature_size();
  state.ForgetOwnRows();
  if (state.next_kept(size) != num_tokens - 1) return false;
  if (num_tokens + query.max_drafts > head_->max_positions()) return false;
  const int32_t first = state.num_run_end();
  const int32_t left = num_tokens - 1 - first;
  if (left <= 0) return false;
  constexpr int32_t kKeepsUp = kMaxDraftTokens + 1;
  const int32_t count = left > kKeepsUp ? std::min(left, num_behind) : left;
  if (count == 0) return false;
  // The last draft has no row.
  if (!state.cache->Reserve(state.cache->num_rows() + count + query.max_drafts - 1)) return false;
  if (left > kKeepsUp) {
    num_behind -= count;
    query.num_caught_up += count;
  }
  state.num_true_end = first + count;
  state.tokens.assign(query.tokens.begin(), query.tokens.end());
  HeadEntry& entry = entries_.emplace_back();
  entry.tokens = std::span<const int32_t>(state.tokens).subspan(first + 1, count);
  entry.hidden = state.kept().first(static_cast<size_t>(count) * size);
  entry.first_position = first;
  entry.cache = state.cache.get();
  if (!std::exchange(state.has_sampling, true)) {
    state.sampling = *query.sampling;
    state.sampling.returns_log_probs = true;
  }
  chains_.push_back({&query, &state});
  return true;
}

bool Eagle3Drafter::Extend(const Chain& chain, const HeadEntry& entry) {
  const SampledToken token = Draw(chain, entry.logits);
  if (token.id == kNoToken || std::exp(token.log_prob) < least_probability_) return false;
  std::vector<int32_t>& drafts = *chain.query->drafts;
  drafts.push_back(token.id);
  if (static_cast<int32_t>(drafts.size()) == chain.query->max_drafts) return false;
  chain.state->tokens.push_back(token.id);
  return true;
}

SampledToken Eagle3Drafter::Draw(const Chain& chain, std::span<const float> logits) {
  const std::span<const int32_t> ids = head_->target_ids();
  const SamplingParams& params = chain.state->sampling;
  if (params.is_greedy() && !params.changes_logits() && chain.query->banned_ids.empty()) {
    const int32_t likeliest = ArgMax(logits);
    return {ids[likeliest], LogProbOfLikeliest(logits, logits[likeliest])};
  }
  std::fill(logits_.begin(), logits_.end(), -std::numeric_limits<float>::infinity());
  for (size_t i = 0; i < ids.size(); ++i) logits_[ids[i]] = logits[i];
  SamplingInput input;
  input.params = &params;
  input.token_ids = chain.state->tokens;
  input.num_prompt = chain.query->num_prompt;
  input.banned_ids = chain.query->banned_ids;
  return sampler_.Sample(logits_, input);
}

}  // namespace nereid::llm
