// The forward pass.
#include "gpu_llm/model/decoder.h"

#include <algorithm>

#include "gpu_llm/kernels/cache_layout.h"
#include "gpu_llm/kernels/decode_attention.h"
#include "gpu_llm/kernels/embedding.h"
#include "gpu_llm/kernels/prefill_attention.h"
#include "gpu_llm/kernels/rope.h"

namespace nereid::gpu {

Result<Decoder> Decoder::Create(const llm::DecoderSpec& spec, const GpuWeights& weights,
                                const DecoderLimits& limits) {
  Decoder decoder(spec, weights);
  const int64_t tokens = limits.max_num_tokens;
  const auto allocate = [](DeviceMemory& memory, int64_t size_bytes, const char* what) -> Status {
    NEREID_ASSIGN_OR_RETURN(memory, DeviceMemory::Allocate(static_cast<size_t>(size_bytes), what));
    return {};
  };
  NEREID_RETURN_IF_ERROR(
      allocate(decoder.residual_, tokens * spec.hidden_size * 2, "the residual"));
  NEREID_RETURN_IF_ERROR(allocate(decoder.normed_, tokens * spec.hidden_size * 2, "normed rows"));
  NEREID_RETURN_IF_ERROR(
      allocate(decoder.qkv_, tokens * decoder.qkv_size() * 2, "queries, keys and values"));
  NEREID_RETURN_IF_ERROR(
      allocate(decoder.attention_, tokens * spec.q_size() * 2, "attention's output"));
  // Also what products that add to the residual write while they are timed.
  NEREID_RETURN_IF_ERROR(allocate(
      decoder.gate_up_, tokens * std::max(2 * spec.intermediate_size, spec.hidden_size) * 2,
      "the MLP's gate and up"));
  NEREID_RETURN_IF_ERROR(
      allocate(decoder.gated_, tokens * spec.intermediate_size * 2, "the MLP's inner rows"));
  NEREID_RETURN_IF_ERROR(
      allocate(decoder.logits_, int64_t{limits.max_num_logits} * spec.vocab_size * 4, "logits"));
  NEREID_RETURN_IF_ERROR(
      allocate(decoder.partials_,
               int64_t{limits.max_decode_items} * spec.num_heads * (spec.head_dim + 2) * 4,
               "parts of attention"));
  const int64_t ticket_bytes =
      int64_t{std::max(limits.max_num_sequences, limits.max_decode_items)} * spec.num_heads * 4;
  NEREID_RETURN_IF_ERROR(allocate(decoder.tickets_, ticket_bytes, "attention's tickets"));
  NEREID_RETURN_IF_CUDA_ERROR(cudaMemset(decoder.tickets_.data(), 0, ticket_bytes));
  NEREID_RETURN_IF_ERROR(
      allocate(decoder.last_tokens_, int64_t{limits.max_num_sequences} * 4, "last tokens"));
  NEREID_RETURN_IF_CUDA_ERROR(
      cudaMemset(decoder.last_tokens_.data(), 0, decoder.last_tokens_.size_bytes()));
  NEREID_RETURN_IF_ERROR(decoder.FillRopeTables(limits.max_positions));
  NEREID_ASSIGN_OR_RETURN(LinearRunner linear, LinearRunner::Create(weights, limits.max_num_tokens,
                                                                    limits.num_processors));
  decoder.linear_.emplace(std::move(linear));
  return decoder;
}

Status Decoder::FillRopeTables(int32_t max_positions) {
  for (const llm::RopeSpec& rope : spec_->ropes) {
    const auto half = static_cast<int64_t>(rope.inv_freq.size());
    NEREID_ASSIGN_OR_RETURN(const DeviceMemory inv_freq,
                            DeviceMemory::Allocate(half * 4, "rope frequencies"));
    NEREID_ASSIGN_OR_RETURN(DeviceMemory table,
                            DeviceMemory::Allocate(half * max_positions * 8, "the rope table"));
    NEREID_RETURN_IF_CUDA_ERROR(
        cudaMemcpy(inv_freq.data(), rope.inv_freq.data(), half * 4, cudaMemcpyHostToDevice));
    FillRopeTable(inv_freq.as<float>(), static_cast<int>(half), max_positions, rope.magnitude,
                  table.as<float2>(), nullptr);
    NEREID_RETURN_IF_CUDA_ERROR(cudaGetLastError());
    NEREID_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(nullptr));
    rope_tables_.push_back(std::move(table));
  }
  return {};
}

int64_t Decoder::CacheBlockBytes(const llm::DecoderSpec& spec) {
  return int64_t{spec.num_layers()} * spec.num_kv_heads * HeadBytes(spec.head_dim);
}

Status Decoder::AllocateCache(int32_t num_blocks) {
  NEREID_ASSIGN_OR_RETURN(
      cache_, DeviceMemory::Allocate(num_blocks * CacheBlockBytes(*spec_), "the KV cache"));
  NEREID_RETURN_IF_CUDA_ERROR(cudaMemset(cache_.data(), 0, cache_.size_bytes()));
  NEREID_RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
  cache_layer_bytes_ = static_cast<int64_t>(cache_.size_bytes()) / spec_->num_layers();
  return {};
}

int64_t Decoder::memory_bytes() const {
  size_t sum = 0;
  for (const DeviceMemory* memory : {&cache_, &residual_, &normed_, &qkv_, &attention_, &gate_up_,
                                     &gated_, &logits_, &partials_, &tickets_, &last_tokens_}) {
    sum += memory->size_bytes();
  }
  for (const DeviceMemory& table : rope_tables_) sum += table.size_bytes();
  return static_cast<int64_t>(sum);
}

Status Decoder::Forward(const StepShape& shape, const int32_t* words, bool may_time,
                        cudaStream_t stream) {
  const StepLayout layout(shape);
  EmbeddingParams embedding = {};
  embedding.ids = words + layout.token_ids;
  embedding.last_tokens = last_tokens_.as<int32_t>();
  embedding.table = weights_->token_embedding;
  embedding.out = residual_.as<__nv_bfloat16>();
  embedding.num_rows = shape.num_tokens;
  embedding.hidden_size = spec_->hidden_size;
  embedding.scale = spec_->embedding_scale;
  Embed(embedding, stream);
  for (int32_t layer = 0; layer < spec_->num_layers(); ++layer) {
    NEREID_RETURN_IF_ERROR(RunLayer(layer, shape, words, may_time, stream));
  }
  LinearCall head;
  head.weights = &weights_->lm_head;
  head.in = residual_.as<__nv_bfloat16>();
  head.rows = words + layout.logit_rows;
  head.norm_weight = weights_->final_norm;
  head.epsilon = spec_->norm.epsilon;
  head.normed = normed_.as<__nv_bfloat16>();
  head.output = StreamOutput::kFloat;
  head.out = logits_.data();
  NEREID_RETURN_IF_ERROR(linear_->Run(head, shape.num_logits, may_time, stream));
  NEREID_RETURN_IF_CUDA_ERROR(cudaGetLastError());
  return {};
}

Status Decoder::RunLayer(int32_t layer, const StepShape& shape, const int32_t* words, bool may_time,
                         cudaStream_t stream) {
  const GpuLayer& weights = weights_->layers[layer];
  const auto multiply = [&](const GpuMatrix& matrix, const DeviceMemory& in,
                            const __nv_bfloat16* norm_weight, StreamOutput output,
                            const DeviceMemory& out) {
    LinearCall call;
    call.weights = &matrix;
    call.in = in.as<__nv_bfloat16>();
    call.norm_weight = norm_weight;
    call.epsilon = spec_->norm.epsilon;
    call.normed = normed_.as<__nv_bfloat16>();
    call.output = output;
    call.out = out.data();
    call.scratch = gate_up_.data();
    return linear_->Run(call, shape.num_tokens, may_time, stream);
  };
  NEREID_RETURN_IF_ERROR(
      multiply(weights.qkv, residual_, weights.input_norm, StreamOutput::kBf16, qkv_));
  Attend(layer, shape, words, stream);
  NEREID_RETURN_IF_ERROR(
      multiply(weights.attention_out, attention_, nullptr, StreamOutput::kAdd, residual_));
  NEREID_RETURN_IF_ERROR(
      multiply(weights.gate_up, residual_, weights.pre_mlp_norm, StreamOutput::kSiluGate, gated_));
  return multiply(weights.down, gated_, nullptr, StreamOutput::kAdd, residual_);
}

void Decoder::Attend(int32_t layer, const StepShape& shape, const int32_t* words,
                     cudaStream_t stream) {
  const StepLayout layout(shape);
  const GpuLayer& weights = weights_->layers[layer];
  const llm::LayerSpec& spec = spec_->layers[layer];
  char* cache = cache_.as<char>() + layer * cache_layer_bytes_;
  RopeWriteParams rope = {};
  rope.qkv = qkv_.as<__nv_bfloat16>();
  rope.positions = words + layout.positions;
  rope.cache_slots = words + layout.cache_slots;
  rope.cos_sin = rope_tables_[spec.rope].as<float2>();
  rope.bias = weights.qkv_bias;
  rope.q_norm = weights.q_norm;
  rope.k_norm = weights.k_norm;
  rope.cache = cache;
  rope.num_rows = shape.num_tokens;
  rope.num_heads = spec_->num_heads;
  rope.num_kv_heads = spec_->num_kv_heads;
  rope.head_dim = spec_->head_dim;
  rope.rope_dim = spec_->ropes[spec.rope].dim;
  rope.epsilon = spec_->norm.epsilon;
  RopeWrite(rope, stream);
  if (shape.num_decode > 0) {
    DecodeAttentionParams params = {};
    params.qkv = rope.qkv;
    params.out = attention_.as<__nv_bfloat16>();
    params.cache = cache;
    params.items = reinterpret_cast<const DecodeItem*>(words + layout.decode_items);
    params.words = words;
    params.partials = partials_.as<float>();
    params.tickets = tickets_.as<int32_t>();
    params.num_items = shape.num_decode;
    params.num_heads = spec_->num_heads;
    params.num_kv_heads = spec_->num_kv_heads;
    params.head_dim = spec_->head_dim;
    params.qkv_stride = static_cast<int>(qkv_size());
    params.window = spec.sliding_window;
    params.scale = spec_->attention_scale;
    params.soft_cap = spec_->attention_soft_cap;
    DecodeAttention(params, stream);
  }
  if (shape.num_prefill > 0) {
    PrefillAttentionParams params = {};
    params.qkv = rope.qkv;
    params.out = attention_.as<__nv_bfloat16>();
    params.cache = cache;
    params.tiles = reinterpret_cast<const PrefillTile*>(words + layout.prefill_tiles);
    params.words = words;
    params.num_tiles = shape.num_prefill;
    params.num_heads = spec_->num_heads;
    params.num_kv_heads = spec_->num_kv_heads;
    params.head_dim = spec_->head_dim;
    params.qkv_stride = static_cast<int>(qkv_size());
    params.window = spec.sliding_window;
    params.scale = spec_->attention_scale;
    params.soft_cap = spec_->attention_soft_cap;
    PrefillAttention(params, stream);
  }
}

}  // namespace nereid::gpu
