/// \file
/// Builds a tree of draft tokens. [engine thread]
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "backends/llm_core/speculation/draft_tree.h"
#include "backends/llm_core/speculation/drafter.h"

namespace nereid::llm {

/// Writes DraftQuery::drafts and parents. Equal tokens behind the same one are one draft.
class DraftTreeBuilder {
 public:
  /// Both are borrowed, and empty at first. There are at most kMaxTreeDrafts drafts in any case.
  DraftTreeBuilder(int32_t max_drafts, std::vector<int32_t>& drafts, std::vector<int32_t>& parents)
      : max_drafts_(std::min(max_drafts, kMaxTreeDrafts)), drafts_(drafts), parents_(parents) {
    newest_child_[0] = kNoChild;
  }

  /// The draft that follows `parent` and is this token. It is added if there is none. kNoChild if
  /// there is no more room, or `parent` is kNoChild.
  int32_t Child(int32_t parent, int32_t token) {
    if (parent == kNoChild) return kNoChild;
    int32_t& newest = newest_child_[static_cast<size_t>(parent) + 1];
    for (int32_t child = newest; child != kNoChild; child = older_sibling_[child]) {
      if (drafts_[child] == token) return child;
    }
    const auto size = static_cast<int32_t>(drafts_.size());
    if (size >= max_drafts_) return kNoChild;
    drafts_.push_back(token);
    parents_.push_back(parent);
    older_sibling_[size] = newest;
    newest_child_[static_cast<size_t>(size) + 1] = kNoChild;
    return newest = size;
  }
  /// Adds a chain behind `parent` until the room is used up. Returns its last draft, or kNoChild if
  /// the chain does not fit.
  int32_t Chain(int32_t parent, std::span<const int32_t> tokens) {
    for (const int32_t token : tokens) parent = Child(parent, token);
    return parent;
  }

 private:
  const int32_t max_drafts_;
  std::vector<int32_t>& drafts_;
  std::vector<int32_t>& parents_;
  // The newest child of the sequence's newest token and of each draft, and the child of the same
  // parent that was added before each draft.
  std::array<int32_t, kMaxTreeDrafts + 1> newest_child_;
  std::array<int32_t, kMaxTreeDrafts> older_sibling_;
};

}  // namespace nereid::llm
