// Decoder: buffers, and the forward pass layer by layer. [engine thread]
#include "backends/gpu_llm/model/decoder.h"

#include <algorithm>

#include "backends/gpu_llm/kernels/attention/attention.h"
#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/attention/rope.h"
#include "backends/gpu_llm/kernels/rows/activation.h"
#include "backends/gpu_llm/kernels/rows/embedding.h"
#include "backends/gpu_llm/kernels/rows/norm.h"
#include "backends/gpu_llm/kernels/sampling/logits.h"

namespace nereid::gpu {

Result<Decoder> Decoder::Create(const llm::DecoderSpec& spec, const GpuWeights& weights,
                                const DecoderLimits& limits,
                                const TensorParallel& tensor_parallel) {
  Decoder decoder(spec, weights, tensor_parallel);
  decoder.cache_format_ = limits.cache_format;
  decoder.mode_ = limits.is_batch_invariant ? KernelMode::kBatchInvariant : KernelMode::kFastest;
  decoder.max_num_tokens_ = limits.max_num_tokens;
  decoder.item_tokens_ = limits.item_tokens;
  decoder.max_num_logits_ = limits.max_num_logits;
  decoder.num_processors_ = limits.num_processors;
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
  if (spec.parallel_residual) {
    NEREID_RETURN_IF_ERROR(
        allocate(decoder.mlp_in_, tokens * spec.hidden_size * 2, "normed rows of the MLP"));
  }
  const int64_t inner =
      std::max(tokens * spec.intermediate_size, Experts::InnerElements(spec, tokens));
  // Also the output of matrix products that are added to the residual after a bias or a norm.
  const int64_t gate_up_bytes =
      std::max({4 * inner, 2 * tokens * spec.hidden_size, Experts::GateUpBytes(spec, tokens)});
  NEREID_RETURN_IF_ERROR(allocate(decoder.gate_up_, gate_up_bytes, "the MLP's gate and up"));
  NEREID_RETURN_IF_ERROR(allocate(decoder.gated_, inner * 2, "the MLP's inner rows"));
  NEREID_ASSIGN_OR_RETURN(
      decoder.experts_, Experts::Create(spec, weights, limits.max_num_tokens, limits.num_processors,
                                        limits.is_batch_invariant));
  NEREID_RETURN_IF_ERROR(allocate(
      decoder.logits_, int64_t{limits.max_num_logits} * decoder.logits_stride() * 4, "logits"));
  NEREID_RETURN_IF_ERROR(
      allocate(decoder.partials_, limits.partial_bytes, "partial results of attention"));
  const int64_t ticket_bytes =
      int64_t{std::max(limits.max_num_sequences, limits.max_decode_items)} * spec.num_heads * 4;
  NEREID_RETURN_IF_ERROR(allocate(decoder.tickets_, ticket_bytes, "attention's counters"));
  NEREID_RETURN_IF_CUDA_ERROR(cudaMemset(decoder.tickets_.data(), 0, ticket_bytes));
  NEREID_RETURN_IF_ERROR(
      allocate(decoder.last_tokens_, int64_t{limits.max_num_sequences} * 4, "last tokens"));
  NEREID_RETURN_IF_CUDA_ERROR(
      cudaMemset(decoder.last_tokens_.data(), 0, decoder.last_tokens_.size_bytes()));
  NEREID_RETURN_IF_ERROR(decoder.AllocateUnpacked());
  NEREID_ASSIGN_OR_RETURN(decoder.rope_tables_, RopeTables::Fill(spec, limits.max_positions));
  NEREID_ASSIGN_OR_RETURN(LinearRunner linear,
                          LinearRunner::Create(weights, limits.max_num_tokens,
                                               limits.num_processors, limits.is_batch_invariant));
  decoder.linear_.emplace(std::move(linear));
  decoder.fuses_experts_norm_ = tensor_parallel.group == nullptr &&
                                spec.norm.kind == llm::NormKind::kRms && !spec.parallel_residual &&
                                !spec.post_norms && spec.hidden_size % 8 == 0;
  if (tensor_parallel.group != nullptr) {
    NEREID_RETURN_IF_ERROR(decoder.AllocateTensorParallel(limits));
  } else if (limits.fuses_decode) {
    NEREID_ASSIGN_OR_RETURN(
        DecodeStepRunner::CreateResult created,
        DecodeStepRunner::Create(spec, weights, decoder.rope_tables_, decoder.mode_,
                                 limits.cache_format, limits.num_processors));
    decoder.decode_step_ = std::move(created.runner);
    decoder.decode_refusal_ = std::move(created.refusal);
  }
  return decoder;
}

Status Decoder::AllocateTensorParallel(const DecoderLimits& limits) {
  NEREID_ASSIGN_OR_RETURN(
      partial_sums_, DeviceMemory::Allocate(residual_.size_bytes(), "the partial sums over GPUs"));
  NEREID_ASSIGN_OR_RETURN(
      shard_logits_,
      DeviceMemory::Allocate(int64_t{limits.max_num_logits} * weights_->lm_head.num_outputs * 4,
                             "this GPU's logits"));
  tensor_parallel_.group->RegisterBuffers(
      tensor_parallel_.sharding.rank(),
      {partial_sums_.as<__nv_bfloat16>(), residual_.as<__nv_bfloat16>(),
       normed_.as<__nv_bfloat16>(), logits(), last_tokens()});
  fuses_all_reduce_norm_ = spec_->norm.kind == llm::NormKind::kRms && !spec_->parallel_residual &&
                           spec_->hidden_size % 8 == 0 &&
                           spec_->hidden_size <= kMaxAllReduceNormSize;
  for (const GpuLayer& layer : weights_->layers) {
    fuses_all_reduce_norm_ = fuses_all_reduce_norm_ && layer.attention_out_bias == nullptr &&
                             layer.down_bias == nullptr &&
                             layer.post_attention_norm.weight == nullptr &&
                             layer.post_mlp_norm.weight == nullptr;
  }
  return {};
}

const GpuNorm* Decoder::NextInputNorm(int32_t layer) const {
  const int32_t next = layer + 1;
  if (next == spec_->num_layers()) return nullptr;
  const bool norms = tensor_parallel_.group != nullptr
                         ? HasNormedInput(next)
                         : weights_->stream == nullptr && !spec_->parallel_residual;
  return norms ? &weights_->layers[next].input_norm : nullptr;
}

int64_t Decoder::CacheBlockBytes(const llm::DecoderSpec& spec, CacheFormat format) {
  return int64_t{spec.num_layers()} * spec.num_kv_heads * HeadBytes(spec.head_dim, format);
}

Status Decoder::AllocateCache(int32_t num_blocks) {
  NEREID_ASSIGN_OR_RETURN(
      cache_,
      DeviceMemory::Allocate(num_blocks * CacheBlockBytes(*spec_, cache_format_), "the KV cache"));
  cache_layer_bytes_ = static_cast<int64_t>(cache_.size_bytes()) / spec_->num_layers();
  return FillCache(0);
}

Status Decoder::FillCache(uint8_t byte) {
  NEREID_RETURN_IF_CUDA_ERROR(cudaMemset(cache_.data(), byte, cache_.size_bytes()));
  return CudaStatus(cudaDeviceSynchronize(), "the KV cache");
}

CacheBlocks Decoder::cache_blocks() const {
  CacheBlocks blocks;
  blocks.data = cache_.as<char>();
  blocks.layer_bytes = cache_layer_bytes_;
  blocks.num_layers = spec_->num_layers();
  blocks.part_bytes = CacheBlockBytes(*spec_, cache_format_) / blocks.num_layers;
  blocks.num_blocks = static_cast<int32_t>(cache_layer_bytes_ / blocks.part_bytes);
  return blocks;
}

Status Decoder::MoveTokens(const TokenMove* moves, const MoveRange* ranges, int num_ranges,
                           cudaStream_t stream) {
  MoveTokensParams params = {};
  params.cache = cache_.data();
  params.layer_bytes = cache_layer_bytes_;
  params.moves = moves;
  params.ranges = ranges;
  params.num_sequences = num_ranges;
  params.num_layers = spec_->num_layers();
  params.num_kv_heads = spec_->num_kv_heads;
  params.head_dim = spec_->head_dim;
  params.format = cache_format_;
  gpu::MoveTokens(params, stream);
  return CudaStatus(cudaGetLastError(), "moving the keys and values of drafts");
}

int64_t Decoder::memory_bytes() const {
  size_t sum = 0;
  for (const DeviceMemory* memory :
       {&cache_, &unpacked_, &unpacked_indices_, &residual_, &normed_, &mlp_in_, &head_in_, &qkv_,
        &attention_, &gate_up_, &gated_, &logits_, &partials_, &tickets_, &last_tokens_,
        &partial_sums_, &shard_logits_}) {
    sum += memory->size_bytes();
  }
  if (decode_step_) sum += decode_step_->memory_bytes();
  if (captured_) sum += captured_->memory_bytes();
  return static_cast<int64_t>(sum) + rope_tables_.memory_bytes() + experts_.memory_bytes();
}

Status Decoder::Forward(const StepShape& shape, const int32_t* words, bool may_time,
                        cudaStream_t stream) {
  const StepLayout layout(shape);
  EmbeddingParams embedding = {};
  embedding.ids = words + layout.token_ids;
  embedding.last_tokens = last_tokens_.as<int32_t>();
  embedding.table = weights_->token_embedding;
  embedding.positions = words + layout.positions;
  embedding.position_table = weights_->position_embedding;
  if (shape.has_prompt_rows) {
    embedding.prompt_row_of = words + layout.prompt_rows;
    embedding.prompt_rows = prompt_rows_;
  }
  embedding.out = residual_.as<__nv_bfloat16>();
  embedding.num_rows = shape.num_tokens;
  embedding.hidden_size = spec_->hidden_size;
  embedding.scale = spec_->embedding_scale;
  Mark("embedding", RowsWork(shape.num_tokens, 2), stream);
  Embed(embedding, stream);
  if (IsFused(shape)) return RunFused(shape, words, stream);
  has_normed_ = false;
  adapter_rows_ = shape.has_adapters ? adapters_->RowsOf(shape, words) : AdapterRows{};
  const auto* const residual = residual_.as<__nv_bfloat16>();
  for (int32_t layer = 0; layer < spec_->num_layers(); ++layer) {
    if (captured_)
      NEREID_RETURN_IF_ERROR(captured_->Store(layer, residual, shape.num_tokens, stream));
    if (weights_->stream) NEREID_RETURN_IF_ERROR(weights_->stream->Begin(layer, stream));
    NEREID_RETURN_IF_ERROR(RunLayer(layer, shape, words, may_time, stream));
    if (weights_->stream) NEREID_RETURN_IF_ERROR(weights_->stream->End(layer, stream));
  }
  if (weights_->stream) NEREID_RETURN_IF_ERROR(weights_->stream->Finish(stream));
  if (!captured_) return {};
  return captured_->Store(spec_->num_layers(), residual, shape.num_tokens, stream);
}

Status Decoder::Capture(std::vector<int32_t> layers) {
  const int32_t num_rows = tensor_parallel_.sharding.rank() == 0 ? max_num_tokens_ : 0;
  NEREID_ASSIGN_OR_RETURN(captured_,
                          HiddenStates::Create(std::move(layers), spec_->hidden_size, num_rows));
  return {};
}

Status Decoder::RunFused(const StepShape& shape, const int32_t* words, cudaStream_t stream) {
  DecodeStepParams buffers = {};
  buffers.residual = residual_.as<__nv_bfloat16>();
  buffers.logits = logits_.as<float>();
  buffers.cache = cache_.data();
  buffers.cache_layer_bytes = cache_layer_bytes_;
  buffers.partials = partials_.as<float>();
  buffers.item_tokens = item_tokens_;
  buffers.tickets = tickets_.as<int32_t>();
  buffers.input = head_in_.as<__nv_bfloat16>();
  NEREID_RETURN_IF_ERROR(decode_step_->Run(shape, words, buffers, stream));
  if (head_in_.data() != nullptr) {  // the next draft continues the output
    const int32_t output = spec_->num_layers();
    return decode_step_->CopyHiddenStates(std::span(&output, 1), shape, buffers,
                                          residual_.as<__nv_bfloat16>(), stream);
  }
  if (!captured_ || !shape.returns_hidden_states) return {};
  return decode_step_->CopyHiddenStates(captured_->layers(), shape, buffers, captured_->rows(),
                                        stream);
}

Status Decoder::RunHead(const StepShape& shape, const int32_t* words, int32_t first, int32_t count,
                        bool may_time, cudaStream_t stream) {
  LinearCall head;
  head.weights = &weights_->lm_head;
  head.name = "LM head";
  head.timer = timer_;
  head.in = residual_.as<__nv_bfloat16>();
  head.rows = words + StepLayout(shape).logit_rows + first;
  head.norm_weight = weights_->final_norm.weight;
  head.epsilon = spec_->norm.epsilon;
  head.normed = normed_.as<__nv_bfloat16>();
  head.output = GemmEpilogue::kFloat;
  head.out = tensor_parallel_.group == nullptr ? logits_.data() : shard_logits_.data();
  head.row_capacity = std::min(max_num_tokens_, max_num_logits_);
  const bool adapts = shape.has_adapters && Adapts(AdapterGroup::kHead);
  const int32_t* const rows = head.rows;
  if (adapts || spec_->norm.kind == llm::NormKind::kLayer) {
    ApplyNorm(weights_->final_norm, head.rows, count, normed_, stream);
    head.in = head.normed;
    head.rows = nullptr;
    head.norm_weight = nullptr;
  }
  if (!adapts) return linear_->Run(head, count, may_time, stream);
  AdapterRows of_logits = adapter_rows_;
  of_logits.tiles = nullptr;
  of_logits.rows = rows;
  of_logits.num_tiles = count;
  const DeviceAdapters::Target target = {llm::kNoLayer, AdapterGroup::kHead};
  Mark("LoRA, shrink", {}, stream);
  NEREID_RETURN_IF_ERROR(adapters_->Shrink(target, of_logits, head.in, stream));
  NEREID_RETURN_IF_ERROR(linear_->Run(head, count, may_time, stream));
  Mark("LoRA, expand", {}, stream);
  const int64_t stride =
      tensor_parallel_.group == nullptr ? logits_stride() : weights_->lm_head.num_outputs;
  return adapters_->Expand(target, of_logits, head.out, stride, stream);
}

Status Decoder::ComputeLogits(const StepShape& shape, const int32_t* words, int32_t first,
                              int32_t count, bool may_time, cudaStream_t stream) {
  if (!IsFused(shape))
    NEREID_RETURN_IF_ERROR(RunHead(shape, words, first, count, may_time, stream));
  if (tensor_parallel_.group != nullptr) {
    const Sharding& sharding = tensor_parallel_.sharding;
    const IndexRange rows = sharding.HeadRows(sharding.rank(), logits_stride());
    Mark("gather logits", {8.0 * count * rows.count}, stream);
    GatherLogits(tensor_parallel_.group->peers(sharding.rank()), shard_logits_.as<float>(), count,
                 rows.first, rows.count, logits_stride(), stream);
    if (sharding.rank() > 0) return CudaStatus(cudaGetLastError(), "the LM head");
  }
  if (spec_->logit_soft_cap > 0.0f || weights_->lm_head_bias != nullptr ||
      logits_stride() > spec_->vocab_size) {
    Mark("logit bias and cap", {8.0 * count * spec_->vocab_size}, stream);
    FinishLogits({logits_.as<float>(), weights_->lm_head_bias, count, spec_->vocab_size,
                  logits_stride(), spec_->logit_soft_cap},
                 stream);
  }
  NEREID_RETURN_IF_CUDA_ERROR(cudaGetLastError());
  return {};
}

void Decoder::ApplyNorm(const GpuNorm& norm, const int32_t* rows, int num_rows,
                        const DeviceMemory& out, cudaStream_t stream) {
  const auto* in = residual_.as<__nv_bfloat16>();
  auto* to = out.as<__nv_bfloat16>();
  Mark("norm", RowsWork(num_rows, 2), stream);
  if (spec_->norm.kind == llm::NormKind::kRms) {
    RmsNorm({in, rows, norm.weight, to, num_rows, spec_->hidden_size, spec_->norm.epsilon}, stream);
  } else {
    LayerNorm(
        {in, rows, norm.weight, norm.bias, to, num_rows, spec_->hidden_size, spec_->norm.epsilon},
        stream);
  }
}

void Decoder::ApplyBothNorms(const GpuLayer& weights, int num_rows, cudaStream_t stream) {
  Mark("norm", RowsWork(num_rows, 3), stream);
  const GpuNorm &first = weights.input_norm, &second = weights.pre_mlp_norm;
  LayerNorm({residual_.as<__nv_bfloat16>(), nullptr, first.weight, first.bias,
             normed_.as<__nv_bfloat16>(), num_rows, spec_->hidden_size, spec_->norm.epsilon,
             second.weight, second.bias, mlp_in_.as<__nv_bfloat16>()},
            stream);
}

Status Decoder::Multiply(const LinearLayer& linear, const DeviceMemory& in, const GpuNorm* norm,
                         GemmEpilogue output, const DeviceMemory& out, int num_rows, bool may_time,
                         cudaStream_t stream) {
  LinearCall call;
  call.weights = &linear.matrix;
  call.bias = linear.bias;
  call.activation = spec_->activation;
  call.in = in.as<__nv_bfloat16>();
  if (norm != nullptr && spec_->norm.kind == llm::NormKind::kRms) {
    call.norm_weight = norm->weight;  // fused into the matrix product
  } else if (norm != nullptr) {
    ApplyNorm(*norm, nullptr, num_rows, normed_, stream);
    call.in = normed_.as<__nv_bfloat16>();
  }
  call.epsilon = spec_->norm.epsilon;
  call.normed = normed_.as<__nv_bfloat16>();
  call.output = output;
  call.out = out.data();
  call.scratch = gate_up_.data();
  call.row_capacity = max_num_tokens_;
  call.name = linear.name;
  call.timer = timer_;
  return linear_->Run(call, num_rows, may_time, stream);
}

Status Decoder::AddGemmToResidual(const char* name, const GpuMatrix& matrix, const DeviceMemory& in,
                                  const ResidualUpdate& update,
                                  const DeviceAdapters::Target& adapted, int num_rows,
                                  bool may_time, cudaStream_t stream) {
  NEREID_RETURN_IF_ERROR(ShrinkAdapters(adapted, in, stream));
  if (tensor_parallel_.group != nullptr) {
    NEREID_RETURN_IF_ERROR(Multiply({name, matrix}, in, nullptr, GemmEpilogue::kBf16, partial_sums_,
                                    num_rows, may_time, stream));
    NEREID_RETURN_IF_ERROR(ExpandAdapters(adapted, partial_sums_, spec_->hidden_size, stream));
    return AllReduceResidual(update, num_rows, stream);
  }
  // With a parallel residual, no kernel runs between this product and the next one. Adding the bias
  // in a kernel of its own was faster then (bench/results/gpu_families.csv).
  const bool adds_bias_later =
      update.bias != nullptr && spec_->parallel_residual && num_rows > kShareRows;
  if (update.post_norm.weight == nullptr && !adds_bias_later) {
    NEREID_RETURN_IF_ERROR(Multiply({name, matrix, update.bias}, in, nullptr, GemmEpilogue::kAdd,
                                    residual_, num_rows, may_time, stream));
    return ExpandAdapters(adapted, residual_, spec_->hidden_size, stream);
  }
  NEREID_RETURN_IF_ERROR(Multiply({name, matrix}, in, nullptr, GemmEpilogue::kBf16, gate_up_,
                                  num_rows, may_time, stream));
  NEREID_RETURN_IF_ERROR(ExpandAdapters(adapted, gate_up_, spec_->hidden_size, stream));
  AddToResidual(gate_up_, update, num_rows, stream);
  return {};
}

void Decoder::AddToResidual(const DeviceMemory& product, const ResidualUpdate& update, int num_rows,
                            cudaStream_t stream) {
  has_normed_ = update.next != nullptr && update.next_norm != nullptr &&
                spec_->norm.kind == llm::NormKind::kRms &&
                linear_->NormsBefore(*update.next, update.next_output, num_rows);
  Mark(has_normed_ ? "residual add, norm" : "residual add", RowsWork(num_rows, has_normed_ ? 4 : 3),
       stream);
  ResidualAdd({product.as<__nv_bfloat16>(), update.bias, update.post_norm.weight,
               residual_.as<__nv_bfloat16>(), num_rows, spec_->hidden_size, spec_->norm.epsilon,
               has_normed_ ? update.next_norm->weight : nullptr, normed_.as<__nv_bfloat16>()},
              stream);
}

Status Decoder::AllReduceResidual(const ResidualUpdate& update, int num_rows, cudaStream_t stream) {
  const Peers& peers = tensor_parallel_.group->peers(tensor_parallel_.sharding.rank());
  if (fuses_all_reduce_norm_) {
    const GpuNorm* norm = update.next_norm;
    Mark("all-reduce, norm", RowsWork(num_rows, 4), stream);
    AllReduceNorm(peers,
                  {norm != nullptr ? norm->weight : nullptr, num_rows, spec_->hidden_size,
                   spec_->norm.epsilon},
                  AllReduceAlgorithm::kAuto, stream);
    return CudaStatus(cudaGetLastError(), "an all-reduce");
  }
  const bool is_plain = update.bias == nullptr && update.post_norm.weight == nullptr;
  Mark("all-reduce", RowsWork(num_rows, 2), stream);
  AllReduce(peers, int64_t{num_rows} * spec_->hidden_size,
            is_plain ? AllReduceTarget::kResidual : AllReduceTarget::kInPlace,
            AllReduceAlgorithm::kAuto, stream);
  if (!is_plain) {
    AddToResidual(partial_sums_, {update.bias, update.post_norm}, num_rows, stream);
  }
  return CudaStatus(cudaGetLastError(), "an all-reduce");
}

Status Decoder::RunLayer(int32_t layer, const StepShape& shape, const int32_t* words, bool may_time,
                         cudaStream_t stream) {
  const GpuLayer& weights = weights_->layers[layer];
  bool is_normed = HasNormedInput(layer) || TakeNormed();
  // The MLP of a parallel residual reads the residual before attention changes it.
  const bool norms_both =
      spec_->parallel_residual && spec_->norm.kind == llm::NormKind::kLayer && !is_normed;
  if (norms_both) {
    ApplyBothNorms(weights, shape.num_tokens, stream);
    is_normed = true;
  }
  if (Adapts(AdapterGroup::kQkv)) {
    if (!is_normed) ApplyNorm(weights.input_norm, nullptr, shape.num_tokens, normed_, stream);
    NEREID_RETURN_IF_ERROR(ShrinkAdapters({layer, AdapterGroup::kQkv}, normed_, stream));
    NEREID_RETURN_IF_ERROR(Multiply({"q, k, v", weights.qkv}, normed_, nullptr, GemmEpilogue::kBf16,
                                    qkv_, shape.num_tokens, may_time, stream));
    NEREID_RETURN_IF_ERROR(ExpandAdapters({layer, AdapterGroup::kQkv}, qkv_, qkv_size(), stream));
  } else if (head_in_.data() != nullptr) {
    NEREID_RETURN_IF_ERROR(Multiply({"q, k, v", weights.qkv}, head_in_, nullptr,
                                    GemmEpilogue::kBf16, qkv_, shape.num_tokens, may_time, stream));
  } else {
    NEREID_RETURN_IF_ERROR(Multiply({"q, k, v", weights.qkv}, is_normed ? normed_ : residual_,
                                    is_normed ? nullptr : &weights.input_norm, GemmEpilogue::kBf16,
                                    qkv_, shape.num_tokens, may_time, stream));
  }
  if (spec_->parallel_residual && !norms_both) {
    ApplyNorm(weights.pre_mlp_norm, nullptr, shape.num_tokens, mlp_in_, stream);
  }
  RunAttention(layer, shape, words, stream);
  const bool is_moe = spec_->layers[layer].is_moe;
  NEREID_RETURN_IF_ERROR(AddGemmToResidual(
      "attention's output", weights.attention_out, attention_,
      {weights.attention_out_bias, weights.post_attention_norm, &weights.pre_mlp_norm,
       is_moe || spec_->parallel_residual ? nullptr : &weights.gate_up, MlpEpilogue(weights)},
      {layer, AdapterGroup::kAttentionOut}, shape.num_tokens, may_time, stream));
  if (is_moe) {
    return RunExperts(layer, shape, stream);
  }
  return RunMlp(layer, shape, may_time, stream);
}

Status Decoder::RunMlp(int32_t layer, const StepShape& shape, bool may_time, cudaStream_t stream) {
  const GpuLayer& weights = weights_->layers[layer];
  const bool is_normed = TakeNormed() || fuses_all_reduce_norm_;
  const DeviceMemory& in = spec_->parallel_residual ? mlp_in_ : is_normed ? normed_ : residual_;
  const GpuNorm* norm = spec_->parallel_residual || is_normed ? nullptr : &weights.pre_mlp_norm;
  const bool is_gated = spec_->mlp == llm::MlpKind::kGated;
  if (Adapts(AdapterGroup::kGateUp)) {
    if (norm != nullptr) ApplyNorm(*norm, nullptr, shape.num_tokens, normed_, stream);
    const DeviceMemory& rows = norm != nullptr ? normed_ : in;
    const DeviceAdapters::Target target = {layer, AdapterGroup::kGateUp};
    NEREID_RETURN_IF_ERROR(ShrinkAdapters(target, rows, stream));
    NEREID_RETURN_IF_ERROR(Multiply({"gate and up", weights.gate_up}, rows, nullptr,
                                    GemmEpilogue::kBf16, gate_up_, shape.num_tokens, may_time,
                                    stream));
    if (IsSiluGate(weights)) {
      NEREID_RETURN_IF_ERROR(JoinAdapters(stream));
      Mark("LoRA, expand", {}, stream);
      NEREID_RETURN_IF_ERROR(adapters_->ExpandGated(
          layer, adapter_rows_, gate_up_.as<__nv_bfloat16>(), gated_.as<__nv_bfloat16>(), stream));
    } else {
      const int64_t stride = (is_gated ? 2 : 1) * int64_t{spec_->intermediate_size};
      NEREID_RETURN_IF_ERROR(ExpandAdapters(target, gate_up_, stride, stream));
      RunActivation(weights, shape.num_tokens, stream);
    }
  } else {
    NEREID_RETURN_IF_ERROR(Multiply({"gate and up", weights.gate_up, weights.gate_up_bias}, in,
                                    norm, MlpEpilogue(weights), gated_, shape.num_tokens, may_time,
                                    stream));
  }
  const GpuNorm* const next_norm = NextInputNorm(layer);
  return AddGemmToResidual("down", weights.down, gated_,
                           {weights.down_bias, weights.post_mlp_norm, next_norm,
                            next_norm != nullptr ? &weights_->layers[layer + 1].qkv : nullptr},
                           {layer, AdapterGroup::kDown}, shape.num_tokens, may_time, stream);
}

GemmEpilogue Decoder::MlpEpilogue(const GpuLayer& weights) const {
  if (IsSiluGate(weights)) return GemmEpilogue::kSiluGate;
  return spec_->mlp == llm::MlpKind::kGated ? GemmEpilogue::kGate : GemmEpilogue::kActivate;
}

bool Decoder::IsSiluGate(const GpuLayer& weights) const {
  return spec_->mlp == llm::MlpKind::kGated && spec_->activation == llm::Activation::kSilu &&
         weights.gate_up_bias == nullptr;
}

void Decoder::RunActivation(const GpuLayer& weights, int num_rows, cudaStream_t stream) {
  const bool is_gated = spec_->mlp == llm::MlpKind::kGated;
  Mark("activation", {(is_gated ? 6.0 : 4.0) * num_rows * spec_->intermediate_size}, stream);
  if (IsSiluGate(weights)) {
    return SiluGate(gate_up_.as<__nv_bfloat16>(), gated_.as<__nv_bfloat16>(), num_rows,
                    spec_->intermediate_size, stream);
  }
  Activate({gate_up_.as<__nv_bfloat16>(), weights.gate_up_bias, gated_.as<__nv_bfloat16>(),
            num_rows, spec_->intermediate_size, spec_->activation, is_gated},
           stream);
}

Status Decoder::RunExperts(int32_t layer, const StepShape& shape, cudaStream_t stream) {
  const GpuLayer& weights = weights_->layers[layer];
  const bool norms = !spec_->parallel_residual && !fuses_all_reduce_norm_;
  const bool fuses_norm = norms && spec_->norm.kind == llm::NormKind::kRms;
  if (norms && !fuses_norm)
    ApplyNorm(weights.pre_mlp_norm, nullptr, shape.num_tokens, normed_, stream);
  const bool is_normed = weights.post_mlp_norm.weight != nullptr;
  const bool is_shared = tensor_parallel_.group != nullptr;
  ExpertsCall call;
  call.weights = &weights;
  call.in = (spec_->parallel_residual ? mlp_in_
             : fuses_norm             ? residual_
                                      : normed_)
                .as<__nv_bfloat16>();
  if (fuses_norm) call.norm_weight = weights.pre_mlp_norm.weight;
  call.normed = normed_.as<__nv_bfloat16>();
  call.gate_up = &gate_up_;
  call.gated = &gated_;
  call.ticket = tickets_.as<int32_t>();
  call.out = (is_shared ? partial_sums_ : is_normed ? gate_up_ : residual_).as<__nv_bfloat16>();
  call.accumulates = !is_normed && !is_shared;
  call.num_tokens = shape.num_tokens;
  call.timer = timer_;
  if (const GpuNorm* next = NextInputNorm(layer); fuses_experts_norm_ && next != nullptr)
    call.next_norm_weight = next->weight;
  NEREID_RETURN_IF_ERROR(experts_.Run(call, stream));
  if (is_shared) {
    return AllReduceResidual({nullptr, weights.post_mlp_norm, NextInputNorm(layer)},
                             shape.num_tokens, stream);
  }
  if (is_normed) {
    AddToResidual(gate_up_, {nullptr, weights.post_mlp_norm}, shape.num_tokens, stream);
  }
  return {};
}

}  // namespace nereid::gpu
