// Tensor parallelism: the shard of a decoder's weights on one of several GPUs. Heads and the MLP's
// inner columns (of each expert) are divided. So q, k, v, gate and up are split by rows; the
// attention output and down are split by columns, and their products are summed over the GPUs. The
// LM head is split by rows of the vocabulary. All other weights are on every GPU. Value type, no
// CUDA here. [any thread]
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/llm_core/model/decoder_spec.h"
#include "backends/llm_core/model/weight_map.h"
#include "nereid/status.h"

namespace nereid::gpu {

inline constexpr int32_t kMaxGpus = 8;

// Row length of logits that the kernels require.
constexpr int32_t PaddedVocabulary(int32_t vocab_size) {
  return vocab_size % 4 == 0 ? vocab_size : (vocab_size + 15) / 16 * 16;
}

// Parses Triton's parameter gpu_device_ids: distinct numbers separated by commas.
Result<std::vector<int32_t>> ParseDeviceIds(const std::string& text);

// Rows or columns [first, first + count).
struct IndexRange {
  int64_t first = 0, count = 0;
  bool operator==(const IndexRange&) const = default;
};

class Sharding {
 public:
  Sharding() = default;  // a single GPU has everything
  // The shard of GPU `rank` of `count`. UNSUPPORTED names the size that cannot be divided, and the
  // count.
  static Result<Sharding> Of(const llm::DecoderSpec& spec, int32_t rank, int32_t count);

  int32_t rank() const { return rank_; }
  int32_t count() const { return count_; }
  // The decoder's spec on this GPU: fewer heads, a narrower MLP. If there are fewer key/value heads
  // than GPUs, several GPUs have the same head.
  llm::DecoderSpec Local(const llm::DecoderSpec& spec) const;

  // First row or column of this GPU's shard in the whole weight.
  int64_t FirstRow(llm::WeightKind kind, bool is_experts = false) const;
  int64_t FirstColumn(llm::WeightKind kind, bool is_experts = false) const;
  // Rows of the LM head on `rank`, of `num_rows` (PaddedVocabulary) in all.
  IndexRange HeadRows(int32_t rank, int32_t num_rows) const;

 private:
  int32_t rank_ = 0, count_ = 1;
  int32_t num_kv_heads_ = 0;  // of the whole decoder
  int32_t vocab_size_ = 0;
  int64_t head_dim_ = 0;
  int64_t q_size_ = 0, inner_ = 0, expert_inner_ = 0;  // of this GPU
};

}  // namespace nereid::gpu
