// The copies of KV blocks for the next step, then those of the submitted step. Both blocks of each
// are referenced, so that neither is reused before the copy is done. [engine thread]
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/llm_core/engine/batch.h"
#include "backends/llm_core/engine/block_pool.h"

namespace nereid::llm {

class BlockCopies {
 public:
  // `blocks` must outlive the object.
  explicit BlockCopies(BlockPool& blocks) : blocks_(blocks) {}

  void Add(int32_t from, int32_t to) {
    copies_.push_back({from, to});
    blocks_.AddReference(from);
    blocks_.AddReference(to);
  }
  // Returns the copies that the next step makes and marks them as submitted.
  std::span<const BlockCopy> Submit() {
    is_submitted_ = true;
    return copies_;
  }
  void FinishSubmitted() {
    if (is_submitted_) Finish();
  }
  // Drops the copies: they are done, or no further step will make them.
  void Finish() {
    for (const BlockCopy& copy : copies_) {
      blocks_.Release(copy.from);
      blocks_.Release(copy.to);
    }
    copies_.clear();
    is_submitted_ = false;
  }
  // Appends the blocks that the copies reference.
  void AppendHeld(std::vector<std::vector<int32_t>>& held) const {
    for (const BlockCopy& copy : copies_) held.push_back({copy.from, copy.to});
  }

 private:
  BlockPool& blocks_;
  std::vector<BlockCopy> copies_;
  bool is_submitted_ = false;
};

}  // namespace nereid::llm
