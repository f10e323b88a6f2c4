// The equations of an EAGLE-3 head.
#include "backends/cpu_reference/model/eagle3_layer.h"

#include <algorithm>
#include <cmath>

namespace nereid::cpu {
namespace {

// Independent partial sums, which the compiler keeps in one vector.
float Dot(const float* a, const float* b, int32_t size) {
  constexpr int32_t kLanes = 16;
  float sums[kLanes] = {};
  int32_t i = 0;
  for (; i + kLanes <= size; i += kLanes) {
    for (int32_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  float sum = 0.0f;
  for (; i < size; ++i) sum += a[i] * b[i];
  for (const float each : sums) sum += each;
  return sum;
}

}  // namespace

class Eagle3Layer::Cache : public llm::HeadCache {
 public:
  explicit Cache(int64_t kv_size) : kv_size_(kv_size) {}
  int32_t num_rows() const override { return static_cast<int32_t>(keys_.size() / kv_size_); }
  void Truncate(int32_t num_rows) override {
    const size_t size = std::min(keys_.size(), static_cast<size_t>(num_rows * kv_size_));
    keys_.resize(size);
    values_.resize(size);
  }
  void Append(const float* key, const float* value) {
    keys_.insert(keys_.end(), key, key + kv_size_);
    values_.insert(values_.end(), value, value + kv_size_);
  }
  const float* key(int64_t row) const { return keys_.data() + row * kv_size_; }
  const float* value(int64_t row) const { return values_.data() + row * kv_size_; }

 private:
  const int64_t kv_size_;
  std::vector<float> keys_, values_;  // [rows, kv_size]
};

Result<std::unique_ptr<Eagle3Layer>> Eagle3Layer::Create(
    std::shared_ptr<const llm::Checkpoint> checkpoint, llm::Eagle3Head head,
    std::shared_ptr<const llm::Checkpoint> target, const llm::DecoderModel& target_model,
    int32_t num_threads) {
  NEREID_ASSIGN_OR_RETURN(CpuWeights weights,
                          LoadCpuWeights(head.model, *checkpoint, ChooseNumThreads(num_threads)));
  float embedding_scale = 1.0f;
  if (!head.has_embedding) {
    constexpr llm::WeightKind kEmbedding[] = {llm::WeightKind::kTokenEmbedding};
    NEREID_ASSIGN_OR_RETURN(CpuWeights loaded,
                            LoadCpuWeights(WithoutLayers(target_model, kEmbedding), *target));
    weights.token_embedding = loaded.token_embedding;
    for (auto& allocation : loaded.allocations)
      weights.allocations.push_back(std::move(allocation));
    embedding_scale = target_model.spec.embedding_scale;
  }
  return std::unique_ptr<Eagle3Layer>(new Eagle3Layer(std::move(checkpoint), std::move(head),
                                                      std::move(target), std::move(weights),
                                                      embedding_scale, num_threads));
}

Eagle3Layer::Eagle3Layer(std::shared_ptr<const llm::Checkpoint> checkpoint, llm::Eagle3Head head,
                         std::shared_ptr<const llm::Checkpoint> target, CpuWeights weights,
                         float embedding_scale, int32_t num_threads)
    : checkpoint_(std::move(checkpoint)),
      target_(std::move(target)),
      head_(std::move(head)),
      weights_(std::move(weights)),
      embedding_scale_(embedding_scale),
      ops_(BestOps()),
      pool_(ChooseNumThreads(num_threads)),
      products_(ops_, pool_) {}

std::unique_ptr<llm::HeadCache> Eagle3Layer::MakeCache() const {
  return std::make_unique<Cache>(spec().kv_size());
}

Status Eagle3Layer::Run(std::span<llm::HeadEntry> entries) {
  pool_.BeginStep();
  Embed(entries);
  RunAttention(entries);
  RunMlp();
  const int64_t size = spec().hidden_size;
  last_.resize(entries.size() * size);
  int64_t end = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    end += static_cast<int64_t>(entries[i].tokens.size());
    const float* const row = hidden_.data() + (end - 1) * size;
    entries[i].next_hidden.assign(row, row + size);
    Norm(weights_.final_norm.weight, row, 1, last_.data() + static_cast<int64_t>(i) * size, size);
  }
  const auto num_entries = static_cast<int64_t>(entries.size());
  logits_.resize(num_entries * head_.draft_vocab_size);
  Multiply(weights_.lm_head, last_.data(), num_entries, logits_.data());
  for (size_t i = 0; i < entries.size(); ++i) {
    const float* const row = logits_.data() + static_cast<int64_t>(i) * head_.draft_vocab_size;
    entries[i].logits.assign(row, row + head_.draft_vocab_size);
  }
  pool_.EndStep();
  return {};
}

void Eagle3Layer::Embed(std::span<const llm::HeadEntry> entries) {
  const int64_t size = spec().hidden_size;
  num_rows_ = 0;
  for (const llm::HeadEntry& entry : entries) {
    num_rows_ += static_cast<int64_t>(entry.tokens.size());
  }
  hidden_.resize(num_rows_ * size);
  normed_.resize(num_rows_ * size);
  inputs_.resize(num_rows_ * 2 * size);
  int64_t row = 0;
  for (const llm::HeadEntry& entry : entries) {
    const auto count = static_cast<int64_t>(entry.tokens.size());
    float* const hidden = hidden_.data() + row * size;
    if (entry.is_own) {
      std::copy(entry.hidden.begin(), entry.hidden.end(), hidden);
    } else {
      Multiply(weights_.feature_projection, entry.hidden.data(), count, hidden);
    }
    EmbeddingParams params;
    params.ids = entry.tokens.data();
    params.num_tokens = count;
    params.table = weights_.token_embedding;
    params.scale = embedding_scale_;
    params.out = normed_.data() + row * size;
    ops_.embedding(params);
    row += count;
  }
  // Each input row: the normed embedding, then the normed hidden state.
  const LayerWeights& weights = weights_.layers[0];
  Norm(weights.input_norm.weight, normed_.data(), num_rows_, inputs_.data(), 2 * size);
  Norm(weights.feature_norm.weight, hidden_.data(), num_rows_, inputs_.data() + size, 2 * size);
  if (!head_.norm_before_residual) return;
  for (int64_t i = 0; i < num_rows_; ++i) {
    std::copy_n(inputs_.data() + (2 * i + 1) * size, size, hidden_.data() + i * size);
  }
}

void Eagle3Layer::RunAttention(std::span<const llm::HeadEntry> entries) {
  const LayerWeights& weights = weights_.layers[0];
  const int64_t q_size = spec().q_size(), kv_size = spec().kv_size();
  q_.resize(num_rows_ * q_size);
  attention_.resize(num_rows_ * q_size);
  k_.resize(num_rows_ * kv_size);
  v_.resize(num_rows_ * kv_size);
  Multiply(weights.q, inputs_.data(), num_rows_, q_.data());
  Multiply(weights.k, inputs_.data(), num_rows_, k_.data());
  Multiply(weights.v, inputs_.data(), num_rows_, v_.data());
  int64_t row = 0;
  for (const llm::HeadEntry& entry : entries) {
    Cache& cache = static_cast<Cache&>(*entry.cache);
    for (int32_t i = 0; i < static_cast<int32_t>(entry.tokens.size()); ++i, ++row) {
      const int32_t position = entry.first_position + i;
      Rotate(q_.data() + row * q_size, spec().num_heads, position);
      Rotate(k_.data() + row * kv_size, spec().num_kv_heads, position);
      cache.Append(k_.data() + row * kv_size, v_.data() + row * kv_size);
      Attend(q_.data() + row * q_size, cache, cache.num_rows(), attention_.data() + row * q_size);
    }
  }
  Multiply(weights.attention_out, attention_.data(), num_rows_, hidden_.data(), true);
}

void Eagle3Layer::Rotate(float* heads, int32_t num_heads, int32_t position) const {
  const llm::RopeSpec& rope = spec().ropes[0];
  const int32_t half = rope.dim / 2;
  for (int32_t i = 0; i < half; ++i) {
    const float angle = static_cast<float>(position) * rope.inv_freq[i];
    const float cosine = std::cos(angle) * rope.magnitude;
    const float sine = std::sin(angle) * rope.magnitude;
    for (int32_t head = 0; head < num_heads; ++head) {
      float& low = heads[int64_t{head} * spec().head_dim + i];
      float& high = heads[int64_t{head} * spec().head_dim + half + i];
      const float first = low * cosine - high * sine;
      high = high * cosine + low * sine;
      low = first;
    }
  }
}

void Eagle3Layer::Attend(const float* q, const Cache& cache, int32_t num_rows, float* out) {
  const int32_t dim = spec().head_dim;
  const int32_t group = spec().num_heads / spec().num_kv_heads;
  scores_.resize(num_rows);
  for (int32_t head = 0; head < spec().num_heads; ++head) {
    const int64_t offset = int64_t{head / group} * dim;
    float max = -INFINITY;
    for (int32_t row = 0; row < num_rows; ++row) {
      scores_[row] =
          Dot(q + int64_t{head} * dim, cache.key(row) + offset, dim) * spec().attention_scale;
      max = std::max(max, scores_[row]);
    }
    float sum = 0.0f;
    for (float& score : scores_) sum += score = std::exp(score - max);
    float* const to = out + int64_t{head} * dim;
    std::fill_n(to, dim, 0.0f);
    for (int32_t row = 0; row < num_rows; ++row) {
      const float weight = scores_[row] / sum;
      const float* const value = cache.value(row) + offset;
      for (int32_t i = 0; i < dim; ++i) to[i] += weight * value[i];
    }
  }
}

void Eagle3Layer::RunMlp() {
  const LayerWeights& weights = weights_.layers[0];
  const int64_t size = spec().hidden_size, inner = spec().intermediate_size;
  Norm(weights.pre_mlp_norm.weight, hidden_.data(), num_rows_, normed_.data(), size);
  gate_.resize(num_rows_ * inner);
  up_.resize(num_rows_ * inner);
  Multiply(weights.mlp.gate, normed_.data(), num_rows_, gate_.data());
  Multiply(weights.mlp.up, normed_.data(), num_rows_, up_.data());
  ops_.activation({ActivationKind::kSilu, gate_.data(), up_.data(), num_rows_ * inner});
  Multiply(weights.mlp.down, gate_.data(), num_rows_, hidden_.data(), true);
}

void Eagle3Layer::Norm(const std::vector<float>& weight, const float* in, int64_t num_rows,
                       float* out, int64_t out_stride) {
  const int64_t size = spec().hidden_size;
  ops_.rms_norm(
      {in, size, weight.data(), spec().norm.epsilon, num_rows, size, out, out_stride, false});
}

void Eagle3Layer::Multiply(const Linear& linear, const float* in, int64_t num_rows, float* out,
                           bool accumulate) {
  products_.Multiply(linear, in, num_rows, out, linear.weights.rows, accumulate);
}

}  // namespace nereid::cpu
