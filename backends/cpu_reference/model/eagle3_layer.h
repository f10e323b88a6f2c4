// Runs an EAGLE-3 head on the CPU. [engine thread]
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/cpu_reference/model/cpu_weights.h"
#include "backends/cpu_reference/model/linear_products.h"
#include "backends/cpu_reference/ops/op_table.h"
#include "backends/cpu_reference/thread_pool.h"
#include "backends/llm_core/checkpoint/checkpoint.h"
#include "backends/llm_core/speculation/draft_head.h"
#include "backends/llm_core/speculation/eagle3_head.h"
#include "nereid/status.h"

namespace nereid::cpu {

class Eagle3Layer : public llm::DraftHead {
 public:
  // `target`: the checkpoint of the model, whose embedding serves a head without its own. Keeps
  // both checkpoints, because weights point into them.
  // `num_threads` as for ChooseNumThreads.
  static Result<std::unique_ptr<Eagle3Layer>> Create(
      std::shared_ptr<const llm::Checkpoint> checkpoint, llm::Eagle3Head head,
      std::shared_ptr<const llm::Checkpoint> target, const llm::DecoderModel& target_model,
      int32_t num_threads);

  int32_t feature_size() const override {
    return static_cast<int32_t>(weights_.feature_projection.weights.columns);
  }
  int32_t hidden_size() const override { return spec().hidden_size; }
  int32_t vocab_size() const override { return spec().vocab_size; }
  int32_t max_positions() const override { return spec().max_positions; }
  std::span<const int32_t> target_ids() const override { return head_.target_ids; }
  std::unique_ptr<llm::HeadCache> MakeCache() const override;
  Status Run(std::span<llm::HeadEntry> entries) override;

 private:
  // The rows of a sequence: keys, then values, of all heads.
  class Cache;

  Eagle3Layer(std::shared_ptr<const llm::Checkpoint> checkpoint, llm::Eagle3Head head,
              std::shared_ptr<const llm::Checkpoint> target, CpuWeights weights,
              float embedding_scale, int32_t num_threads);
  const llm::DecoderSpec& spec() const { return head_.model.spec; }
  // Fills hidden_ and inputs_ with the rows of all entries.
  void Embed(std::span<const llm::HeadEntry> entries);
  void RunAttention(std::span<const llm::HeadEntry> entries);
  void Rotate(float* heads, int32_t num_heads, int32_t position) const;
  // Attention of one row over the cache's first `num_rows` rows.
  void Attend(const float* q, const Cache& cache, int32_t num_rows, float* out);
  void RunMlp();
  void Norm(const std::vector<float>& weight, const float* in, int64_t num_rows, float* out,
            int64_t out_stride);
  void Multiply(const Linear& linear, const float* in, int64_t num_rows, float* out,
                bool accumulate = false);

  const std::shared_ptr<const llm::Checkpoint> checkpoint_;
  const std::shared_ptr<const llm::Checkpoint> target_;
  const llm::Eagle3Head head_;
  const CpuWeights weights_;
  const float embedding_scale_;
  const OpTable& ops_;
  ThreadPool pool_;
  LinearProducts products_;

  int64_t num_rows_ = 0;
  std::vector<float> hidden_;     // [num_rows, hidden_size]: the residual
  std::vector<float> inputs_;     // [num_rows, 2 * hidden_size]
  std::vector<float> normed_;     // [num_rows, hidden_size]
  std::vector<float> q_, k_, v_;  // [num_rows, heads * head_dim]
  std::vector<float> attention_;  // [num_rows, q_size]
  std::vector<float> gate_, up_;  // [num_rows, intermediate_size]
  std::vector<float> last_;       // [entries, hidden_size], normed
  std::vector<float> logits_;     // [entries, draft_vocab_size]
  std::vector<float> scores_;     // of one head
};

}  // namespace nereid::cpu
