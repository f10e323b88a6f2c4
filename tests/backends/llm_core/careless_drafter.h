// Drafters for tests: proposals of random length in which each token is right or wrong at random.
#pragma once

#include <functional>
#include <random>
#include <span>

#include "backends/llm_core/speculation/drafter.h"

namespace nereid::llm::testing {

class CarelessDrafter : public Drafter {
 public:
  // `next` returns the right token behind `tokens`. One of `fault_rate` tokens is replaced by one
  // below `vocab_size`.
  CarelessDrafter(uint32_t seed, int32_t vocab_size, int fault_rate,
                  std::function<int32_t(std::span<const int32_t>)> next)
      : random_(seed), vocab_size_(vocab_size), fault_rate_(fault_rate), next_(std::move(next)) {}

  std::string_view name() const override { return "careless"; }
  void Propose(std::span<DraftQuery> queries) override {
    for (DraftQuery& query : queries) {
      std::vector<int32_t> tokens(query.tokens.begin(), query.tokens.end());
      for (int32_t left = Pick(0, query.max_drafts); left > 0; --left) {
        const bool is_wrong = Pick(1, fault_rate_) == 1;
        tokens.push_back(is_wrong ? Pick(0, vocab_size_ - 1) : next_(tokens));
        query.drafts->push_back(tokens.back());
      }
      query.match_class = Pick(0, AcceptanceRates::kNumClasses - 1);
    }
  }

 private:
  int Pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }

  std::mt19937 random_;
  const int32_t vocab_size_;
  const int fault_rate_;
  const std::function<int32_t(std::span<const int32_t>)> next_;
};

}  // namespace nereid::llm::testing
