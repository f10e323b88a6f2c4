/// \file
/// Functions of trees of drafts. A tree is the parent of each draft: the index of the draft that it
/// follows, which is before it, or -1 for the sequence's newest token. No parents at all: each
/// draft follows the one before. [any thread]
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace nereid::llm {

/// The newest token, as the parent of a draft.
inline constexpr int32_t kTreeRoot = -1;
/// What FindChild returns if there is none.
inline constexpr int32_t kNoChild = -2;

inline int32_t ParentOf(std::span<const int32_t> parents, int32_t draft) {
  return parents.empty() ? draft - 1 : parents[static_cast<size_t>(draft)];
}

/// Whether these are the parents of `num_drafts` drafts.
inline bool IsTree(std::span<const int32_t> parents, size_t num_drafts) {
  if (parents.empty()) return true;
  if (parents.size() != num_drafts) return false;
  for (size_t i = 0; i < parents.size(); ++i) {
    if (parents[i] < kTreeRoot || parents[i] >= static_cast<int32_t>(i)) return false;
  }
  return true;
}

/// The draft that follows `parent` and is this token, or kNoChild.
inline int32_t FindChild(std::span<const int32_t> drafts, std::span<const int32_t> parents,
                         int32_t parent, int32_t token) {
  const auto count = static_cast<int32_t>(drafts.size());
  const int32_t end = parents.empty() ? std::min(count, parent + 2) : count;
  for (int32_t i = parent + 1; i < end; ++i) {
    if (drafts[static_cast<size_t>(i)] == token && ParentOf(parents, i) == parent) return i;
  }
  return kNoChild;
}

/// The drafts from the first one behind the newest token to `draft`, in the order of the sequence,
/// in place of the content of `path`.
inline void FindPath(std::span<const int32_t> parents, int32_t draft, std::vector<int32_t>& path) {
  path.clear();
  for (; draft != kTreeRoot; draft = ParentOf(parents, draft)) path.insert(path.begin(), draft);
}

/// The number of drafts on the way to each draft, itself included, in place of the content of
/// `depths`.
inline void FindDepths(std::span<const int32_t> parents, std::vector<int32_t>& depths) {
  depths.clear();
  for (const int32_t parent : parents) {
    depths.push_back(parent == kTreeRoot ? 1 : depths[static_cast<size_t>(parent)] + 1);
  }
}

}  // namespace nereid::llm
