// How long the KV blocks of a request stay in the prefix cache once no sequence uses them: the
// retention priorities of TensorRT-LLM. [any thread]
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "nereid/status.h"

namespace nereid::llm {

inline constexpr int32_t kMaxRetentionPriority = 100;
// The priority of blocks for which no request has chosen one, and of those whose duration has
// ended.
inline constexpr uint8_t kDefaultRetentionPriority = 35;
inline constexpr int32_t kMaxRetentionRanges = 1024;  // of one request

// Blocks with a lower priority are evicted first.
struct BlockRetention {
  uint8_t priority = kDefaultRetentionPriority;
  // After so long without a user, the block has the default priority. 0: never.
  int32_t duration_ms = 0;
};

// The prompt tokens [begin, end).
struct TokenRangeRetention {
  int32_t begin = 0;
  int32_t end = -1;  // -1: to the end of the prompt
  int32_t priority = kDefaultRetentionPriority;
  int32_t duration_ms = -1;  // -1: without end
};

struct KvRetention {
  std::vector<TokenRangeRetention> ranges;  // in any order, without overlaps
  // The priority of blocks that begin with an output token. Absent: they keep what they have.
  std::optional<int32_t> decode_priority;
  int32_t decode_duration_ms = -1;

  // The retention of the block whose first token is at `position`. Absent: the block keeps what it
  // has.
  std::optional<BlockRetention> Of(int32_t position, int32_t num_prompt) const;
};

// INVALID_ARG names the tensor, its value and the expected one.
Status CheckRetention(const KvRetention& retention, int32_t num_prompt);

}  // namespace nereid::llm
