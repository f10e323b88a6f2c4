// Keeps the newest hidden state of each sequence, and makes trees of the tokens that heads rank.
#include "backends/llm_core/speculation/medusa_drafter.h"

#include <algorithm>
#include <utility>

namespace nereid::llm {
namespace {

// Tokens of each head that are considered without an explicit tree.
constexpr int32_t kRanksOfGrownTrees = 10;

int32_t NumRanks(std::span<const TreeChoice> choices) {
  if (choices.empty()) return kRanksOfGrownTrees;
  int32_t most = 0;
  for (const TreeChoice& choice : choices) most = std::max(most, choice.rank);
  return most + 1;
}

}  // namespace

// The row of the store that a sequence has, and the position of the token whose hidden state is in
// it.
class MedusaDrafter::State : public DrafterState {
 public:
  State(int32_t row, std::shared_ptr<RowPool> pool) : row_(row), pool_(std::move(pool)) {}
  ~State() override { pool_->Release(std::span(&row_, 1)); }
  int32_t row() const { return row_; }

  int32_t position = -1;

 private:
  const int32_t row_;
  const std::shared_ptr<RowPool> pool_;
};

MedusaDrafter::MedusaDrafter(std::unique_ptr<MedusaHeads> heads, std::vector<TreeChoice> choices)
    : heads_(std::move(heads)), choices_(std::move(choices)), num_ranks_(NumRanks(choices_)) {}

void MedusaDrafter::Observe(std::unique_ptr<DrafterState>& owned, int32_t first_position,
                            const HiddenRows& rows) {
  if (has_failed_ || rows.num_rows == 0) return;
  if (owned == nullptr) {
    if (heads_->pool()->num_free() == 0) return;
    std::vector<int32_t> row;
    heads_->pool()->Take(1, row);
    owned = std::make_unique<State>(row[0], heads_->pool());
  }
  State& state = static_cast<State&>(*owned);
  const int32_t row = state.row();
  state.position = first_position + rows.num_rows - 1;
  heads_->Keep(rows.Part(rows.num_rows - 1, 1), std::span(&row, 1));
}

void MedusaDrafter::FinishObserving() {
  if (!has_failed_) has_failed_ = !heads_->FinishKeeping().ok();
}

void MedusaDrafter::Propose(std::span<DraftQuery> queries) {
  asked_.clear();
  rows_.clear();
  int32_t num_heads = 0;
  for (DraftQuery& query : queries) {
    query.match_class = 0;
    if (has_failed_ || *query.state == nullptr) continue;
    const State& state = static_cast<const State&>(**query.state);
    // The newest token follows the one whose hidden state is kept.
    if (state.position != static_cast<int32_t>(query.tokens.size()) - 2) continue;
    asked_.push_back(&query);
    rows_.push_back(state.row());
    num_heads = std::max(num_heads, std::min(heads_->num_heads(), query.max_drafts));
  }
  if (asked_.empty()) return;
  if (!heads_->Run(rows_, num_heads, num_ranks_, tokens_).ok()) {
    has_failed_ = true;
    return;
  }
  const size_t size = tokens_.size() / asked_.size();
  for (size_t i = 0; i < asked_.size(); ++i) {
    FillQuery(*asked_[i], std::span(tokens_).subspan(i * size, size));
  }
}

void MedusaDrafter::FillQuery(DraftQuery& query, std::span<SampledToken> tokens) const {
  RemoveBanned(query.banned_ids, tokens);
  const RankedTokens ranked = {tokens, num_ranks_};
  if (!query.takes_trees) {  // the likeliest token of each head
    for (int32_t depth = 0; depth < std::min(ranked.num_depths(), query.max_drafts); ++depth) {
      int32_t rank = 0;
      while (rank < num_ranks_ && ranked.At(depth, rank).id == kNoToken) ++rank;
      if (rank == num_ranks_) return;
      query.drafts->push_back(ranked.At(depth, rank).id);
    }
  } else if (choices_.empty()) {
    GrowTree(ranked, query.max_drafts, *query.drafts, *query.parents);
  } else {
    FillTree(choices_, ranked, query.max_drafts, *query.drafts, *query.parents);
  }
}

}  // namespace nereid::llm
