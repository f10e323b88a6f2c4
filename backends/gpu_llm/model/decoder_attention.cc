// Decoder: rope and cache, attention of decoding sequences, and of prompts. With a quantized cache
// and many tokens, the contexts are unpacked to bf16 once for each layer, because each KV block is
// read by many tiles. Of long contexts some heads are unpacked at a time. [engine thread]
#include <algorithm>
#include <numeric>

#include "backends/gpu_llm/cuda/runtime.h"
#include "backends/gpu_llm/kernel_registry.h"
#include "backends/gpu_llm/kernels/attention/attention.h"
#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/attention/rope.h"
#include "backends/gpu_llm/model/decoder.h"

namespace nereid::gpu {
namespace {

constexpr int64_t kUnpackedBytes = int64_t{64} << 20;

}  // namespace

Status Decoder::AllocateUnpacked() {
  if (cache_format_ == CacheFormat::kBf16) return {};
  max_unpacked_ = static_cast<int32_t>(kUnpackedBytes / HeadBytes(spec_->head_dim));
  NEREID_ASSIGN_OR_RETURN(unpacked_, DeviceMemory::Allocate(kUnpackedBytes, "unpacked contexts"));
  std::vector<int32_t> indices(max_unpacked_);
  std::iota(indices.begin(), indices.end(), 0);
  NEREID_ASSIGN_OR_RETURN(unpacked_indices_,
                          DeviceMemory::Allocate(indices.size() * 4, "unpacked contexts' blocks"));
  return CudaStatus(cudaMemcpy(unpacked_indices_.data(), indices.data(), indices.size() * 4,
                               cudaMemcpyHostToDevice),
                    "unpacked contexts");
}

// What the parameters of all attention kernels have in common.
template <typename Params>
Params Decoder::AttentionOf(int32_t layer, const int32_t* words) const {
  const llm::LayerSpec& spec = spec_->layers[layer];
  const int32_t num_sinks = spec.sliding_window > 0 ? spec_->num_sink_tokens : 0;
  Params params = {};
  params.qkv = qkv_.as<__nv_bfloat16>();
  params.out = attention_.as<__nv_bfloat16>();
  params.cache = cache_.as<char>() + layer * cache_layer_bytes_;
  params.words = words;
  params.num_heads = spec_->num_heads;
  params.num_kv_heads = spec_->num_kv_heads;
  params.head_dim = spec_->head_dim;
  params.qkv_stride = static_cast<int>(qkv_size());
  params.window = spec.sliding_window - num_sinks;
  params.num_sinks = num_sinks;
  params.scale = spec_->attention_scale * spec.score_scale;
  params.soft_cap = spec_->attention_soft_cap;
  params.format = cache_format_;
  return params;
}

void Decoder::MarkAttention(const char* name, bool of_decoding, int32_t window, cudaStream_t stream,
                            double part) {
  if (timer_ == nullptr) return;
  const OperatorTimer::AttentionWork seen = timer_->Attention(of_decoding, window);
  const double token_bytes = static_cast<double>(spec_->num_kv_heads) *
                             HeadBytes(spec_->head_dim, cache_format_) / kBlockTokens;
  timer_->Mark(name,
               {seen.tokens_read * token_bytes * part,
                4.0 * seen.pairs * spec_->num_heads * spec_->head_dim * part},
               stream);
}

void Decoder::RunAttention(int32_t layer, const StepShape& shape, const int32_t* words,
                           cudaStream_t stream) {
  const StepLayout layout(shape);
  const GpuLayer& weights = weights_->layers[layer];
  const llm::LayerSpec& spec = spec_->layers[layer];
  RopeWriteParams rope = {};
  rope.qkv = qkv_.as<__nv_bfloat16>();
  rope.positions = words + layout.positions;
  rope.cache_slots = words + layout.cache_slots;
  if (spec_->position == llm::PositionKind::kRope) {
    rope.cos_sin = rope_tables_.table(spec.rope);
    rope.rope_dim = spec_->ropes[spec.rope].dim;
  }
  rope.bias = weights.qkv_bias;
  rope.q_norm = weights.q_norm;
  rope.k_norm = weights.k_norm;
  rope.cache = cache_.as<char>() + layer * cache_layer_bytes_;
  rope.num_rows = shape.num_tokens;
  rope.num_heads = spec_->num_heads;
  rope.num_kv_heads = spec_->num_kv_heads;
  rope.head_dim = spec_->head_dim;
  rope.epsilon = spec_->norm.epsilon;
  rope.format = cache_format_;
  rope.rows_are_independent = shape.num_prefill == 0 && !shape.has_chains;
  Mark("rope and cache",
       {shape.num_tokens * (2.0 * (qkv_size() + spec_->q_size()) +
                            static_cast<double>(spec_->num_kv_heads) *
                                HeadBytes(spec_->head_dim, cache_format_) / kBlockTokens)},
       stream);
  RopeWrite(rope, stream);
  if (shape.num_decode > 0) {
    auto params = AttentionOf<DecodeAttentionParams>(layer, words);
    params.items = reinterpret_cast<const DecodeItem*>(words + layout.decode_items);
    params.partials = partials_.as<float>();
    params.item_tokens = item_tokens_;
    params.tickets = tickets_.as<int32_t>();
    params.num_items = shape.num_decode;
    params.has_chains = shape.has_chains;
    params.stages_values =
        StagesValues(mode_, shape.num_decode * spec_->num_kv_heads, num_processors_);
    if (shape.has_trees) {
      params.tree_roots = words + layout.tree_roots;
      params.tree_masks = words + layout.tree_masks;
      params.gathers_trees = shape.gathers_trees;
    }
    MarkAttention("attention, decoding", true, spec.sliding_window, stream);
    DecodeAttention(params, stream);
  }
  if (shape.num_prefill > 0) RunPrefillAttention(layer, shape, words, stream);
}

void Decoder::RunPrefillAttention(int32_t layer, const StepShape& shape, const int32_t* words,
                                  cudaStream_t stream) {
  const StepLayout layout(shape);
  auto params = AttentionOf<PrefillAttentionParams>(layer, words);
  params.tiles = reinterpret_cast<const PrefillTile*>(words + layout.prefill_tiles);
  params.num_tiles = shape.num_prefill;
  params.out_stride = static_cast<int>(spec_->q_size());
  const int32_t window = spec_->layers[layer].sliding_window;
  const PromptAttention attention = {
      cache_format_,       shape.num_tokens, shape.num_prefill, shape.num_prompt_blocks,
      spec_->num_kv_heads, max_unpacked_,    num_processors_};
  params.head_by_head = TakesHeadsInTurn(attention);
  params.num_processors = params.head_by_head ? 0 : num_processors_;
  const int32_t heads_at_once = UnpackedHeads(attention);
  if (heads_at_once == 0) {
    MarkAttention("attention, prompts", false, window, stream);
    PrefillAttention(params, stream);
    return;
  }
  const int32_t group = spec_->num_heads / spec_->num_kv_heads;
  const int32_t first_block = layout.block_tables + shape.first_prompt_block;
  for (int32_t head = 0; head < spec_->num_kv_heads; head += heads_at_once) {
    const int32_t num_heads = std::min(heads_at_once, spec_->num_kv_heads - head);
    Mark("unpack contexts",
         {static_cast<double>(shape.num_prompt_blocks) * num_heads *
          static_cast<double>(HeadBytes(spec_->head_dim, cache_format_) +
                              HeadBytes(spec_->head_dim))},
         stream);
    UnpackCache({params.cache, words + first_block, unpacked_.data(), shape.num_prompt_blocks,
                 spec_->num_kv_heads, spec_->head_dim, cache_format_, head, num_heads},
                stream);
    PrefillAttentionParams part = params;
    part.qkv += int64_t{head} * group * spec_->head_dim;
    part.out += int64_t{head} * group * spec_->head_dim;
    part.num_heads = num_heads * group;
    part.num_kv_heads = num_heads;
    part.cache = unpacked_.data();
    part.format = CacheFormat::kBf16;
    part.words = unpacked_indices_.as<int32_t>() - first_block;  // tiles have offsets from `words`
    MarkAttention("attention, prompts", false, window, stream,
                  static_cast<double>(num_heads) / spec_->num_kv_heads);
    PrefillAttention(part, stream);
  }
}

}  // namespace nereid::gpu
