/// \file
/// Numbers the embeddings that clients send: the same number for the same content, as long as it is
/// remembered, and never the same number for another content. [any thread]
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>

#include "backends/llm_core/prompt/prompt_embeddings.h"

namespace nereid::llm {

class VirtualTokens {
 public:
  /// About so many rows are remembered, the recently used ones. A row that was forgotten gets a new
  /// number, so that its cached prefixes are not found again.
  static constexpr size_t kMaxRemembered = size_t{1} << 17;

  /// Numbers are at least `vocab_size`. `end`: the number after the greatest one.
  explicit VirtualTokens(int32_t vocab_size, int64_t end = int64_t{INT32_MAX} + 1);

  /// Sets `ids` and `cache_key`. Rows are equal if their numbers, extra id and is_table are.
  void Assign(PromptEmbeddings& embeddings);

 private:
  using Numbers = std::unordered_map<std::string, int32_t>;

  int32_t NumberOf(const std::string& digest);

  const int32_t vocab_size_;
  const int64_t end_;
  std::mutex mutex_;  // guards the members below
  // Numbers start again after the last one, under a new key. The key is random, so that prefixes
  // which outlive the process are not taken for others.
  uint64_t cache_key_;
  int64_t next_;
  Numbers recent_, older_;  // older_ holds what was not used since recent_ was last full
};

}  // namespace nereid::llm
