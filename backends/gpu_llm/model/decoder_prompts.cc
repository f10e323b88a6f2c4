// Decoder: attention of prompts. With a quantized cache and many tokens, the contexts are unpacked
// to bf16 once for each layer, because each KV block is read by many tiles. [engine thread]
#include <numeric>

#include "backends/gpu_llm/cuda/runtime.h"
#include "backends/gpu_llm/kernel_registry.h"
#include "backends/gpu_llm/kernels/attention/attention.h"
#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/model/decoder.h"

namespace nereid::gpu {
namespace {

constexpr int64_t kUnpackedBytes = int64_t{64} << 20;

}  // namespace

Status Decoder::AllocateUnpacked() {
  if (cache_format_ == CacheFormat::kBf16) return {};
  const int64_t block_bytes = spec_->num_kv_heads * HeadBytes(spec_->head_dim);
  max_unpacked_ = static_cast<int32_t>(kUnpackedBytes / block_bytes);
  NEREID_ASSIGN_OR_RETURN(unpacked_,
                          DeviceMemory::Allocate(max_unpacked_ * block_bytes, "unpacked contexts"));
  std::vector<int32_t> indices(max_unpacked_);
  std::iota(indices.begin(), indices.end(), 0);
  NEREID_ASSIGN_OR_RETURN(unpacked_indices_,
                          DeviceMemory::Allocate(indices.size() * 4, "unpacked contexts' blocks"));
  return CudaStatus(cudaMemcpy(unpacked_indices_.data(), indices.data(), indices.size() * 4,
                               cudaMemcpyHostToDevice),
                    "unpacked contexts");
}

void Decoder::RunPrefillAttention(int32_t layer, const StepShape& shape, const int32_t* words,
                                  cudaStream_t stream) {
  const StepLayout layout(shape);
  const llm::LayerSpec& spec = spec_->layers[layer];
  const int32_t num_sinks = spec.sliding_window > 0 ? spec_->num_sink_tokens : 0;
  PrefillAttentionParams params = {};
  params.qkv = qkv_.as<__nv_bfloat16>();
  params.out = attention_.as<__nv_bfloat16>();
  params.cache = cache_.as<char>() + layer * cache_layer_bytes_;
  params.tiles = reinterpret_cast<const PrefillTile*>(words + layout.prefill_tiles);
  params.words = words;
  params.num_tiles = shape.num_prefill;
  params.num_heads = spec_->num_heads;
  params.num_kv_heads = spec_->num_kv_heads;
  params.head_dim = spec_->head_dim;
  params.qkv_stride = static_cast<int>(qkv_size());
  params.window = spec.sliding_window - num_sinks;
  params.num_sinks = num_sinks;
  params.scale = spec_->attention_scale * spec.score_scale;
  params.soft_cap = spec_->attention_soft_cap;
  params.format = cache_format_;
  params.num_processors = num_processors_;
  if (UnpacksCache({cache_format_, shape.num_tokens, shape.num_prompt_blocks, max_unpacked_})) {
    const int32_t first = layout.block_tables + shape.first_prompt_block;
    Mark("unpack contexts",
         {static_cast<double>(shape.num_prompt_blocks) * spec_->num_kv_heads *
          static_cast<double>(HeadBytes(spec_->head_dim, cache_format_) +
                              HeadBytes(spec_->head_dim))},
         stream);
    UnpackCache({params.cache, words + first, unpacked_.data(), shape.num_prompt_blocks,
                 spec_->num_kv_heads, spec_->head_dim, cache_format_},
                stream);
    params.cache = unpacked_.data();
    params.format = CacheFormat::kBf16;
    params.words = unpacked_indices_.as<int32_t>() - first;  // tiles have offsets from `words`
  }
  MarkAttention("attention, prompts", false, spec.sliding_window, stream);
  PrefillAttention(params, stream);
}

}  // namespace nereid::gpu
