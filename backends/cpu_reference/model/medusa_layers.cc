// The equations of Medusa heads.
#include "backends/cpu_reference/model/medusa_layers.h"

#include <algorithm>

namespace nereid::cpu {
namespace {

constexpr int32_t kMaxKeptStates = 1 << 16;  // allocated when they are first written

// The final norm of the target and, where the heads share it, the lm_head. With tied embeddings
// that is the matrix of the embedding.
llm::DecoderModel LastWeightsOf(const llm::DecoderModel& target, bool with_lm_head) {
  using llm::WeightKind;
  std::vector<WeightKind> kinds = {WeightKind::kFinalNorm, WeightKind::kFinalNormBias};
  if (with_lm_head) {
    kinds.push_back(target.spec.tied_embeddings ? WeightKind::kTokenEmbedding
                                                : WeightKind::kLmHead);
    kinds.push_back(WeightKind::kLmHeadBias);
  }
  llm::DecoderModel last = WithoutLayers(target, kinds);
  last.spec.tied_embeddings = with_lm_head && target.spec.tied_embeddings;
  return last;
}

}  // namespace

Result<std::unique_ptr<MedusaLayers>> MedusaLayers::Create(
    std::shared_ptr<const llm::Checkpoint> checkpoint, llm::MedusaWeights heads,
    std::shared_ptr<const llm::Checkpoint> target, const llm::DecoderModel& target_model,
    int32_t num_threads) {
  NEREID_ASSIGN_OR_RETURN(CpuWeights weights,
                          LoadCpuWeights(heads.model, *checkpoint, ChooseNumThreads(num_threads)));
  NEREID_ASSIGN_OR_RETURN(
      CpuWeights target_weights,
      LoadCpuWeights(LastWeightsOf(target_model, heads.shares_lm_head), *target));
  return std::unique_ptr<MedusaLayers>(new MedusaLayers(
      std::move(checkpoint), std::move(heads), std::move(target), std::move(weights),
      std::move(target_weights), target_model.spec, num_threads));
}

MedusaLayers::MedusaLayers(std::shared_ptr<const llm::Checkpoint> checkpoint,
                           llm::MedusaWeights heads, std::shared_ptr<const llm::Checkpoint> target,
                           CpuWeights weights, CpuWeights target_weights,
                           const llm::DecoderSpec& target_spec, int32_t num_threads)
    : MedusaHeads(kMaxKeptStates),
      checkpoint_(std::move(checkpoint)),
      target_(std::move(target)),
      heads_(std::move(heads)),
      weights_(std::move(weights)),
      target_weights_(std::move(target_weights)),
      norm_(target_spec.norm),
      hidden_size_(target_spec.hidden_size),
      ops_(BestOps()),
      pool_(ChooseNumThreads(num_threads)),
      products_(ops_, pool_) {}

void MedusaLayers::Keep(const llm::HiddenRows& rows, std::span<const int32_t> kept) {
  const auto size = static_cast<size_t>(hidden_size_);
  for (size_t i = 0; i < kept.size(); ++i) {
    const auto row = static_cast<size_t>(kept[i]);
    if (row >= kept_.size()) kept_.resize(row + 1);
    const std::span<const float> values = rows.values.subspan(i * size, size);
    kept_[row].assign(values.begin(), values.end());
  }
}

Status MedusaLayers::Run(std::span<const int32_t> rows, int32_t num_heads, int32_t num_tokens,
                         std::vector<llm::SampledToken>& tokens) {
  const auto num_rows = static_cast<int64_t>(rows.size());
  const auto count = static_cast<size_t>(num_tokens);
  tokens.assign(rows.size() * static_cast<size_t>(num_heads) * count, {llm::kNoToken, 0.0f});
  pool_.BeginStep();
  NormRows(rows);
  const int64_t vocab_size = heads_.draft_vocab_size;
  for (int32_t head = 0; head < num_heads; ++head) {
    RunHead(head, num_rows);
    pool_.ParallelFor(num_rows, [&](int64_t row, int) {
      std::vector<llm::SampledToken> top;
      llm::FindTopTokens(std::span(logits_).subspan(row * vocab_size, vocab_size), count, top);
      for (llm::SampledToken& token : top) token.id = heads_.TargetId(token.id);
      std::copy(top.begin(), top.end(),
                tokens.begin() + (row * num_heads + head) * static_cast<int64_t>(count));
    });
  }
  pool_.EndStep();
  return {};
}

void MedusaLayers::NormRows(std::span<const int32_t> rows) {
  const NormWeights& norm = target_weights_.final_norm;
  normed_.resize(rows.size() * static_cast<size_t>(hidden_size_));
  for (size_t i = 0; i < rows.size(); ++i) {
    const float* const from = kept_[static_cast<size_t>(rows[i])].data();
    float* const to = normed_.data() + static_cast<int64_t>(i) * hidden_size_;
    if (norm_.kind == llm::NormKind::kRms) {
      ops_.rms_norm({from, hidden_size_, norm.weight.data(), norm_.epsilon, 1, hidden_size_, to,
                     hidden_size_, false});
    } else {
      ops_.layer_norm(
          {from, norm.weight.data(), norm.bias.data(), norm_.epsilon, 1, hidden_size_, to});
    }
  }
}

void MedusaLayers::RunHead(int32_t head, int64_t num_rows) {
  const int64_t size = num_rows * hidden_size_;
  hidden_.assign(normed_.begin(), normed_.begin() + size);
  block_.resize(static_cast<size_t>(size));
  for (int32_t block = 0; block < heads_.num_blocks; ++block) {
    const LayerWeights& layer = weights_.layers[heads_.BlockLayer(head, block)];
    Multiply(layer.residual_block, hidden_.data(), num_rows, block_.data());
    ops_.activation({ActivationKind::kSilu, block_.data(), nullptr, size});
    for (int64_t i = 0; i < size; ++i) hidden_[i] += block_[i];
  }
  logits_.resize(static_cast<size_t>(num_rows * heads_.draft_vocab_size));
  const Linear& output = heads_.shares_lm_head ? target_weights_.lm_head
                                               : weights_.layers[heads_.OutputLayer(head)].lm_head;
  Multiply(output, hidden_.data(), num_rows, logits_.data());
}

void MedusaLayers::Multiply(const Linear& linear, const float* in, int64_t num_rows, float* out) {
  products_.Multiply(linear, in, num_rows, out, linear.weights.rows);
}

}  // namespace nereid::cpu
