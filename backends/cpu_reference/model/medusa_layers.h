// Runs Medusa heads on the CPU. [engine thread]
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
#include "backends/llm_core/speculation/medusa_heads.h"
#include "backends/llm_core/speculation/medusa_weights.h"
#include "nereid/status.h"

namespace nereid::cpu {

class MedusaLayers : public llm::MedusaHeads {
 public:
  // `target`: the checkpoint of the model, whose final norm the heads need, and whose lm_head
  // serves heads without their own. Keeps both checkpoints, because weights point into them.
  // `num_threads` as for ChooseNumThreads.
  static Result<std::unique_ptr<MedusaLayers>> Create(
      std::shared_ptr<const llm::Checkpoint> checkpoint, llm::MedusaWeights heads,
      std::shared_ptr<const llm::Checkpoint> target, const llm::DecoderModel& target_model,
      int32_t num_threads);

  int32_t num_heads() const override { return heads_.num_heads; }
  llm::HiddenStatePlace place() const override { return llm::HiddenStatePlace::kHost; }
  void Keep(const llm::HiddenRows& rows, std::span<const int32_t> kept) override;
  Status Run(std::span<const int32_t> rows, int32_t num_heads, int32_t num_tokens,
             std::vector<llm::SampledToken>& tokens) override;

 private:
  MedusaLayers(std::shared_ptr<const llm::Checkpoint> checkpoint, llm::MedusaWeights heads,
               std::shared_ptr<const llm::Checkpoint> target, CpuWeights weights,
               CpuWeights target_weights, const llm::DecoderSpec& target_spec, int32_t num_threads);
  // Fills normed_ with the target's final norm of these rows of the store.
  void NormRows(std::span<const int32_t> rows);
  // Fills logits_ with the logits of one head for the rows of normed_.
  void RunHead(int32_t head, int64_t num_rows);
  void Multiply(const Linear& linear, const float* in, int64_t num_rows, float* out);

  const std::shared_ptr<const llm::Checkpoint> checkpoint_;
  const std::shared_ptr<const llm::Checkpoint> target_;
  const llm::MedusaWeights heads_;
  const CpuWeights weights_;
  const CpuWeights target_weights_;  // the final norm, and the lm_head if the heads share it
  const llm::NormSpec norm_;
  const int64_t hidden_size_;
  const OpTable& ops_;
  ThreadPool pool_;
  LinearProducts products_;

  std::vector<std::vector<float>> kept_;  // by row of the store
  std::vector<float> normed_;             // [num_rows, hidden_size]
  std::vector<float> hidden_;             // [num_rows, hidden_size]: of one head
  std::vector<float> block_;              // [num_rows, hidden_size]
  std::vector<float> logits_;             // [num_rows, draft_vocab_size]
};

}  // namespace nereid::cpu
