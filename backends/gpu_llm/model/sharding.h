// Which part of a decoder's weights one of several GPUs holds (tensor parallelism): heads and the
// MLP's inner columns (of each expert, where there are some) are shared out, so that q, k, v, gate
// and up are cut by rows, the attention's output and down by columns, whose products are then
// summed over the GPUs; the LM head is cut by rows of the vocabulary; all else is everywhere. Value
// type, no CUDA here. [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/llm_core/model/decoder_spec.h"
#include "backends/llm_core/model/weight_map.h"
#include "nereid/status.h"

namespace nereid::gpu {

inline constexpr int32_t kMaxGpus = 8;

// Rows of logits are as long as kernels want them.
constexpr int32_t PaddedVocabulary(int32_t vocab_size) {
  return vocab_size % 4 == 0 ? vocab_size : (vocab_size + 15) / 16 * 16;
}

// Triton's parameter gpu_device_ids: numbers between commas, each once.
Result<std::vector<int32_t>> ParseDeviceIds(const std::string& text);

// Rows or columns [first, first + count).
struct Range {
  int64_t first = 0, count = 0;
  bool operator==(const Range&) const = default;
};

class Sharding {
 public:
  Sharding() = default;  // one GPU has all
  // Of GPU `rank` of `count`. UNSUPPORTED names what can not be shared out, with both numbers.
  static Result<Sharding> Of(const llm::DecoderSpec& spec, int32_t rank, int32_t count);

  int32_t rank() const { return rank_; }
  int32_t count() const { return count_; }
  // The decoder as this GPU sees it: fewer heads, a narrower MLP. Fewer key/value heads than GPUs
  // are held by several of them.
  llm::DecoderSpec Local(const llm::DecoderSpec& spec) const;

  // Where this GPU's rows, or columns, of a weight begin in the whole one.
  int64_t FirstRow(llm::WeightKind kind, bool is_experts = false) const;
  int64_t FirstColumn(llm::WeightKind kind, bool is_experts = false) const;
  // The rows of the LM head of `rank`, of so many (PaddedVocabulary) in all.
  Range HeadRows(int32_t rank, int32_t num_rows) const;

 private:
  int32_t rank_ = 0, count_ = 1;
  int32_t num_kv_heads_ = 0;  // of the whole decoder
  int32_t vocab_size_ = 0;
  int64_t head_dim_ = 0;
  int64_t q_size_ = 0, inner_ = 0, expert_inner_ = 0;  // of this GPU
};

}  // namespace nereid::gpu
