/// \file
/// How many of the first drafts of a tree are accepted, measured for each index in the proposals of
/// a drafter. [engine thread]
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "backends/llm_core/speculation/drafter.h"

namespace nereid::llm {

class TreeYields {
 public:
  TreeYields() { UpdateSums(); }

  /// Records which of the first `num_drafts` drafts of a proposal were accepted, by index.
  void Record(int32_t num_drafts, std::span<const int32_t> accepted) {
    for (int32_t i = 0; i < num_drafts; ++i) {
      nodes_[i].tried = kMemory * nodes_[i].tried + 1.0f;
      nodes_[i].accepted *= kMemory;
    }
    for (const int32_t i : accepted) nodes_[i].accepted += 1.0f;
    UpdateSums();
  }
  /// Makes what was recorded count less.
  void Fade(float part) {
    for (Node& node : nodes_) {
      node.tried *= part;
      node.accepted *= part;
    }
    UpdateSums();
  }
  /// The expected number of accepted drafts among the first ones.
  double Of(int32_t num_drafts) const { return sums_[num_drafts]; }

 private:
  static constexpr float kMemory = 0.98f;
  static constexpr float kPriorWeight = 4.0f;
  // The acceptance of the first draft before any is measured, and that of each one behind it in
  // units of the one before.
  static constexpr float kPrior = 0.5f;
  static constexpr float kPriorDecay = 0.75f;

  struct Node {
    float tried = 0.0f, accepted = 0.0f;
  };

  // The prior of a draft is bounded by the rates of the drafts before it, of which more is known.
  void UpdateSums() {
    double sum = 0.0;
    float prior = kPrior, before = kPrior;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = nodes_[i];
      const float guess = std::min(prior, before);
      const float rate = (node.accepted + guess * kPriorWeight) / (node.tried + kPriorWeight);
      sums_[i + 1] = sum += static_cast<double>(rate);
      prior *= kPriorDecay;
      before = 0.5f * (before + rate);
    }
  }

  std::array<Node, kMaxTreeDrafts> nodes_;
  std::array<double, kMaxTreeDrafts + 1> sums_ = {};
};

}  // namespace nereid::llm
