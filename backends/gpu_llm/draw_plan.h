// Plans sampling on the device for rows that are not plainly greedy: parameters of each row, and a
// list of the logits that rules change. No CUDA here. [engine thread]
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/llm_core/engine/batch.h"

namespace nereid::gpu {

// The change of one logit by bias, penalties and bans. An id appears once in an item's list.
struct LogitEdit {
  int32_t id;
  int32_t count;  // occurrences of the id in the sequence, for penalties; or kBannedToken
  float bias;
  float raw;  // the logit before the change, written by the device
};
inline constexpr int32_t kBannedToken = -1;

// A row of logits to sample from.
struct DrawItem {
  int32_t row;  // row of logits: number of the sampled position in the batch
  int32_t is_greedy;
  int32_t first_edit;
  int32_t num_edits;
  float scale;      // 1 / temperature
  int32_t top_k;    // 0: all
  float top_p;      // 1: all
  float log_min_p;  // minus infinity: all
  float repetition_penalty, presence_penalty, frequency_penalty;
  uint32_t position, seed_low, seed_high;
  int32_t mask_row;  // of DrawPlanner::masks(): the tokens that a grammar allows; -1: all
};

// Plans the draws of a batch. The host samples rows with too many edits, and verifies drafts that
// were drawn from known logits.
class DrawPlanner {
 public:
  // A position that the host samples.
  struct HostDraw {
    int32_t sequence;  // index into StepBatch::entries
    int32_t index;     // of the entry's sampled positions
    int32_t row;       // of logits
  };

  DrawPlanner(int32_t vocab_size, int32_t max_num_edits)
      : max_num_edits_(max_num_edits), edit_of_(vocab_size, -1) {}

  void Plan(const llm::StepBatch& batch);

  // Valid until the next call.
  std::span<const DrawItem> items() const { return items_; }
  std::span<const LogitEdit> edits() const { return edits_; }
  // Rows of BatchEntry::token_masks, borrowed from the batch. Their content is known once
  // StepBatch::wait_for_masks has returned.
  std::span<const std::span<const uint32_t>> masks() const { return masks_; }
  // In the order of the rows.
  std::span<const HostDraw> on_host() const { return on_host_; }

 private:
  // Plans the draw of one position. The tokens of `input` end before it.
  void Add(const HostDraw& at, const llm::SamplingInput& input,
           std::span<const uint32_t> token_mask);
  // False if the list of edits is full.
  bool AddEdits(const llm::SamplingInput& input);
  LogitEdit* Edit(int32_t id);

  const int32_t max_num_edits_;
  std::vector<int32_t> edit_of_;  // [vocab_size]: index into edits_ or -1; all -1 between sequences
  std::vector<DrawItem> items_;
  std::vector<LogitEdit> edits_;
  std::vector<std::span<const uint32_t>> masks_;
  std::vector<HostDraw> on_host_;
  // Scratch memory: the tokens of a sequence and the drafts before a position.
  std::vector<int32_t> with_drafts_;
  std::vector<int32_t> banned_;
};

}  // namespace nereid::gpu
