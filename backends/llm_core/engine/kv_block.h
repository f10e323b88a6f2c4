// All that is known about a KV block, in one cache line: blocks are many, and each step touches a
// few that no cache holds any more. [engine thread]
#pragma once

#include <cstdint>

namespace nereid::llm {

struct alignas(64) KvBlock {
  // BlockManager's.
  int32_t references = 0;  // 0: free or kept
  // Blocks that are kept and not referred to are a list: the oldest first.
  int32_t before = -1;
  int32_t after = -1;
  // PrefixCache's: what it holds.
  uint64_t hash = 0;
  uint64_t salt = 0;
  uint64_t parent = 0;  // serial of the content before it
  uint64_t serial = 0;  // 0: nothing that is known
};

}  // namespace nereid::llm
