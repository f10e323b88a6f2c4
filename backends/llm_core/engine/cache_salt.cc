// What keys and values depend on beside the tokens.
#include "backends/llm_core/engine/cache_salt.h"

#include "backends/llm_core/lora/lora_adapter.h"
#include "backends/llm_core/prompt/prompt_embeddings.h"

namespace nereid::llm {

uint64_t CacheSaltOf(const Sequence& sequence, int32_t dynamic_rope_positions) {
  constexpr uint64_t kLong = 0xd6e8feb86659fd93u;
  constexpr uint64_t kDynamic = 0xa0761d6478bd642fu;
  constexpr uint64_t kAdapter = 0xe7037ed1a0b428dbu;
  constexpr uint64_t kEmbeddings = 0x8ebc6af09c88c6e3u;
  const GenerationRequest& request = *sequence.request;
  uint64_t salt = request.cache_salt;
  if (sequence.uses_long_rope) salt ^= kLong;
  if (dynamic_rope_positions > 0 && sequence.num_prompt > dynamic_rope_positions) {
    salt ^= kDynamic * static_cast<uint64_t>(sequence.num_prompt);
  }
  if (request.adapter != nullptr) salt ^= kAdapter * request.adapter->serial();
  if (request.embeddings != nullptr) salt ^= kEmbeddings * request.embeddings->cache_key;
  // Another process numbers its adapters and names its embeddings anew.
  const bool is_of_this_process = request.adapter != nullptr || request.embeddings != nullptr;
  return (salt << 1) | (is_of_this_process ? kSaltOfThisProcess : 0);
}

}  // namespace nereid::llm
