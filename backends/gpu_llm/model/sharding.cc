// Sharding: sizes and offsets of the shards. [any thread]
#include "backends/gpu_llm/model/sharding.h"

#include <algorithm>
#include <charconv>

namespace nereid::gpu {

using llm::WeightKind;

Result<std::vector<int32_t>> ParseDeviceIds(const std::string& text) {
  std::vector<int32_t> ids;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    while (at != end && *at == ' ') ++at;
    int32_t id = 0;
    const auto [after, error] = std::from_chars(at, end, id);
    if (error != std::errc() || id < 0) break;
    if (std::find(ids.begin(), ids.end(), id) != ids.end()) {
      return InvalidArgError("parameter 'gpu_device_ids' is '", text, "': GPU ", id,
                             " comes twice");
    }
    ids.push_back(id);
    at = after;
    while (at != end && *at == ' ') ++at;
    if (at == end) {
      if (ids.size() <= static_cast<size_t>(kMaxGpus)) return ids;
      return UnsupportedError("parameter 'gpu_device_ids' names ", ids.size(),
                              " GPUs, gpu_llm runs a model on at most ", kMaxGpus);
    }
    if (*at++ != ',') break;
  }
  return InvalidArgError("parameter 'gpu_device_ids' is '", text,
                         "', expected numbers of GPUs with commas between them");
}

Result<Sharding> Sharding::Of(const llm::DecoderSpec& spec, int32_t rank, int32_t count) {
  Sharding sharding;
  if (count == 1) return sharding;
  const auto refuse = [&](const char* what, int64_t value) -> Status {
    return UnsupportedError(what, " is ", value, ", which ", count,
                            " GPUs (gpu_device_ids) can not divide ('", spec.architecture, "')");
  };
  if (spec.num_heads % count != 0) return refuse("num_attention_heads", spec.num_heads);
  if (spec.num_kv_heads % count != 0 && count % spec.num_kv_heads != 0)
    return refuse("num_key_value_heads", spec.num_kv_heads);
  // Kernels read at least eight columns at a time.
  if (spec.intermediate_size % (8 * count) != 0)
    return refuse("intermediate_size", spec.intermediate_size);
  if (spec.moe.intermediate_size % (8 * count) != 0)
    return refuse("moe_intermediate_size", spec.moe.intermediate_size);
  sharding.rank_ = rank;
  sharding.count_ = count;
  sharding.num_kv_heads_ = spec.num_kv_heads;
  sharding.vocab_size_ = spec.vocab_size;
  sharding.head_dim_ = spec.head_dim;
  sharding.q_size_ = spec.q_size() / count;
  sharding.inner_ = spec.intermediate_size / count;
  sharding.expert_inner_ = spec.moe.intermediate_size / count;
  if (sharding.HeadRows(count - 1, PaddedVocabulary(spec.vocab_size)).first >= spec.vocab_size)
    return refuse("vocab_size", spec.vocab_size);
  return sharding;
}

llm::DecoderSpec Sharding::Local(const llm::DecoderSpec& spec) const {
  llm::DecoderSpec local = spec;
  local.num_heads = spec.num_heads / count_;
  local.num_kv_heads = std::max(1, spec.num_kv_heads / count_);
  local.intermediate_size = spec.intermediate_size / count_;
  local.moe.intermediate_size = spec.moe.intermediate_size / count_;
  return local;
}

int64_t Sharding::FirstRow(WeightKind kind, bool is_experts) const {
  if (count_ == 1) return 0;
  switch (kind) {
    case WeightKind::kQ:
    case WeightKind::kQBias:
      return rank_ * q_size_;
    case WeightKind::kK:
    case WeightKind::kKBias:
    case WeightKind::kV:
    case WeightKind::kVBias:
      return int64_t{rank_} * num_kv_heads_ / count_ * head_dim_;
    case WeightKind::kGate:
    case WeightKind::kGateBias:
    case WeightKind::kUp:
    case WeightKind::kUpBias:
      return rank_ * (is_experts ? expert_inner_ : inner_);
    case WeightKind::kLmHead:
      return HeadRows(rank_, PaddedVocabulary(vocab_size_)).first;
    default:
      return 0;
  }
}

int64_t Sharding::FirstColumn(WeightKind kind, bool is_experts) const {
  if (kind == WeightKind::kAttentionOut) return rank_ * q_size_;
  if (kind == WeightKind::kDown) return rank_ * (is_experts ? expert_inner_ : inner_);
  return 0;
}

IndexRange Sharding::HeadRows(int32_t rank, int32_t num_rows) const {
  const int64_t step = count_ == 1 ? num_rows : (num_rows / count_ + 7) / 8 * 8;
  const int64_t first = std::min<int64_t>(num_rows, rank * step);
  // The last rank has the rows that rounding leaves.
  return {first, rank == count_ - 1 ? num_rows - first : std::min<int64_t>(step, num_rows - first)};
}

}  // namespace nereid::gpu
