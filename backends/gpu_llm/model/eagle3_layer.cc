// Eagle3Layer: buffers, and drafts with hidden states and logits in host memory.
#include "backends/gpu_llm/model/eagle3_layer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backends/gpu_llm/bf16.h"
#include "backends/gpu_llm/cache_budget.h"
#include "backends/gpu_llm/cuda/runtime.h"
#include "backends/gpu_llm/kernels/sampling/rank_tokens.h"
#include "backends/gpu_llm/kernels/sampling/sample.h"
#include "backends/gpu_llm/model/eagle3_cache.h"
#include "backends/gpu_llm/plan_upload.h"
#include "backends/llm_core/speculation/drafter.h"

namespace nereid::gpu {
namespace {

StepPlannerOptions HeadPlannerOptions(const llm::DecoderSpec& spec, int32_t num_processors,
                                      const FusedSteps& fused) {
  StepPlannerOptions options;
  options.num_heads = spec.num_heads;
  options.num_kv_heads = spec.num_kv_heads;
  options.num_processors = num_processors;
  // The plans of several rows of a chain are uploaded together, each of which reads the rows
  // before.
  options.num_unsettled = Eagle3Layer::kRowsTogether - 1 + llm::kMostUnseenOfStep;
  options.fused = fused;
  return options;
}

// The head's layer has neither biases nor windows, whatever its config says of other layers.
llm::DecoderSpec LayerOf(const llm::Eagle3Head& head, const Eagle3LayerOptions& options) {
  llm::DecoderSpec spec = head.model.spec;
  spec.vocab_size = head.draft_vocab_size;
  spec.tied_embeddings = false;
  spec.qkv_bias = spec.attention_out_bias = spec.mlp_bias = spec.qk_norm = false;
  spec.layers.resize(1);
  spec.layers[0].sliding_window = 0;
  spec.embedding_scale = head.has_embedding ? 1.0f : options.embedding_scale;
  if (options.max_positions > 0)
    spec.max_positions = std::min(spec.max_positions, options.max_positions);
  return spec;
}

}  // namespace

int64_t Eagle3Layer::BlockBytes(const llm::Eagle3Head& head) {
  return head.model.spec.num_kv_heads * HeadBytes(head.model.spec.head_dim);
}

Result<std::unique_ptr<Eagle3Layer>> Eagle3Layer::Create(llm::Eagle3Head head,
                                                         const Eagle3LayerOptions& options) {
  NEREID_RETURN_IF_ERROR(CheckGpuSupport(head.model));
  for (const llm::RopeSpec& rope : head.model.spec.ropes) {
    if (rope.trained_positions > 0 || !rope.short_inv_freq.empty()) {
      return UnsupportedError("gpu_llm runs no EAGLE-3 head whose rope depends on the length of a ",
                              "sequence; backend cpu_reference does");
    }
  }
  NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(options.device));
  NEREID_ASSIGN_OR_RETURN(const int32_t num_processors,
                          DeviceAttribute(cudaDevAttrMultiProcessorCount, options.device));
  std::unique_ptr<Eagle3Layer> layer(new Eagle3Layer(head, options, num_processors));
  NEREID_RETURN_IF_ERROR(layer->Initialize(head));
  if (options.num_kept_rows > 0) NEREID_RETURN_IF_ERROR(layer->WarmUp());
  return layer;
}

Eagle3Layer::Eagle3Layer(const llm::Eagle3Head& head, const Eagle3LayerOptions& options,
                         int32_t num_processors)
    : DraftChains(options.num_kept_rows),
      options_(options),
      spec_(LayerOf(head, options)),
      vocab_size_(head.model.spec.vocab_size),
      target_ids_(head.target_ids),
      norm_before_residual_(head.norm_before_residual),
      num_processors_(num_processors),
      max_entries_(StepPlanner::PaddedBatch(std::max(1, options.max_num_entries))),
      planner_(HeadPlannerOptions(spec_, num_processors, {})),
      draw_planner_(vocab_size_, kMaxEdits) {}

Eagle3Layer::~Eagle3Layer() {
  (void)cudaSetDevice(options_.device);
  // The executor, and a stream of it, may be gone.
  (void)cudaDeviceSynchronize();
}

Status Eagle3Layer::Initialize(const llm::Eagle3Head& head) {
  const int64_t feature_size =
      head.model.weights.at({llm::kNoLayer, llm::WeightKind::kFeatureProjection, llm::kNoExpert})
          .source.tensor_shape.back();
  llm::DecoderModel layer = head.model;
  layer.spec = spec_;
  if (options_.stream == nullptr) {
    NEREID_ASSIGN_OR_RETURN(stream_, MakeStream(false));
  }
  NEREID_ASSIGN_OR_RETURN(
      weights_, LoadHeadWeights(layer, feature_size, head.has_embedding ? vocab_size_ : 0));
  if (options_.form == KernelForm::kPortable) weights_.KeepInputsInBf16();
  DecoderLimits limits;
  limits.max_num_tokens = std::max(kMaxRows, max_entries_);
  limits.max_num_logits = limits.max_num_sequences = max_entries_;
  limits.max_positions = spec_.max_positions;
  limits.max_decode_items = planner_.MaxDecodeItems(max_entries_);
  limits.item_tokens = planner_.item_tokens();
  limits.partial_bytes = planner_.PartialBytes(limits.max_decode_items, spec_.head_dim);
  limits.num_processors = num_processors_;
  NEREID_ASSIGN_OR_RETURN(Decoder decoder, Decoder::Create(spec_, weights_, limits));
  decoder_.emplace(std::move(decoder));
  planner_ = StepPlanner(HeadPlannerOptions(spec_, num_processors_, decoder_->fused_steps()));
  NEREID_RETURN_IF_ERROR(decoder_->AllocateCache(options_.num_blocks));
  blocks_ = std::make_shared<llm::BlockPool>(options_.num_blocks, kBlockTokens);
  return AllocateBuffers(feature_size);
}

Status Eagle3Layer::AllocateBuffers(int64_t feature_size) {
  const auto allocate = [](DeviceMemory& memory, size_t size_bytes, const char* what) -> Status {
    NEREID_ASSIGN_OR_RETURN(memory, DeviceMemory::Allocate(size_bytes, what));
    return {};
  };
  const auto max_entries = static_cast<size_t>(max_entries_);
  const size_t rows = std::max<size_t>(kMaxRows, max_entries);
  const size_t table_words =
      std::min<size_t>(options_.num_blocks, max_entries * (BlocksFor(spec_.max_positions) + 1));
  const size_t item_words = max_entries * sizeof(DrawItem) / 4 + kAlignWords;
  StepShape first;
  first.num_tokens = first.num_logits = static_cast<int32_t>(rows);
  first.num_decode = planner_.MaxDecodeItems(max_entries_);
  const int32_t group = spec_.num_heads / spec_.num_kv_heads;
  first.num_prefill = first.num_tokens * group / kQueryRows + max_entries_ + 1;
  // Behind the plan of the first rows come the indices of the hidden states that they read.
  first_words_ =
      AlignWords(StepLayout(first).block_tables + table_words + item_words + rows + kAlignWords);
  StepShape other;
  other.num_tokens = other.num_logits = max_entries_;
  other.num_decode = first.num_decode;
  row_words_ = AlignWords(StepLayout(other).block_tables + table_words + item_words);
  const size_t words_bytes = 4 * (first_words_ + kRowsTogether * row_words_) + kPlanCopyUnit;
  NEREID_RETURN_IF_ERROR(allocate(words_, words_bytes, "a draft head's plan"));
  NEREID_ASSIGN_OR_RETURN(host_words_, PinnedMemory::Allocate(words_bytes));
  const size_t feature_bytes = 2 * static_cast<size_t>(feature_size);
  NEREID_RETURN_IF_ERROR(allocate(features_, rows * feature_bytes, "hidden states"));
  NEREID_RETURN_IF_ERROR(allocate(own_, max_entries * 2 * spec_.hidden_size, "hidden states"));
  NEREID_RETURN_IF_ERROR(kept_.Allocate(options_.num_kept_rows, feature_size));
  const size_t ids_bytes = 4 * target_ids_.size();
  NEREID_RETURN_IF_ERROR(allocate(device_target_ids_, ids_bytes, "a draft head's ids"));
  NEREID_RETURN_IF_CUDA_ERROR(
      cudaMemcpy(device_target_ids_.data(), target_ids_.data(), ids_bytes, cudaMemcpyHostToDevice));
  NEREID_RETURN_IF_ERROR(allocate(argmax_partials_,
                                  sizeof(PartialArgMax) * kArgMaxSplits * max_entries,
                                  "partial results of sampling"));
  NEREID_RETURN_IF_ERROR(allocate(argmax_tickets_, 4 * max_entries, "sampling's counters"));
  NEREID_RETURN_IF_CUDA_ERROR(cudaMemset(argmax_tickets_.data(), 0, argmax_tickets_.size_bytes()));
  NEREID_RETURN_IF_ERROR(allocate(log_sums_, 4 * max_entries, "log sums"));
  NEREID_RETURN_IF_ERROR(
      allocate(spread_logits_, 4 * max_entries * PaddedVocabulary(vocab_size_), "logits"));
  NEREID_RETURN_IF_ERROR(allocate(edits_, kMaxEdits * sizeof(LogitEdit), "changes of logits"));
  NEREID_ASSIGN_OR_RETURN(host_edits_, PinnedMemory::Allocate(kMaxEdits * sizeof(LogitEdit)));
  NEREID_ASSIGN_OR_RETURN(drawn_, PinnedMemory::Allocate(8 * llm::kMaxDraftTokens * max_entries));
  NEREID_RETURN_IF_ERROR(allocate(rank_partials_,
                                  sizeof(RankPartial) * kMaxRankSplits * max_entries,
                                  "partial results of ranking"));
  NEREID_RETURN_IF_ERROR(allocate(rank_tickets_, 4 * max_entries, "counters of ranking"));
  NEREID_RETURN_IF_CUDA_ERROR(cudaMemset(rank_tickets_.data(), 0, rank_tickets_.size_bytes()));
  NEREID_ASSIGN_OR_RETURN(
      ranked_, PinnedMemory::Allocate(8 * kMaxRankedTokens * llm::kMaxDraftTokens * max_entries));
  for (Event& event : row_done_) {
    NEREID_ASSIGN_OR_RETURN(event, MakeEvent());
  }
  // The stream of the kernels does not wait for the default stream, which clears the counters.
  return CudaStatus(cudaStreamSynchronize(nullptr), "the buffers of a draft head");
}

std::unique_ptr<llm::HeadCache> Eagle3Layer::MakeCache() const {
  return std::make_unique<Cache>(blocks_);
}

Status Eagle3Layer::Run(std::span<llm::HeadEntry> entries) {
  NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(options_.device));
  std::vector<llm::HeadEntry*> ordered;  // those with hidden states of the target first
  for (const bool is_own : {false, true}) {
    for (llm::HeadEntry& entry : entries)
      if (entry.is_own == is_own) ordered.push_back(&entry);
  }
  const auto max_entries = static_cast<size_t>(max_entries_);
  for (size_t first = 0; first < ordered.size();) {
    size_t end = first, num_rows = 0;
    for (; end < ordered.size() && end - first < max_entries; ++end) {
      const size_t rows = ordered[end]->tokens.size();
      if (rows > kMaxRows)
        return InternalError("an entry of a draft head has ", rows, " rows, at most ", kMaxRows);
      if (num_rows + rows > kMaxRows) break;
      num_rows += rows;
    }
    NEREID_RETURN_IF_ERROR(Launch(std::span(ordered).subspan(first, end - first)));
    first = end;
  }
  return {};
}

Status Eagle3Layer::Launch(std::span<llm::HeadEntry* const> entries) {
  for (llm::HeadEntry* entry : entries) {
    Cache& cache = static_cast<Cache&>(*entry->cache);
    const auto rows = static_cast<int32_t>(entry->tokens.size());
    if (!cache.Reserve(cache.num_rows() + rows))
      return InternalError("a draft head has no KV blocks left for ", rows, " rows");
  }
  FillBatch(entries);
  planner_.Plan(batch_);
  const StepShape shape = planner_.shape();
  const std::span<const int32_t> words = planner_.words();
  const size_t own_rows_at = AlignWords(words.size());
  const size_t end = own_rows_at + static_cast<size_t>(shape.num_tokens);
  if (end > first_words_) {
    return InternalError("a draft head's plan takes ", end, " words, but its buffer has ",
                         first_words_);
  }
  Decoder::HeadInputs inputs;
  NEREID_RETURN_IF_ERROR(UploadHidden(entries, inputs));
  std::memcpy(host_words_.as<int32_t>(), words.data(), words.size_bytes());
  int32_t* const own_rows = host_words_.as<int32_t>() + own_rows_at;
  std::fill_n(own_rows, shape.num_tokens, -1);
  for (size_t i = inputs.num_features; i < batch_.token_ids.size(); ++i)
    own_rows[i] = static_cast<int32_t>(i) - inputs.num_features;
  inputs.own_rows = words_.as<int32_t>() + own_rows_at;
  NEREID_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(words_.data(), host_words_.as<char>(), 4 * end,
                                              cudaMemcpyHostToDevice, stream()));
  NEREID_RETURN_IF_ERROR(decoder_->ForwardHead(inputs, shape, words_.as<int32_t>(), stream()));
  NEREID_RETURN_IF_ERROR(
      decoder_->ComputeLogits(shape, words_.as<int32_t>(), 0, shape.num_sampled, true, stream()));
  NEREID_RETURN_IF_ERROR(ReadResults(entries, shape));
  for (llm::HeadEntry* entry : entries)
    static_cast<Cache&>(*entry->cache).Append(static_cast<int32_t>(entry->tokens.size()));
  return {};
}

void Eagle3Layer::FillBatch(std::span<llm::HeadEntry* const> entries) {
  batch_.Clear();
  for (const llm::HeadEntry* entry : entries) {
    const Cache& cache = static_cast<const Cache&>(*entry->cache);
    llm::BatchEntry& row = batch_.entries.emplace_back();
    row.slot = static_cast<int32_t>(batch_.entries.size()) - 1;
    row.first_token = static_cast<int32_t>(batch_.token_ids.size());
    row.num_tokens = static_cast<int32_t>(entry->tokens.size());
    row.num_cached = cache.num_rows();
    row.block_table = cache.table();
    row.num_logits = 1;
    row.samples = true;
    batch_.token_ids.insert(batch_.token_ids.end(), entry->tokens.begin(), entry->tokens.end());
  }
}

Status Eagle3Layer::UploadHidden(std::span<llm::HeadEntry* const> entries,
                                 Decoder::HeadInputs& inputs) {
  if (staged_.size_bytes() == 0) {
    const auto max_entries = static_cast<size_t>(max_entries_);
    NEREID_ASSIGN_OR_RETURN(staged_,
                            PinnedMemory::Allocate(features_.size_bytes() + own_.size_bytes()));
    NEREID_ASSIGN_OR_RETURN(host_hidden_, PinnedMemory::Allocate(own_.size_bytes()));
    NEREID_ASSIGN_OR_RETURN(host_logits_,
                            PinnedMemory::Allocate(4 * max_entries * spec_.vocab_size));
  }
  auto* const features = staged_.as<uint16_t>();
  auto* const own = features + features_.size_bytes() / 2;
  size_t num_features = 0, num_own = 0;  // values
  for (const llm::HeadEntry* entry : entries) {
    if (entry->is_own) {
      ToBf16(entry->hidden, own + num_own);
      num_own += entry->hidden.size();
    } else {
      ToBf16(entry->hidden, features + num_features);
      num_features += entry->hidden.size();
      inputs.num_features += static_cast<int32_t>(entry->tokens.size());
    }
  }
  if (2 * num_features > features_.size_bytes() || 2 * num_own > own_.size_bytes())
    return InternalError("a draft head got ", num_features, " and ", num_own, " hidden values");
  if (num_features > 0) {
    NEREID_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(features_.data(), features, 2 * num_features,
                                                cudaMemcpyHostToDevice, stream()));
  }
  if (num_own > 0) {
    NEREID_RETURN_IF_CUDA_ERROR(
        cudaMemcpyAsync(own_.data(), own, 2 * num_own, cudaMemcpyHostToDevice, stream()));
  }
  inputs.features = features_.as<__nv_bfloat16>();
  inputs.own = own_.as<__nv_bfloat16>();
  inputs.token_embedding = token_embedding();
  inputs.norm_before_residual = norm_before_residual_;
  return {};
}

Status Eagle3Layer::ReadResults(std::span<llm::HeadEntry* const> entries, const StepShape& shape) {
  const size_t size = spec_.hidden_size, vocab_size = spec_.vocab_size;
  const size_t num_rows = batch_.token_ids.size();
  // The last row of each entry. If every entry has one row, they are copied together.
  const bool is_together = num_rows == entries.size();
  for (size_t i = 0; i < (is_together ? 1 : entries.size()); ++i) {
    const llm::BatchEntry& row = batch_.entries[i];
    const size_t last = row.first_token + row.num_tokens - 1;
    NEREID_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(
        host_hidden_.as<__nv_bfloat16>() + i * size, decoder_->residual() + last * size,
        2 * size * (is_together ? num_rows : 1), cudaMemcpyDeviceToHost, stream()));
  }
  NEREID_RETURN_IF_CUDA_ERROR(cudaMemcpy2DAsync(
      host_logits_.as<float>(), 4 * vocab_size, decoder_->logits(),
      size_t{4} * decoder_->logits_stride(), 4 * vocab_size,
      std::min<size_t>(entries.size(), shape.num_sampled), cudaMemcpyDeviceToHost, stream()));
  NEREID_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream()));
  for (size_t i = 0; i < entries.size(); ++i) {
    entries[i]->next_hidden.resize(size);
    FromBf16(std::span(host_hidden_.as<uint16_t>() + i * size, size),
             entries[i]->next_hidden.data());
    const float* const logits = host_logits_.as<float>() + i * vocab_size;
    entries[i]->logits.assign(logits, logits + vocab_size);
  }
  return {};
}

}  // namespace nereid::gpu
