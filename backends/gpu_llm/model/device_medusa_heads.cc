// DeviceMedusaHeads: uploads the weights, and computes the heads as matrix products.
#include "backends/gpu_llm/model/device_medusa_heads.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>

#include "backends/gpu_llm/cuda/runtime.h"
#include "backends/gpu_llm/kernels/rows/activation.h"
#include "backends/gpu_llm/kernels/rows/norm.h"
#include "backends/gpu_llm/kernels/sampling/logits.h"
#include "backends/gpu_llm/kernels/sampling/rank_tokens.h"
#include "backends/gpu_llm/model/matrix_source.h"
#include "backends/gpu_llm/model/weight_upload.h"

namespace nereid::gpu {
namespace {

// Lays weights out in one allocation, in bf16.
class HeadUpload {
 public:
  // Appends the rows of these weights, one weight after the other, and then rows of zeros. Returns
  // their offset.
  int64_t Add(const std::vector<const llm::ResolvedWeight*>& weights, int64_t rows_each,
              int64_t columns, int64_t num_padding = 0) {
    auto source = std::make_shared<MatrixSource>();
    for (const llm::ResolvedWeight* weight : weights)
      source->sections.push_back({weight, rows_each});
    source->columns = columns;
    const int64_t offset = next_, num_rows = source->num_rows(), row_bytes = 2 * columns;
    const int64_t rows_a_job = std::max<int64_t>(1, kUploadJobBytes / row_bytes);
    for (int64_t first = 0; first < num_rows; first += rows_a_job) {
      const int64_t count = std::min(rows_a_job, num_rows - first);
      jobs_.push_back(
          {offset + first * row_bytes, count * row_bytes, [source, first, count](uint8_t* to) {
             return FillBf16Rows(*source, first, count, reinterpret_cast<uint16_t*>(to));
           }});
    }
    if (num_padding > 0) {
      jobs_.push_back({offset + num_rows * row_bytes, num_padding * row_bytes,
                       [size = num_padding * row_bytes](uint8_t* to) {
                         std::memset(to, 0, static_cast<size_t>(size));
                         return Status();
                       }});
    }
    next_ = (offset + (num_rows + num_padding) * row_bytes + kWeightAlignment - 1) /
            kWeightAlignment * kWeightAlignment;
    return offset;
  }
  Result<DeviceMemory> Run() const {
    NEREID_ASSIGN_OR_RETURN(
        DeviceMemory memory,
        DeviceMemory::Allocate(static_cast<size_t>(next_), "the weights of Medusa heads"));
    NEREID_RETURN_IF_ERROR(
        Upload(jobs_, [to = memory.as<char>()](int64_t offset) { return to + offset; }));
    return memory;
  }

 private:
  int64_t next_ = 0;
  std::vector<UploadJob> jobs_;
};

}  // namespace

Status TakeLmHead(const llm::DecoderModel& target, llm::MedusaWeights& heads) {
  using llm::WeightKind;
  if (!heads.shares_lm_head) return {};
  const auto find = [&](WeightKind kind) {
    return target.weights.find({llm::kNoLayer, kind, llm::kNoExpert});
  };
  if (find(WeightKind::kLmHeadBias) != target.weights.end()) {
    return UnsupportedError(
        "these Medusa heads share the model's LM head, which has a bias: gpu_llm runs them for "
        "models on one GPU");
  }
  const auto lm_head =
      find(target.spec.tied_embeddings ? WeightKind::kTokenEmbedding : WeightKind::kLmHead);
  if (lm_head == target.weights.end())
    return InternalError("Medusa heads share an LM head that the model does not have");
  for (int32_t head = 0; head < heads.num_heads; ++head) {
    heads.model.weights[{heads.OutputLayer(head), WeightKind::kLmHead, llm::kNoExpert}] =
        lm_head->second;
  }
  heads.shares_lm_head = false;
  return {};
}

DeviceMedusaHeads::DeviceMedusaHeads(const llm::MedusaWeights& heads, const MedusaOptions& options)
    : MedusaHeads(options.num_kept_rows),
      options_(options),
      num_heads_(heads.num_heads),
      num_blocks_(heads.num_blocks),
      hidden_size_(heads.model.spec.hidden_size),
      vocab_size_(heads.draft_vocab_size),
      shares_lm_head_(heads.shares_lm_head),
      target_ids_(heads.target_ids),
      later_blocks_(static_cast<size_t>(heads.num_heads)),
      lm_heads_(static_cast<size_t>(heads.num_heads)) {}

DeviceMedusaHeads::~DeviceMedusaHeads() {
  (void)cudaSetDevice(options_.device);
  // The executor, and its stream, may be gone.
  (void)cudaDeviceSynchronize();
}

Result<std::unique_ptr<DeviceMedusaHeads>> DeviceMedusaHeads::Create(
    const llm::MedusaWeights& heads, const MedusaOptions& options) {
  if (heads.num_heads < 1 || heads.num_blocks < 1)
    return InternalError(heads.num_heads, " Medusa heads with ", heads.num_blocks, " blocks");
  if (heads.draft_vocab_size > kMaxRankVocabulary) {
    return UnsupportedError("Medusa heads for ", heads.draft_vocab_size,
                            " tokens: gpu_llm ranks at most ", kMaxRankVocabulary);
  }
  NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(options.device));
  std::unique_ptr<DeviceMedusaHeads> made(new DeviceMedusaHeads(heads, options));
  NEREID_RETURN_IF_ERROR(made->Load(heads));
  NEREID_RETURN_IF_ERROR(made->AllocateBuffers());
  return made;
}

Status DeviceMedusaHeads::Load(const llm::MedusaWeights& heads) {
  using llm::WeightKind;
  HeadUpload upload;
  std::vector<std::function<void(const char*)>> set;  // with the address of the memory
  const auto find = [&](int32_t layer, WeightKind kind) {
    const auto found = heads.model.weights.find({layer, kind, llm::kNoExpert});
    return found == heads.model.weights.end() ? nullptr : &found->second;
  };
  const auto add_matrix = [&](GpuMatrix& matrix,
                              const std::vector<const llm::ResolvedWeight*>& weights,
                              int64_t rows_each, int64_t num_padding) {
    matrix.num_outputs =
        static_cast<int>(static_cast<int64_t>(weights.size()) * rows_each + num_padding);
    matrix.depth = static_cast<int>(hidden_size_);
    const int64_t offset = upload.Add(weights, rows_each, hidden_size_, num_padding);
    set.emplace_back([&matrix, offset](const char* memory) { matrix.data = memory + offset; });
  };
  const auto add_bias = [&](const __nv_bfloat16*& bias,
                            const std::vector<const llm::ResolvedWeight*>& weights) {
    if (weights[0] == nullptr) return;
    const int64_t offset = upload.Add(weights, hidden_size_, 1);
    set.emplace_back([&bias, offset](const char* memory) {
      bias = reinterpret_cast<const __nv_bfloat16*>(memory + offset);
    });
  };
  std::vector<const llm::ResolvedWeight*> weights, biases;  // of first blocks
  for (int32_t head = 0; head < num_heads_; ++head) {
    weights.push_back(find(heads.BlockLayer(head, 0), WeightKind::kResidualBlock));
    biases.push_back(find(heads.BlockLayer(head, 0), WeightKind::kResidualBlockBias));
    if (weights.back() == nullptr || (biases.back() == nullptr) != (biases[0] == nullptr))
      return InternalError("Medusa head ", head, " has no weight or bias that others have");
  }
  add_matrix(first_blocks_, weights, hidden_size_, 0);
  add_bias(first_biases_, biases);
  std::map<const uint8_t*, int32_t> lm_heads;  // of several heads, if they have the same
  std::vector<int32_t> lm_head_of(static_cast<size_t>(num_heads_));
  for (int32_t head = 0; head < num_heads_; ++head) {
    std::vector<Block>& later = later_blocks_[static_cast<size_t>(head)];
    later.resize(static_cast<size_t>(num_blocks_ - 1));
    for (int32_t block = 1; block < num_blocks_; ++block) {
      const int32_t layer = heads.BlockLayer(head, block);
      Block& to = later[static_cast<size_t>(block - 1)];
      add_matrix(to.matrix, {find(layer, WeightKind::kResidualBlock)}, hidden_size_, 0);
      add_bias(to.bias, {find(layer, WeightKind::kResidualBlockBias)});
    }
    if (shares_lm_head_) continue;
    const llm::ResolvedWeight* const lm_head = find(heads.OutputLayer(head), WeightKind::kLmHead);
    if (lm_head == nullptr) return InternalError("Medusa head ", head, " has no LM head");
    const auto [found, is_new] = lm_heads.try_emplace(lm_head->tensor.bytes.data(), head);
    lm_head_of[static_cast<size_t>(head)] = found->second;
    if (!is_new) continue;
    add_matrix(lm_heads_[static_cast<size_t>(head)], {lm_head}, vocab_size_,
               PaddedVocabulary(vocab_size_) - vocab_size_);
  }
  NEREID_ASSIGN_OR_RETURN(weights_, upload.Run());
  for (const auto& set_pointer : set) set_pointer(weights_.as<char>());
  for (size_t head = 0; head < lm_heads_.size() && !shares_lm_head_; ++head)
    lm_heads_[head] = lm_heads_[static_cast<size_t>(lm_head_of[head])];
  return {};
}

Status DeviceMedusaHeads::AllocateBuffers() {
  const auto allocate = [](DeviceMemory& memory, int64_t size_bytes, const char* what) -> Status {
    NEREID_ASSIGN_OR_RETURN(memory, DeviceMemory::Allocate(static_cast<size_t>(size_bytes), what));
    return {};
  };
  const int64_t row_bytes = 2 * hidden_size(), rows = kMedusaRows;
  const int64_t num_heads = num_heads_;
  NEREID_RETURN_IF_ERROR(kept_.Allocate(options_.num_kept_rows, hidden_size()));
  NEREID_RETURN_IF_ERROR(allocate(normed_, rows * row_bytes, "normed rows"));
  NEREID_RETURN_IF_ERROR(
      allocate(products_, num_heads * rows * row_bytes, "products of Medusa heads"));
  NEREID_RETURN_IF_ERROR(allocate(states_, num_heads * rows * row_bytes, "rows of Medusa heads"));
  NEREID_RETURN_IF_ERROR(allocate(logits_, 4 * rows * PaddedVocabulary(vocab_size_), "logits"));
  NEREID_RETURN_IF_ERROR(allocate(rank_partials_, sizeof(RankPartial) * kMaxRankSplits * rows,
                                  "partial results of ranking"));
  NEREID_RETURN_IF_ERROR(allocate(rank_tickets_, 4 * rows, "counters of ranking"));
  NEREID_RETURN_IF_CUDA_ERROR(cudaMemset(rank_tickets_.data(), 0, rank_tickets_.size_bytes()));
  NEREID_ASSIGN_OR_RETURN(row_list_, PinnedMemory::Allocate(static_cast<size_t>(4 * rows)));
  NEREID_ASSIGN_OR_RETURN(
      ranked_tokens_,
      PinnedMemory::Allocate(static_cast<size_t>(8 * num_heads * rows * kMaxRankedTokens)));
  NEREID_ASSIGN_OR_RETURN(const int32_t num_processors,
                          DeviceAttribute(cudaDevAttrMultiProcessorCount, options_.device));
  GpuWeights multiplied;  // the heads' own weights are bf16 and need nothing
  if (shares_lm_head_) multiplied.lm_head = *options_.lm_head;
  NEREID_ASSIGN_OR_RETURN(LinearRunner linear,
                          LinearRunner::Create(multiplied, kMedusaRows, num_processors));
  linear_.emplace(std::move(linear));
  // The stream of the kernels does not wait for the default stream, which clears the counters.
  return CudaStatus(cudaStreamSynchronize(nullptr), "the buffers of Medusa heads");
}

Status DeviceMedusaHeads::FinishKeeping() {
  NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(options_.device));
  return kept_.Finish(options_.captured(), options_.stream);
}

Status DeviceMedusaHeads::Run(std::span<const int32_t> rows, int32_t num_heads, int32_t num_tokens,
                              std::vector<llm::SampledToken>& tokens) {
  NEREID_RETURN_IF_CUDA_ERROR(cudaSetDevice(options_.device));
  if (num_heads > num_heads_ || num_tokens > kMaxRankedTokens || num_tokens > vocab_size_) {
    return InternalError("Medusa drafts of ", num_heads, " heads and ", num_tokens,
                         " tokens, at most ", num_heads_, " and ",
                         std::min(vocab_size_, kMaxRankedTokens));
  }
  tokens.clear();
  tokens.reserve(rows.size() * static_cast<size_t>(num_heads) * static_cast<size_t>(num_tokens));
  const auto together = size_t{kMedusaRows};
  const int32_t* const ids = ranked_tokens_.as<int32_t>();
  const float* const log_probs = ranked_tokens_.as<float>() + ranked_tokens_.size_bytes() / 8;
  for (size_t first = 0; first < rows.size(); first += together) {
    const size_t count = std::min(together, rows.size() - first);
    std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(first), count, row_list_.as<int32_t>());
    NEREID_RETURN_IF_ERROR(Launch(static_cast<int32_t>(count), num_heads, num_tokens));
    NEREID_RETURN_IF_CUDA_ERROR(cudaStreamSynchronize(options_.stream));
    for (size_t row = 0; row < count; ++row) {
      for (int32_t head = 0; head < num_heads; ++head) {
        const size_t at = (static_cast<size_t>(head) * together + row) * kMaxRankedTokens;
        for (int32_t i = 0; i < num_tokens; ++i) {
          const int32_t id = ids[at + i];
          tokens.push_back(
              {target_ids_.empty() ? id : target_ids_[static_cast<size_t>(id)], log_probs[at + i]});
        }
      }
    }
  }
  return {};
}

Status DeviceMedusaHeads::Launch(int32_t num_rows, int32_t num_heads, int32_t num_tokens) {
  const llm::NormSpec& norm = options_.norm;
  const __nv_bfloat16* const kept = kept_.rows();
  const auto size = static_cast<int>(hidden_size());
  const GpuNorm& weights = options_.final_norm;
  if (norm.kind == llm::NormKind::kRms) {
    RmsNorm({kept, row_list_.as<int32_t>(), weights.weight, normed_.as<__nv_bfloat16>(), num_rows,
             size, norm.epsilon},
            options_.stream);
  } else {
    LayerNorm({kept, row_list_.as<int32_t>(), weights.weight, weights.bias,
               normed_.as<__nv_bfloat16>(), num_rows, size, norm.epsilon},
              options_.stream);
  }
  NEREID_RETURN_IF_ERROR(RunBlocks(num_rows, num_heads));
  for (int32_t head = 0; head < num_heads; ++head)
    NEREID_RETURN_IF_ERROR(RunHead(head, num_rows, num_tokens));
  return CudaStatus(cudaGetLastError(), "Medusa heads");
}

Status DeviceMedusaHeads::Multiply(const GpuMatrix& matrix, const __nv_bfloat16* in,
                                   GemmEpilogue output, void* out, int32_t num_rows,
                                   const char* name) {
  LinearCall call;
  call.weights = &matrix;
  call.in = in;
  call.output = output;
  call.out = out;
  call.row_capacity = kMedusaRows;
  call.name = name;
  return linear_->Run(call, num_rows, true, options_.stream);
}

Status DeviceMedusaHeads::RunBlocks(int32_t num_rows, int32_t num_heads) {
  const auto size = static_cast<int>(hidden_size());
  auto* const products = products_.as<__nv_bfloat16>();
  GpuMatrix first = first_blocks_;
  first.num_outputs = num_heads * size;
  NEREID_RETURN_IF_ERROR(Multiply(first, normed_.as<__nv_bfloat16>(), GemmEpilogue::kBf16, products,
                                  num_rows, "Medusa blocks"));
  const int stride = kMedusaRows * size;
  SiluResidual({normed_.as<__nv_bfloat16>(), products, first_biases_, states_of(0), num_rows,
                num_heads, size, 0, stride},
               options_.stream);
  for (int32_t head = 0; head < num_heads; ++head) {
    for (const Block& block : later_blocks_[static_cast<size_t>(head)]) {
      NEREID_RETURN_IF_ERROR(Multiply(block.matrix, states_of(head), GemmEpilogue::kBf16, products,
                                      num_rows, "Medusa block"));
      SiluResidual(
          {states_of(head), products, block.bias, states_of(head), num_rows, 1, size, 0, 0},
          options_.stream);
    }
  }
  return {};
}

Status DeviceMedusaHeads::RunHead(int32_t head, int32_t num_rows, int32_t num_tokens) {
  const int32_t stride = PaddedVocabulary(vocab_size_);
  NEREID_RETURN_IF_ERROR(Multiply(lm_head_of(head), states_of(head), GemmEpilogue::kFloat,
                                  logits_.data(), num_rows, "Medusa LM head"));
  const __nv_bfloat16* const bias = shares_lm_head_ ? options_.lm_head_bias : nullptr;
  if (bias != nullptr) {
    FinishLogits({logits_.as<float>(), bias, num_rows, vocab_size_, stride, 0.0f}, options_.stream);
  }
  RankTokensParams rank = {};
  rank.logits = logits_.as<float>();
  rank.partials = rank_partials_.as<RankPartial>();
  rank.tickets = rank_tickets_.as<int32_t>();
  const int64_t at = int64_t{head} * kMedusaRows * kMaxRankedTokens;
  rank.ids = ranked_tokens_.as<int32_t>() + at;
  rank.log_probs = ranked_tokens_.as<float>() + ranked_tokens_.size_bytes() / 8 + at;
  rank.num_rows = num_rows;
  rank.vocab_size = vocab_size_;
  rank.stride = stride;
  rank.num_tokens = num_tokens;
  RankTokens(rank, options_.stream);
  return {};
}

}  // namespace nereid::gpu
