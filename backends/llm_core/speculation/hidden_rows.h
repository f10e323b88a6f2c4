/// \file
/// Hidden states of the target between layers, which a drafter continues, and the rows of a store
/// in which they wait for it. [engine thread]
#pragma once

#include <cstdint>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "nereid/status.h"

namespace nereid::llm {

/// Where an executor leaves the hidden states of a step.
enum class HiddenStatePlace {
  kHost,    ///< StepResult::hidden_states
  kDevice,  ///< in its own memory, until the next step; the drafter runs on the same device
};

/// The hidden states of consecutive tokens of a sequence in the newest step.
struct HiddenRows {
  /// Those of one token, side by side, are a row: [num_rows, row size]. Empty with
  /// HiddenStatePlace::kDevice.
  std::span<const float> values = {};
  int32_t num_rows = 0;
  int32_t first_row = 0;  ///< of the first token, among the tokens of the step
  /// [num_rows]: the place of each token among those of the step, where accepted drafts of a tree
  /// are among them. Empty: the tokens are side by side in the step.
  std::span<const int32_t> step_rows = {};

  int32_t StepRow(int32_t i) const {
    return step_rows.empty() ? first_row + i : step_rows[static_cast<size_t>(i)];
  }
  /// `count` rows from row `first` on.
  HiddenRows Part(int32_t first, int32_t count) const {
    HiddenRows part = {.num_rows = count, .first_row = first_row + first};
    const auto begin = static_cast<size_t>(first), size = static_cast<size_t>(count);
    if (!values.empty()) {
      const size_t row_size = values.size() / static_cast<size_t>(num_rows);
      part.values = values.subspan(begin * row_size, size * row_size);
    }
    if (!step_rows.empty()) part.step_rows = step_rows.subspan(begin, size);
    return part;
  }
};

/// Hands out the rows of a store.
class RowPool {
 public:
  explicit RowPool(int32_t num_rows) : free_(static_cast<size_t>(num_rows)) {
    std::iota(free_.rbegin(), free_.rend(), 0);
  }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  /// Appends `count` rows to `rows`. Requires count <= num_free().
  void Take(int32_t count, std::vector<int32_t>& rows) {
    rows.insert(rows.end(), free_.end() - count, free_.end());
    free_.resize(free_.size() - static_cast<size_t>(count));
  }
  void Release(std::span<const int32_t> rows) {
    free_.insert(free_.end(), rows.begin(), rows.end());
  }

 private:
  std::vector<int32_t> free_;
};

/// Keeps hidden states of the target until a head runs them.
class HiddenStateStore {
 public:
  explicit HiddenStateStore(int32_t num_rows) : pool_(std::make_shared<RowPool>(num_rows)) {}
  virtual ~HiddenStateStore() = default;
  /// Where the executor has to leave the hidden states.
  virtual HiddenStatePlace place() const = 0;
  /// Copies hidden states of the newest step to rows of the store. `kept` is parallel to the rows.
  virtual void Keep(const HiddenRows& rows, std::span<const int32_t> kept) = 0;
  /// Called after the last Keep of a step, and before the executor's next step.
  virtual Status FinishKeeping() { return {}; }
  /// Hands out the rows. Shared, because the sequences that have rows may live longer.
  const std::shared_ptr<RowPool>& pool() const { return pool_; }

 private:
  const std::shared_ptr<RowPool> pool_;
};

}  // namespace nereid::llm
