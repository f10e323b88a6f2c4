// The draft tokens of a step between its submission and its result: which of them are accepted, and
// where their keys and values have to go. No CUDA here. [engine thread]
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backends/gpu_llm/step_plan.h"
#include "backends/llm_core/engine/batch.h"
#include "nereid/status.h"

namespace nereid::gpu {

// Of the key and value of a token in all layers, between slots of the KV cache: block *
// kBlockTokens + token.
struct TokenMove {
  int32_t from, to;
};

// The moves of one sequence: [first, first + count). They happen one after the other.
struct MoveRange {
  int32_t first, count;
};

class StepDrafts {
 public:
  // Takes the drafts of a step. `planner` planned it.
  void Take(const llm::StepBatch& batch, const StepPlanner& planner);
  // Compares what was sampled behind the entry's last tokens with its drafts: `ids` and `log_probs`
  // of its 1 + num_draft_tokens rows. Sets the accepted drafts and the token that follows.
  void Accept(size_t sequence, const int32_t* ids, const float* log_probs, llm::StepResult& result);
  // On a GPU that samples nothing: takes the accepted drafts of trees from the step's result.
  void Follow(const llm::StepResult& result);
  // Of the drafts accepted so far that are not at their places in the sequence.
  std::span<const TokenMove> moves() const { return moves_; }
  std::span<const MoveRange> ranges() const { return ranges_; }
  // Whether a draft of a completed entry was accepted.
  static bool IsAccepted(const llm::StepResult& result, int32_t sequence, int32_t draft);

 private:
  struct Entry {
    int32_t first = 0, count = 0;  // of drafts_
    int32_t first_parent = 0;      // of parents_, with a tree
    int32_t first_slot = -1;       // of slots_: that of the newest token; -1: a chain
    bool returns_row_tokens = false;
  };

  void AddMoves(const Entry& entry, std::span<const int32_t> accepted);

  std::vector<Entry> entries_;    // parallel to StepBatch::entries; empty: no drafts
  std::vector<int32_t> drafts_;   // of all entries
  std::vector<int32_t> parents_;  // of trees
  std::vector<int32_t> slots_;    // of the rows of trees
  std::vector<TokenMove> moves_;
  std::vector<MoveRange> ranges_;
};

// Whether the entries' trees have at most kMaxTreeTokens tokens, and parents before their children.
Status CheckDraftTrees(const llm::StepBatch& batch);

// Appends to `tokens` the drafts of an entry that precede its sampled position `index`: those on
// the way from the newest token to draft index - 1.
void AppendDraftsBefore(std::span<const int32_t> drafts, std::span<const int32_t> parents,
                        int32_t index, std::vector<int32_t>& tokens);

}  // namespace nereid::gpu
