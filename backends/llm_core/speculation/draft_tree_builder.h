/// \file
/// Builds a tree of draft tokens. [engine thread]
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/llm_core/speculation/draft_tree.h"

namespace nereid::llm {

/// Writes DraftQuery::drafts and parents. Equal tokens behind the same one are one draft.
class DraftTreeBuilder {
 public:
  /// Both are borrowed, and empty at first.
  DraftTreeBuilder(int32_t max_drafts, std::vector<int32_t>& drafts, std::vector<int32_t>& parents)
      : max_drafts_(max_drafts), drafts_(drafts), parents_(parents) {}

  /// The draft that follows `parent` and is this token. It is added if there is none. kNoChild if
  /// there is no more room, or `parent` is kNoChild.
  int32_t Child(int32_t parent, int32_t token) {
    if (parent == kNoChild) return kNoChild;
    if (const int32_t child = FindChild(drafts_, parents_, parent, token); child != kNoChild) {
      return child;
    }
    const auto size = static_cast<int32_t>(drafts_.size());
    if (size >= max_drafts_) return kNoChild;
    drafts_.push_back(token);
    parents_.push_back(parent);
    return size;
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
};

}  // namespace nereid::llm
