// Keeps what an EAGLE-3 head knows of each sequence, and asks it for chains of drafts.
#include "backends/llm_core/speculation/eagle3_drafter.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace nereid::llm {

// The cache has the rows of positions [first, first + its rows); kept() are the rows of the store
// with the target's hidden states of the positions behind them.
class Eagle3Drafter::State : public DrafterState {
 public:
  State(std::unique_ptr<HeadCache> own_cache, std::shared_ptr<RowPool> pool)
      : cache(std::move(own_cache)), pool_(std::move(pool)) {}
  ~State() override { pool_->Release(kept_); }

  int32_t next_kept() const { return num_run_end() + static_cast<int32_t>(kept_.size()); }
  std::span<const int32_t> kept() const { return kept_; }
  // Returns the new rows. Requires that the pool has them.
  std::span<const int32_t> Take(int32_t num_rows) {
    pool_->Take(num_rows, kept_);
    return std::span<const int32_t>(kept_).last(static_cast<size_t>(num_rows));
  }
  void ForgetFirst(size_t num_rows) {
    pool_->Release(kept().first(num_rows));
    kept_.erase(kept_.begin(), kept_.begin() + static_cast<ptrdiff_t>(num_rows));
  }
  int32_t num_run_end() const { return first + cache->num_rows(); }
  void Restart(int32_t position) {
    cache->Truncate(0);
    ForgetFirst(kept_.size());
    first = num_true_end = position;
  }
  // Forgets the rows of the last call's drafts, which are built on the head's own hidden states.
  void ForgetOwnRows() { cache->Truncate(std::max(0, num_true_end - first)); }

  const std::unique_ptr<HeadCache> cache;
  int32_t first = 0;         // position of the first row
  int32_t num_true_end = 0;  // the rows before this position are built on the target's states
  SamplingParams sampling;   // the target's, with log probabilities
  bool has_sampling = false;

 private:
  std::vector<int32_t> kept_;
  const std::shared_ptr<RowPool> pool_;
};

Eagle3Drafter::Eagle3Drafter(std::unique_ptr<DraftChains> chains, float least_probability)
    : head_(std::move(chains)), least_probability_(least_probability) {}

Eagle3Drafter::~Eagle3Drafter() = default;

void Eagle3Drafter::DraftTrees(std::vector<TreeChoice> choices, float least_path) {
  choices_ = std::move(choices);
  least_path_ = choices_.empty() ? least_path : 0.0f;
  num_siblings_ = choices_.empty() ? kSiblings : 1;
  for (const TreeChoice& choice : choices_) num_siblings_ = std::max(num_siblings_, choice.rank);
}

int32_t Eagle3Drafter::MostRows(int32_t num_drafts) const {
  if (choices_.empty()) return std::min(num_drafts, kMaxDraftTokens);
  int32_t most = 0;
  const size_t count = std::min(choices_.size(), static_cast<size_t>(num_drafts));
  for (size_t i = 0; i < count; ++i) most = std::max(most, choices_[i].depth + 1);
  return most;
}

int32_t Eagle3Drafter::DraftingSteps(int32_t num_drafts) const {
  if (num_siblings_ == 0) return num_drafts;
  const int32_t most = MostRows(num_drafts);
  if (mean_rows_ == 0.0f) return most;
  return std::min(most, static_cast<int32_t>(std::lround(mean_rows_)));
}

void Eagle3Drafter::Observe(std::unique_ptr<DrafterState>& owned, int32_t first_position,
                            const HiddenRows& rows) {
  if (has_failed_) return;
  if (owned == nullptr) owned = std::make_unique<State>(head_->MakeCache(), head_->pool());
  State& state = static_cast<State&>(*owned);
  state.ForgetOwnRows();
  int32_t next = state.next_kept();
  if (first_position > next) {  // the tokens between were found in the prefix cache
    state.Restart(first_position);
    next = first_position;
  }
  // A preempted sequence computes again what is known.
  int32_t known = std::min(next - first_position, rows.num_rows);
  int32_t num_new = rows.num_rows - known;
  const int32_t num_kept = static_cast<int32_t>(state.kept().size());
  if (num_kept + num_new > kMostKept || num_new > head_->pool()->num_free()) {
    // Only the newest rows are kept, for which those kept so far make room.
    const int32_t end = next + num_new;
    state.Restart(end);
    const int32_t num_left = std::min({num_new, kMostKept, head_->pool()->num_free()});
    state.Restart(end - num_left);
    known += num_new - num_left;
    num_new = num_left;
  }
  if (num_new == 0) return;
  head_->Keep(rows.Part(known, num_new), state.Take(num_new));
}

void Eagle3Drafter::FinishObserving() {
  if (!has_failed_) has_failed_ = !head_->FinishKeeping().ok();
}

void Eagle3Drafter::Propose(std::span<DraftQuery> queries) {
  int32_t num_behind = kMostBehind;
  chains_.clear();
  states_.clear();
  asked_.clear();
  if (has_failed_) return;
  siblings_.assign(queries.size(), {});
  for (DraftQuery& query : queries) AppendChain(query, num_behind);
  if (chains_.empty()) return;
  if (!head_->RunChains(chains_, least_probability_).ok()) {
    has_failed_ = true;
    for (DraftQuery& query : queries) query.drafts->clear();
    return;
  }
  TakeChains();
}

void Eagle3Drafter::TakeChains() {
  constexpr float kMemory = 0.9f;
  int32_t num_rows = 0;
  bool have_ended = true;  // before the most rows that they might have
  for (size_t i = 0; i < chains_.size(); ++i) {
    const DraftChain& chain = chains_[i];
    states_[i]->ForgetFirst(chain.kept.size());
    if (chain.num_siblings == 0 || chain.max_drafts == 0) continue;
    asked_[i]->num_steps = static_cast<int32_t>(chain.siblings->tokens.size());
    num_rows = std::max(num_rows, asked_[i]->num_steps);
    have_ended &= asked_[i]->drafts->size() < static_cast<size_t>(chain.max_drafts);
    MakeTree(*chain.siblings, *asked_[i]);
  }
  const auto rows = static_cast<float>(num_rows);
  if (num_rows == 0 || (!have_ended && (mean_rows_ == 0.0f || rows <= mean_rows_))) return;
  mean_rows_ = mean_rows_ == 0.0f ? rows : kMemory * mean_rows_ + (1.0f - kMemory) * rows;
}

void Eagle3Drafter::MakeTree(const ChainSiblings& siblings, DraftQuery& query) const {
  // The tokens of each place: that of the chain, and those beside it.
  const size_t num_ranks = 1 + static_cast<size_t>(num_siblings_);
  std::vector<SampledToken> tokens;
  for (size_t place = 0; place < siblings.tokens.size(); ++place) {
    const size_t end = tokens.size() + num_ranks;
    const bool is_drafted = place < query.drafts->size();
    if (is_drafted) tokens.push_back({(*query.drafts)[place], siblings.log_probs[place]});
    const std::vector<SampledToken>& others = siblings.tokens[place];
    tokens.insert(tokens.end(), others.begin(), others.end());
    tokens.resize(end, {kNoToken, 0.0f});
  }
  query.drafts->clear();
  RemoveBanned(query.banned_ids, tokens);
  const RankedTokens ranked = {tokens, static_cast<int32_t>(num_ranks)};
  if (choices_.empty()) {
    GrowComb(ranked, query.max_drafts, *query.drafts, *query.parents);
  } else {
    FillTree(choices_, ranked, query.max_drafts, *query.drafts, *query.parents);
  }
}

void Eagle3Drafter::AppendChain(DraftQuery& query, int32_t& num_behind) {
  query.match_class = 0;
  if (*query.state == nullptr) return;  // no hidden states yet
  State& state = static_cast<State&>(**query.state);
  const auto num_tokens = static_cast<int32_t>(query.tokens.size());
  state.ForgetOwnRows();
  if (state.next_kept() != num_tokens - 1) return;
  const bool makes_tree = num_siblings_ > 0 && query.takes_trees;
  const int32_t max_drafts =
      makes_tree ? MostRows(query.max_drafts) : std::min(query.max_drafts, kMaxDraftTokens);
  if (num_tokens + max_drafts > head_->max_positions()) return;
  const int32_t first = state.num_run_end();
  const int32_t left = num_tokens - 1 - first;
  if (left <= 0) return;
  const bool is_behind = left > kMostUnseenOfStep;
  const int32_t count = is_behind ? std::min(left, num_behind) : left;
  if (count == 0) return;
  // The last draft has no row.
  if (!state.cache->Reserve(state.cache->num_rows() + count + max_drafts - 1)) return;
  if (is_behind) {
    num_behind -= count;
    query.num_caught_up += count;
  }
  AddChain(query, state, count, count == left ? max_drafts : 0);
}

void Eagle3Drafter::AddChain(DraftQuery& query, State& state, int32_t count, int32_t max_drafts) {
  const int32_t first = state.num_run_end();
  state.num_true_end = first + count;
  if (!std::exchange(state.has_sampling, true)) {
    state.sampling = *query.sampling;
    state.sampling.returns_log_probs = true;
  }
  DraftChain& chain = chains_.emplace_back();
  chain.tokens = query.tokens.subspan(static_cast<size_t>(first) + 1, static_cast<size_t>(count));
  chain.kept = state.kept().first(static_cast<size_t>(count));
  chain.first_position = first;
  chain.cache = state.cache.get();
  chain.max_drafts = max_drafts;
  if (num_siblings_ > 0 && query.takes_trees) {
    chain.num_siblings = num_siblings_;
    chain.siblings = &siblings_[chains_.size() - 1];
    chain.least_path = least_path_;
  }
  chain.sampling = &state.sampling;
  chain.sequence = query.tokens;
  chain.num_prompt = query.num_prompt;
  chain.banned_ids = query.banned_ids;
  chain.drafts = query.drafts;
  states_.push_back(&state);
  asked_.push_back(&query);
}

}  // namespace nereid::llm
