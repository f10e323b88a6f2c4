/// \file
/// Hidden states of the target between layers, which a drafter continues, and the rows of a store
/// in which they wait for it. [engine thread]
#pragma once

#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace nereid::llm {

/// Where an executor leaves the hidden states of a step.
enum class HiddenStatePlace {
  kHost,    ///< StepResult::hidden_states
  kDevice,  ///< in its own memory, until the next step; the drafter runs on the same device
};

/// The hidden states of consecutive tokens of the newest step.
struct HiddenRows {
  /// Those of one token, side by side, are a row: [num_rows, row size]. Empty with
  /// HiddenStatePlace::kDevice.
  std::span<const float> values = {};
  int32_t num_rows = 0;
  int32_t first_row = 0;  ///< of the first token, among the tokens of the step
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

}  // namespace nereid::llm
