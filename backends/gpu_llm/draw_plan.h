// What the device must know to draw a token otherwise than by the greatest logit: numbers, and a
// list of the logits that rules change. No CUDA here. [engine thread]
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/llm_core/engine/batch.h"

namespace nereid::gpu {

// One logit's change by bias, penalties and bans. An id comes once in an item's list.
struct LogitEdit {
  int32_t id;
  int32_t count;  // of the id in the sequence so far: penalties; kBannedToken
  float bias;
  float raw;  // the logit as it came, put there by the device
};
inline constexpr int32_t kBannedToken = -1;

// A row of logits to draw from.
struct DrawItem {
  int32_t row;  // of logits: the how manieth sequence that samples
  int32_t is_greedy;
  int32_t first_edit;
  int32_t num_edits;
  float scale;      // 1 / temperature
  int32_t top_k;    // 0: all
  float top_p;      // 1: all
  float log_min_p;  // minus infinity: all
  float repetition_penalty, presence_penalty, frequency_penalty;
  uint32_t position, seed_low, seed_high;
};

// Those of a batch. Rows whose lists are too long are left to the host.
class DrawPlanner {
 public:
  DrawPlanner(int32_t vocab_size, int32_t max_num_edits)
      : max_num_edits_(max_num_edits), edit_of_(vocab_size, -1) {}

  void Plan(const llm::Batch& batch);

  // Valid until the next call.
  std::span<const DrawItem> items() const { return items_; }
  std::span<const LogitEdit> edits() const { return edits_; }
  // Indices into Batch::sequences.
  std::span<const int32_t> on_host() const { return on_host_; }

 private:
  // False: there is no room.
  bool AddEdits(const llm::SamplingInput& input);
  LogitEdit* Edit(int32_t id);

  const int32_t max_num_edits_;
  std::vector<int32_t> edit_of_;  // [vocab_size]: index into edits_, -1; all -1 between sequences
  std::vector<DrawItem> items_;
  std::vector<LogitEdit> edits_;
  std::vector<int32_t> on_host_;
  std::vector<int32_t> banned_;
};

}  // namespace nereid::gpu
