// Drafters for tests: proposals of random length in which each token is right or wrong at random.
#pragma once

#include <functional>
#include <memory>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "backends/llm_core/speculation/draft_tree.h"
#include "backends/llm_core/speculation/drafter.h"

namespace nereid::llm::testing {

enum class CarelessShape {
  kChains,
  kTrees,          // random trees and chains
  kTreesWithRows,  // and the drafter reads row tokens
};

class CarelessDrafter : public Drafter {
 public:
  // `next` returns the right token behind `tokens`. One of `fault_rate` tokens is replaced by one
  // below `vocab_size`.
  CarelessDrafter(uint32_t seed, int32_t vocab_size, int fault_rate,
                  std::function<int32_t(std::span<const int32_t>)> next,
                  CarelessShape shape = CarelessShape::kChains)
      : random_(seed),
        vocab_size_(vocab_size),
        fault_rate_(fault_rate),
        next_(std::move(next)),
        shape_(shape) {}

  std::string_view name() const override { return "careless"; }
  bool proposes_trees() const override { return shape_ != CarelessShape::kChains; }
  bool reads_row_tokens() const override { return shape_ == CarelessShape::kTreesWithRows; }
  void Propose(std::span<DraftQuery> queries) override {
    for (DraftQuery& query : queries) {
      if (proposes_trees() && query.takes_trees && Pick(0, 3) > 0) {
        ProposeTree(query);
      } else {
        ProposeChain(query);
      }
      query.match_class = Pick(0, AcceptanceRates::kNumClasses - 1);
      if (reads_row_tokens()) Remember(query);
    }
  }
  // Calls on_row for every row of a greedy sequence.
  void ObserveRowTokens(std::unique_ptr<DrafterState>& owned,
                        std::span<const int32_t> row_tokens) override {
    const auto& state = static_cast<const State&>(*owned);
    ++num_observed_;
    std::vector<int32_t> path;
    for (size_t row = 0; row < row_tokens.size() && on_row && state.is_greedy; ++row) {
      std::vector<int32_t> tokens = state.tokens;
      FindPath(state.parents, static_cast<int32_t>(row) - 1, path);
      for (const int32_t draft : path) tokens.push_back(state.drafts[draft]);
      on_row(tokens, row_tokens[row]);
    }
  }
  int64_t num_observed() const { return num_observed_; }

  // Gets the tokens up to a draft of a proposal, and the row token behind it.
  std::function<void(std::span<const int32_t> tokens, int32_t row_token)> on_row;

 private:
  struct State : DrafterState {
    std::vector<int32_t> tokens, drafts, parents;
    bool is_greedy = false;
  };

  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  int32_t Next(std::span<const int32_t> tokens) {
    return Pick(1, fault_rate_) == 1 ? Pick(0, vocab_size_ - 1) : next_(tokens);
  }
  void ProposeChain(DraftQuery& query) {
    std::vector<int32_t> tokens(query.tokens.begin(), query.tokens.end());
    for (int32_t left = Pick(0, query.max_drafts); left > 0; --left) {
      tokens.push_back(Next(tokens));
      query.drafts->push_back(tokens.back());
    }
  }
  // Drafts at random places. The right continuation of a place is at any of its children.
  void ProposeTree(DraftQuery& query) {
    std::vector<int32_t>&drafts = *query.drafts, &parents = *query.parents;
    std::vector<int32_t> path;
    for (int32_t left = Pick(1, query.max_drafts); left > 0; --left) {
      const auto newest = static_cast<int32_t>(drafts.size()) - 1;
      const int32_t parent = Pick(0, 1) == 0 ? newest : Pick(kTreeRoot, newest);
      std::vector<int32_t> tokens(query.tokens.begin(), query.tokens.end());
      FindPath(parents, parent, path);
      for (const int32_t draft : path) tokens.push_back(drafts[draft]);
      int32_t token = Pick(0, 2) == 0 ? Pick(0, vocab_size_ - 1) : Next(tokens);
      if (!parents.empty() && FindChild(drafts, parents, parent, token) != kNoChild) continue;
      drafts.push_back(token);
      parents.push_back(parent);
    }
  }
  static void Remember(const DraftQuery& query) {
    auto state = std::make_unique<State>();
    state->tokens.assign(query.tokens.begin(), query.tokens.end());
    state->drafts = *query.drafts;
    state->parents = *query.parents;
    state->is_greedy = query.sampling->is_greedy();
    *query.state = std::move(state);
  }

  std::mt19937 random_;
  const int32_t vocab_size_;
  const int fault_rate_;
  const std::function<int32_t(std::span<const int32_t>)> next_;
  const CarelessShape shape_;
  int64_t num_observed_ = 0;
};

}  // namespace nereid::llm::testing
