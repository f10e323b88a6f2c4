// Runs the draft model and keeps its KV cache.
#include "backends/llm_core/speculation/model_drafter.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace nereid::llm {
namespace {

constexpr int32_t kWarmUpTokens = 32;

}  // namespace

// What the draft model knows of a sequence.
class ModelDrafter::State : public DrafterState {
 public:
  explicit State(std::shared_ptr<Cache> cache) : cache_(std::move(cache)) {}
  ~State() override;

  TokenIds tokens;                   // of the sequence, then drafts
  size_t num_known = 0;              // of `tokens`: those of the sequence at the last call
  int32_t num_cached = 0;            // of `tokens`: those whose keys and values are in the cache
  std::vector<int32_t> block_table;  // of the draft model's cache
  int32_t slot = -1;                 // -1: it has neither slot nor blocks
  uint64_t used_at = 0;              // number of the last call that asked for drafts
  SamplingParams sampling;           // the target's, with log probabilities

 private:
  const std::shared_ptr<Cache> cache_;
};

// The blocks and slots of the draft model, and the states that have some. Sequences that were not
// asked for lately lose theirs to others.
class ModelDrafter::Cache {
 public:
  explicit Cache(const ExecutorLimits& limits) : blocks_(limits.num_blocks, limits.block_size) {
    for (int32_t slot = limits.max_num_sequences - 1; slot >= 0; --slot)
      free_slots_.push_back(slot);
  }

  void BeginCall() { ++num_calls_; }
  // Gives `state` a slot and blocks for its first `num_tokens` tokens. Returns false if the
  // sequences of this call have them all.
  bool Reserve(State& state, int32_t num_tokens) {
    state.used_at = num_calls_;
    if (state.slot < 0) {
      if (free_slots_.empty() && !TakeFromOldest()) return false;
      state.slot = free_slots_.back();
      free_slots_.pop_back();
      holders_.push_back(&state);
    }
    while (static_cast<int32_t>(state.block_table.size()) < blocks_.BlocksFor(num_tokens)) {
      // The oldest may have a slot, but no blocks.
      while (blocks_.num_free() == 0) {
        if (!TakeFromOldest()) return false;
      }
      state.block_table.push_back(blocks_.Allocate());
    }
    return true;
  }
  void Release(State& state) {
    if (state.slot < 0) return;
    blocks_.ReleaseAll(state.block_table);
    free_slots_.push_back(std::exchange(state.slot, -1));
    state.num_cached = 0;
    std::erase(holders_, &state);
  }

 private:
  bool TakeFromOldest() {
    const auto oldest =
        std::min_element(holders_.begin(), holders_.end(),
                         [](const State* a, const State* b) { return a->used_at < b->used_at; });
    if (oldest == holders_.end() || (*oldest)->used_at == num_calls_) return false;
    Release(**oldest);
    return true;
  }

  BlockPool blocks_;
  std::vector<int32_t> free_slots_;
  std::vector<State*> holders_;
  uint64_t num_calls_ = 0;
};

ModelDrafter::State::~State() {
  cache_->Release(*this);
}

ModelDrafter::ModelDrafter(std::unique_ptr<Executor> executor, float least_probability)
    : executor_(std::move(executor)),
      limits_(executor_->limits()),
      least_probability_(least_probability),
      cache_(std::make_shared<Cache>(limits_)) {}

ModelDrafter::~ModelDrafter() = default;

Status ModelDrafter::WarmUp() {
  const TokenIds tokens(kWarmUpTokens, 0);
  const SamplingParams sampling;
  std::unique_ptr<DrafterState> state;
  std::vector<int32_t> drafts;
  DraftQuery query;
  query.tokens = tokens;
  query.max_drafts = 1;
  query.state = &state;
  query.num_prompt = kWarmUpTokens;
  query.sampling = &sampling;
  query.drafts = &drafts;
  Propose(std::span(&query, 1));
  return failure_;
}

void ModelDrafter::Propose(std::span<DraftQuery> queries) {
  if (!failure_.ok()) return;
  cache_->BeginCall();
  num_behind_ = limits_.max_num_tokens;
  chains_.clear();
  for (DraftQuery& query : queries) {
    query.match_class = 0;
    chains_.push_back({&query, &PrepareState(query)});
  }
  while (!chains_.empty()) {
    failure_ = RunStep();
    if (failure_.ok()) continue;
    for (DraftQuery& query : queries) query.drafts->clear();
    return;
  }
}

ModelDrafter::State& ModelDrafter::PrepareState(DraftQuery& query) {
  if (*query.state == nullptr) {
    auto made = std::make_unique<State>(cache_);
    made->sampling = *query.sampling;
    made->sampling.returns_log_probs = true;
    *query.state = std::move(made);
  }
  State& state = static_cast<State&>(**query.state);
  // Of the drafts that the model has seen, those that became the sequence's tokens remain.
  size_t same = std::min(state.num_known, state.tokens.size());
  while (same < state.tokens.size() && same < query.tokens.size() &&
         state.tokens[same] == query.tokens[same]) {
    ++same;
  }
  state.tokens.resize(same);
  state.tokens.insert(state.tokens.end(), query.tokens.begin() + static_cast<ptrdiff_t>(same),
                      query.tokens.end());
  state.num_known = query.tokens.size();
  // The newest token is run in any case: its logits are needed.
  const auto most = static_cast<int32_t>(std::min(same, query.tokens.size() - 1));
  state.num_cached = std::min(state.num_cached, most);
  return state;
}

Status ModelDrafter::RunStep() {
  batch_.Clear();
  running_.clear();
  std::erase_if(chains_, [this](const Chain& chain) { return !AppendEntry(chain); });
  if (batch_.entries.empty()) {
    chains_.clear();
    return {};
  }
  NEREID_RETURN_IF_ERROR(executor_->Submit(batch_));
  NEREID_ASSIGN_OR_RETURN(const StepResult result, executor_->Collect());
  for (size_t i = 0; i < running_.size(); ++i) {
    const Chain& chain = running_[i];
    chain.state->num_cached += batch_.entries[i].num_tokens;
    if (!batch_.entries[i].samples || Extend(chain, result.tokens[i])) continue;
    std::erase_if(chains_, [&](const Chain& other) { return other.state == chain.state; });
  }
  return {};
}

bool ModelDrafter::AppendEntry(const Chain& chain) {
  State& state = *chain.state;
  const auto num_tokens = static_cast<int32_t>(state.tokens.size());
  const int32_t left = num_tokens - state.num_cached;
  const auto used = static_cast<int32_t>(batch_.token_ids.size());
  if (num_tokens >= limits_.max_positions) return false;
  if (limits_.long_rope_positions > 0 && num_tokens > limits_.long_rope_positions) return false;
  // Tokens that were verified since the last call and that the model has not seen come to two.
  constexpr int32_t kKeepsUp = 2;
  int32_t chunk = std::min(left, limits_.max_num_tokens - used);
  if (left > kKeepsUp) chunk = std::min(chunk, num_behind_);
  if (left > kKeepsUp && num_behind_ == 0) return false;
  if (chunk == 0 || static_cast<int32_t>(running_.size()) == limits_.max_num_sequences) {
    return true;  // in the next step
  }
  if (!cache_->Reserve(state, state.num_cached + chunk)) return false;
  if (left > kKeepsUp) {
    num_behind_ -= chunk;
    chain.query->num_caught_up += chunk;
  }
  BatchEntry& entry = batch_.entries.emplace_back();
  entry.slot = state.slot;
  entry.first_token = used;
  entry.num_tokens = chunk;
  entry.num_cached = state.num_cached;
  entry.num_prompt = chain.query->num_prompt;
  entry.block_table = state.block_table;
  entry.samples = chunk == left;
  entry.num_logits = entry.samples ? 1 : 0;
  if (entry.samples) {
    entry.sampling.params = &state.sampling;
    entry.sampling.token_ids = state.tokens;
    entry.sampling.num_prompt = chain.query->num_prompt;
    entry.sampling.banned_ids = chain.query->banned_ids;
  }
  const auto first = state.tokens.begin() + state.num_cached;
  batch_.token_ids.insert(batch_.token_ids.end(), first, first + chunk);
  running_.push_back(chain);
  return true;
}

bool ModelDrafter::Extend(const Chain& chain, const SampledToken& token) const {
  if (token.id == kNoToken || std::exp(token.log_prob) < least_probability_) return false;
  std::vector<int32_t>& drafts = *chain.query->drafts;
  drafts.push_back(token.id);
  if (static_cast<int32_t>(drafts.size()) == chain.query->max_drafts) return false;
  chain.state->tokens.push_back(token.id);
  return true;
}

}  // namespace nereid::llm
