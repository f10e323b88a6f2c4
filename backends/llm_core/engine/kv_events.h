// What becomes of the content of the prefix cache, for readers that send prompts to the server that
// has their beginning. [engine thread]
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace nereid::llm {

enum class KvMedium : uint8_t { kCache, kHostMemory, kFile };

struct KvEvent {
  enum class Kind : uint8_t { kStored, kRemoved, kCleared };
  Kind kind = Kind::kCleared;
  KvMedium medium = KvMedium::kCache;
  uint64_t hash = 0;               // of all tokens up to the block's end
  std::optional<uint64_t> parent;  // kStored: the hash before the block, if it is not the first
  std::vector<int32_t> token_ids;  // kStored: of the block
};

class KvEventSink {
 public:
  virtual ~KvEventSink() = default;
  // Events in their order: what an engine step changed. Must not block for long.
  virtual void Publish(std::vector<KvEvent> events) = 0;
};

}  // namespace nereid::llm
