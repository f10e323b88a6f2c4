// Adds up weights and buffers. The sums are estimates: what they miss comes out of the memory that
// the KV cache leaves.
#include "backends/gpu_llm/companion_memory.h"

#include <algorithm>
#include <set>

namespace nereid::gpu {
namespace {

int64_t WeightBytes(const llm::ResolvedWeights& weights) {
  int64_t sum = 0;
  for (const auto& [key, weight] : weights) sum += static_cast<int64_t>(weight.tensor.bytes.size());
  return sum;
}

// The buffers of a decoder that grow with the rows of a step (Decoder::Create).
int64_t BufferBytes(const llm::DecoderSpec& spec, int64_t num_rows, int64_t num_logits) {
  const int64_t inner =
      std::max<int64_t>(spec.intermediate_size, int64_t{spec.moe.intermediate_size} *
                                                    std::max(1, spec.moe.experts_per_token));
  const int64_t row =
      int64_t{2} * (2 * spec.hidden_size + 2 * spec.q_size() + 2 * spec.kv_size() + 3 * inner);
  return num_rows * row + num_logits * spec.vocab_size * int64_t{4};
}

constexpr int64_t kContextBytes = int64_t{256} << 20;  // workspaces of products, recorded steps

}  // namespace

CompanionMemory MemoryOfDraftModel(const llm::DecoderModel& draft, int64_t block_bytes,
                                   int32_t max_num_tokens, int32_t max_num_sequences) {
  CompanionMemory memory;
  memory.fixed_bytes = WeightBytes(draft.weights) +
                       BufferBytes(draft.spec, max_num_tokens, std::max(max_num_sequences, 128)) +
                       kContextBytes;
  memory.block_bytes = block_bytes;
  return memory;
}

CompanionMemory MemoryOfHead(const llm::Eagle3Head& head, const llm::DecoderSpec& target,
                             int64_t block_bytes, int32_t max_num_tokens,
                             int32_t max_num_sequences) {
  CompanionMemory memory =
      MemoryOfDraftModel(head.model, block_bytes, max_num_tokens, max_num_sequences);
  const int64_t num_rows = max_num_tokens + NumKeptRows(max_num_tokens);
  memory.fixed_bytes +=
      2 * num_rows * target.hidden_size * static_cast<int64_t>(head.aux_layers.size());
  return memory;
}

CompanionMemory MemoryOfMedusaHeads(const llm::MedusaWeights& heads, int32_t max_num_tokens,
                                    int32_t max_num_sequences) {
  const int64_t size = heads.model.spec.hidden_size, vocab_size = heads.draft_vocab_size;
  std::set<const uint8_t*> lm_heads;  // of which heads may have the same
  for (const auto& [key, weight] : heads.model.weights) {
    if (key.kind == llm::WeightKind::kLmHead) lm_heads.insert(weight.tensor.bytes.data());
  }
  const int64_t weights = (int64_t{heads.num_heads} * heads.num_blocks * (size + 1) +
                           static_cast<int64_t>(lm_heads.size()) * vocab_size) *
                          size;
  const int64_t rows = int64_t{max_num_tokens} + max_num_sequences +
                       int64_t{kMedusaRows} * (1 + 2 * heads.num_heads);
  CompanionMemory memory;
  memory.fixed_bytes =
      2 * (weights + rows * size) + int64_t{4} * kMedusaRows * vocab_size + kContextBytes;
  return memory;
}

}  // namespace nereid::gpu
