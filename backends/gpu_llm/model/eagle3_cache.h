// The KV blocks that a sequence has in an EAGLE-3 head. [engine thread]
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "backends/gpu_llm/model/eagle3_layer.h"

namespace nereid::gpu {

// Row i is at position i of the rope, wherever its sequence began: attention depends on differences
// of positions alone.
class Eagle3Layer::Cache : public llm::HeadCache {
 public:
  explicit Cache(std::shared_ptr<llm::BlockPool> blocks) : blocks_(std::move(blocks)) {}
  ~Cache() override { blocks_->ReleaseAll(table_); }
  int32_t num_rows() const override { return num_rows_; }
  void Truncate(int32_t num_rows) override {
    num_rows_ = std::min(num_rows_, num_rows);
    while (static_cast<int32_t>(table_.size()) > blocks_->BlocksFor(num_rows_)) {
      blocks_->Release(table_.back());
      table_.pop_back();
    }
  }
  bool Reserve(int32_t num_rows) override {
    while (static_cast<int32_t>(table_.size()) < blocks_->BlocksFor(num_rows)) {
      if (blocks_->num_free() == 0) return false;
      table_.push_back(blocks_->Allocate());
    }
    return true;
  }
  void Append(int32_t num_rows) { num_rows_ += num_rows; }
  std::span<const int32_t> table() const { return table_; }

 private:
  const std::shared_ptr<llm::BlockPool> blocks_;
  std::vector<int32_t> table_;
  int32_t num_rows_ = 0;
};

}  // namespace nereid::gpu
