// Batches of rows of an EAGLE-3 head.
#include "backends/gpu_llm/model/eagle3_layer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backends/gpu_llm/bf16_rows.h"
#include "backends/gpu_llm/cache_budget.h"
#include "backends/gpu_llm/cuda/runtime.h"

namespace nereid::gpu {
namespace {

StepPlannerOptions HeadPlannerOptions(const llm::DecoderSpec& spec, int32_t num_processors) {
  StepPlannerOptions options;
  options.num_heads = spec.num_heads;
  options.num_kv_heads = spec.num_kv_heads;
  options.num_processors = num_processors;
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

// Row i of the cache is at position i of the rope, wherever its sequence began: attention depends
// on differences of positions alone.
class Eagle3Layer::Cache : public llm::HeadCache {
 public:
  explicit Cache(std::shared_ptr<llm::BlockPool> blocks) : blocks_(std::move(blocks)) {}
  ~Cache() override { blocks_->ReleaseAll(table_); }
  int32_t num_rows() const override { return num_rows_; }
  void Truncate(int32_t num_rows) override {
    num_rows_ = std::min(num_rows_, num_rows);
    while (static_cast<int32_t>(table_.size()) > blocks_->BlocksFor(num_rows_)) {
      blocks_->Release(table_.back());
      table_.pop_back();
    }
  }
  bool Reserve(int32_t num_rows) override {
    while (static_cast<int32_t>(table_.size()) < blocks_->BlocksFor(num_rows)) {
      if (blocks_->num_free() == 0) return false;
      table_.push_back(blocks_->Allocate());
    }
    return true;
  }
  void Append(int32_t num_rows) { num_rows_ += num_rows; }
  std::span<const int32_t> table() const { return table_; }

 private:
  const std::shared_ptr<llm::BlockPool> blocks_;
  std::vector<int32_t> table_;
  int32_t num_rows_ = 0;
};

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
  return layer;
}

Eagle3Layer::Eagle3Layer(const llm::Eagle3Head& head, const Eagle3LayerOptions& options,
                         int32_t num_processors)
    : options_(options),
      spec_(LayerOf(head, options)),
      vocab_size_(head.model.spec.vocab_size),
      target_ids_(head.target_ids),
      norm_before_residual_(head.norm_before_residual),
      num_processors_(num_processors),
      planner_(HeadPlannerOptions(spec_, num_processors)) {}

Eagle3Layer::~Eagle3Layer() {
  (void)cudaSetDevice(options_.device);
  if (stream_) (void)cudaStreamSynchronize(stream_.get());
}

Status Eagle3Layer::Initialize(const llm::Eagle3Head& head) {
  const int64_t feature_size =
      head.model.weights.at({llm::kNoLayer, llm::WeightKind::kFeatureProjection, llm::kNoExpert})
          .source.tensor_shape.back();
  llm::DecoderModel layer = head.model;
  layer.spec = spec_;
  NEREID_ASSIGN_OR_RETURN(stream_, MakeStream(false));
  NEREID_ASSIGN_OR_RETURN(
      weights_, LoadHeadWeights(layer, feature_size, head.has_embedding ? vocab_size_ : 0));
  if (options_.form == KernelForm::kPortable) weights_.KeepInputsInBf16();
  const int32_t max_entries = StepPlanner::PaddedBatch(std::max(1, options_.max_num_entries));
  DecoderLimits limits;
  limits.max_num_tokens = std::max(kMaxRows, max_entries);
  limits.max_num_logits = limits.max_num_sequences = max_entries;
  limits.max_positions = spec_.max_positions;
  limits.max_decode_items = planner_.MaxDecodeItems(max_entries);
  limits.num_processors = num_processors_;
  limits.fuses_decode = false;
  NEREID_ASSIGN_OR_RETURN(Decoder decoder, Decoder::Create(spec_, weights_, limits));
  decoder_.emplace(std::move(decoder));
  NEREID_RETURN_IF_ERROR(decoder_->AllocateCache(options_.num_blocks));
  blocks_ = std::make_shared<llm::BlockPool>(options_.num_blocks, kBlockTokens);
  StepShape largest;
  largest.num_tokens = largest.num_logits = limits.max_num_tokens;
  largest.num_decode = limits.max_decode_items;
  const int32_t group = spec_.num_heads / spec_.num_kv_heads;
  largest.num_prefill = limits.max_num_tokens * group / kQueryRows + max_entries + 1;
  const int64_t table_words = std::min<int64_t>(
      options_.num_blocks, int64_t{max_entries} * (BlocksFor(spec_.max_positions) + 1));
  const size_t words_bytes = 4 * (StepLayout(largest).block_tables + table_words);
  NEREID_ASSIGN_OR_RETURN(words_, DeviceMemory::Allocate(words_bytes, "a draft head's plan"));
  NEREID_ASSIGN_OR_RETURN(host_words_, PinnedMemory::Allocate(words_bytes));
  const auto rows = static_cast<size_t>(limits.max_num_tokens);
  const size_t row_bytes = 2 * spec_.hidden_size;
  NEREID_ASSIGN_OR_RETURN(features_,
                          DeviceMemory::Allocate(rows * 2 * feature_size, "hidden states"));
  NEREID_ASSIGN_OR_RETURN(own_, DeviceMemory::Allocate(max_entries * row_bytes, "hidden states"));
  NEREID_ASSIGN_OR_RETURN(
      staged_, PinnedMemory::Allocate(rows * 2 * feature_size + max_entries * row_bytes));
  NEREID_ASSIGN_OR_RETURN(host_hidden_, PinnedMemory::Allocate(max_entries * row_bytes));
  NEREID_ASSIGN_OR_RETURN(host_logits_,
                          PinnedMemory::Allocate(size_t{4} * max_entries * spec_.vocab_size));
  return {};
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
  const auto max_entries = static_cast<size_t>(std::max(1, options_.max_num_entries));
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
  if (words.size_bytes() > words_.size_bytes()) {
    return InternalError("a draft head's plan takes ", words.size_bytes(),
                         " bytes, but its buffer has ", words_.size_bytes());
  }
  std::memcpy(host_words_.as<char>(), words.data(), words.size_bytes());
  NEREID_RETURN_IF_CUDA_ERROR(cudaMemcpyAsync(words_.data(), host_words_.as<char>(),
                                              words.size_bytes(), cudaMemcpyHostToDevice,
                                              stream_.get()));
  Decoder::HeadInputs inputs;
  NEREID_RETURN_IF_ERROR(UploadHidden(entries, inputs));
  NEREID_RETURN_IF_ERROR(decoder_->ForwardHead(inputs, shape, words_.as<int32_t>(), stream_.get()));
  NEREID_RETURN_IF_ERROR(decoder_->ComputeLogits(shape, words_.as<int32_t>(), 0, shape.num_sampled,
                                                 true, stream_.get()));
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
  auto* const features = staged_.as<uint16_t>();
  auto* const own = features + features_.size_bytes() / 2;
  size_t num_features = 0, num_own = 0;  // values
  for (const llm::HeadEntry* entry : entries) {
    if (entry->is_own) {
      ToBf16(entry->hidden, own + num_own);
      num_own += entry->hidden.size();
      inputs.num_own += static_cast<int32_t>(entry->tokens.size());
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
                                                cudaMemcpyHostToDevice, stream_.get()));
  }
  if (num_own > 0) {
    NEREID_RETURN_IF_CUDA_ERROR(
        cudaMemcpyAsync(own_.data(), own, 2 * num_own, cudaMemcpyHostToDevice, stream_.get()));
  }
  inputs.features = features_.as<__nv_bfloat16>();
  inputs.own = own_.as<__nv_bfloat16>();
  inputs.token_embedding =
      weights_.token_embedding != nullptr ? weights_.token_embedding : options_.token_embedding;
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
        2 * size * (is_together ? num_rows : 1), cudaMemcpyDeviceToHost, stream_.get()));
  }
  NEREID_RETURN_IF_CUDA_ERROR(cudaMemcpy2DAsync(
      host_logits_.as<float>(), 4 * vocab_size, decoder_->logits(),
      size_t{4} * decoder_->logits_stride(), 4 * vocab_size,
      std::min<size_t>(entries.size(), shape.num_sampled), cudaMemcpyDeviceToHost, stream_.get()));
  NEREID_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(stream_.get()));
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
