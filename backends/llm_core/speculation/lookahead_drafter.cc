// Keeps the pool and the window of each sequence.
#include "backends/llm_core/speculation/lookahead_drafter.h"

#include <algorithm>

#include "backends/llm_core/speculation/lookahead_window.h"
#include "backends/llm_core/speculation/ngram_pool.h"

namespace nereid::llm {
namespace {

struct LookaheadState : DrafterState {
  LookaheadState(const LookaheadSizes& sizes_of_sequence, std::span<const int32_t> tokens)
      : sizes(sizes_of_sequence),
        pool(sizes.ngram_size, sizes.verification_set_size),
        window(sizes.window_size, sizes.ngram_size - 1, tokens),
        num_first(tokens.size()) {}

  // Adds the n-grams whose last token came since the last call. Of a long prompt, only the last
  // ones are added, as many as the pool can have.
  void AddNgrams(std::span<const int32_t> tokens) {
    const auto size = static_cast<size_t>(sizes.ngram_size);
    size_t end = std::max(num_pooled + 1, size);
    const auto most = static_cast<size_t>(pool.capacity());
    if (tokens.size() > most) end = std::max(end, tokens.size() - most + 1);
    for (; end <= tokens.size(); ++end) pool.Insert(tokens.subspan(end - size, size));
    num_pooled = tokens.size();
  }

  const LookaheadSizes sizes;
  NgramPool pool;
  LookaheadWindow window;
  const size_t num_first;  // tokens of the sequence with which the window began
  size_t num_pooled = 0;   // tokens of the sequence whose n-grams the pool was given
};

}  // namespace

void LookaheadDrafter::Propose(std::span<DraftQuery> queries) {
  for (DraftQuery& query : queries) {
    if (!query.takes_trees || query.tokens.empty()) continue;
    const LookaheadSizes& sizes = query.lookahead != nullptr ? *query.lookahead : sizes_;
    if (*query.state == nullptr) {
      *query.state = std::make_unique<LookaheadState>(sizes, query.tokens);
    }
    auto& state = static_cast<LookaheadState&>(**query.state);
    const size_t num_before = state.num_pooled;
    state.AddNgrams(query.tokens);
    const int32_t newest = query.tokens.back();
    if (num_before > 0 && query.tokens.size() > num_before + 1) {
      state.window.Shift(static_cast<int32_t>(query.tokens.size() - num_before - 1), newest,
                         query.tokens.first(state.num_first), state.pool);
    }
    DraftTreeBuilder tree(query.max_drafts, *query.drafts, *query.parents);
    state.pool.Find(newest, state.sizes.verification_set_size, found_);
    for (const std::span<const int32_t> ngram : found_) tree.Chain(kTreeRoot, ngram);
    query.num_direct = static_cast<int32_t>(query.drafts->size());
    state.window.AddTo(newest, tree);
  }
}

// Without a call, because a step had no drafts or was lost, the window stays as it is.
void LookaheadDrafter::ObserveRowTokens(std::unique_ptr<DrafterState>& state,
                                        std::span<const int32_t> row_tokens) {
  if (state == nullptr) return;
  auto& own = static_cast<LookaheadState&>(*state);
  own.window.Advance(row_tokens, own.pool);
}

}  // namespace nereid::llm
