/// \file
/// The interface between the EAGLE-3 drafter, which handles sequences, and a device that runs the
/// head: one decoder layer whose input is a token and a hidden state. [engine thread]
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "nereid/status.h"

namespace nereid::llm {

/// The keys and values of one sequence in the head. Row i belongs to position first + i.
class HeadCache {
 public:
  virtual ~HeadCache() = default;
  virtual int32_t num_rows() const = 0;
  /// Forgets all rows but the first ones.
  virtual void Truncate(int32_t num_rows) = 0;
  /// Makes room for so many rows. False: there is no memory now, and the sequence gets no drafts.
  virtual bool Reserve(int32_t /*num_rows*/) { return true; }
};

/// Consecutive rows of one sequence.
struct HeadEntry {
  std::span<const int32_t> tokens;  ///< of each row: the token behind that of the hidden state
  /// [rows, feature_size] of the target, or with `is_own` [rows, hidden_size] of the head.
  std::span<const float> hidden;
  bool is_own = false;
  int32_t first_position = 0;  ///< of the first row
  HeadCache* cache = nullptr;  ///< has the rows before; gets those of the entry
  /// --- written by the head, for the last row ---
  std::vector<float> logits;       ///< [draft_vocab_size]
  std::vector<float> next_hidden;  ///< [hidden_size]
};

class DraftHead {
 public:
  virtual ~DraftHead() = default;
  /// The target's captured hidden states of one token.
  virtual int32_t feature_size() const = 0;
  virtual int32_t hidden_size() const = 0;
  virtual int32_t vocab_size() const = 0;  ///< of the target
  virtual int32_t max_positions() const = 0;
  /// [draft_vocab_size]: the target's id of each draft id.
  virtual std::span<const int32_t> target_ids() const = 0;
  virtual std::unique_ptr<HeadCache> MakeCache() const = 0;
  /// Requires that the entries' caches have reserved their rows. After an error, the head is not
  /// called again.
  virtual Status Run(std::span<HeadEntry> entries) = 0;
};

}  // namespace nereid::llm
