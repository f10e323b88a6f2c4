// Runs an EAGLE-3 head on the GPU of its model: one layer of a Decoder, with KV blocks of its own.
// [engine thread]
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/cuda/stream.h"
#include "backends/gpu_llm/kernels/forms.h"
#include "backends/gpu_llm/model/decoder.h"
#include "backends/gpu_llm/model/gpu_weights.h"
#include "backends/gpu_llm/step_plan.h"
#include "backends/llm_core/engine/batch.h"
#include "backends/llm_core/engine/block_pool.h"
#include "backends/llm_core/speculation/draft_head.h"
#include "backends/llm_core/speculation/eagle3_head.h"
#include "nereid/status.h"

namespace nereid::gpu {

struct Eagle3LayerOptions {
  int32_t device = 0;
  KernelForm form = KernelForm::kNative;  // that the device runs
  int32_t num_blocks = 0;                 // KV blocks
  int32_t max_num_entries = 64;           // of one launch; more are run one after the other
  int32_t max_positions = 0;              // 0: the head's own limit
  // The target's, for a head that has none. Borrowed from its executor, which outlives every Run.
  const __nv_bfloat16* token_embedding = nullptr;
  float embedding_scale = 1.0f;  // of that embedding
};

class Eagle3Layer : public llm::DraftHead {
 public:
  // Rows that one launch computes.
  static constexpr int32_t kMaxRows = 2048;

  // The checkpoint that head.model.weights points into is not needed afterwards. UNSUPPORTED names
  // what this backend does not have.
  static Result<std::unique_ptr<Eagle3Layer>> Create(llm::Eagle3Head head,
                                                     const Eagle3LayerOptions& options);
  ~Eagle3Layer() override;

  // Bytes of a KV block of the head.
  static int64_t BlockBytes(const llm::Eagle3Head& head);

  int32_t feature_size() const override { return weights_.feature_projection.depth; }
  int32_t hidden_size() const override { return spec_.hidden_size; }
  int32_t vocab_size() const override { return vocab_size_; }
  int32_t max_positions() const override { return spec_.max_positions; }
  std::span<const int32_t> target_ids() const override { return target_ids_; }
  std::unique_ptr<llm::HeadCache> MakeCache() const override;
  Status Run(std::span<llm::HeadEntry> entries) override;

 private:
  class Cache;

  Eagle3Layer(const llm::Eagle3Head& head, const Eagle3LayerOptions& options,
              int32_t num_processors);
  Status Initialize(const llm::Eagle3Head& head);
  // Runs these entries in one launch.
  Status Launch(std::span<llm::HeadEntry* const> entries);
  // Sets batch_ to the rows of the entries.
  void FillBatch(std::span<llm::HeadEntry* const> entries);
  // Converts the hidden states of the entries to the layout of staged_ and copies them. Those of
  // the target come first.
  Status UploadHidden(std::span<llm::HeadEntry* const> entries, Decoder::HeadInputs& inputs);
  Status ReadResults(std::span<llm::HeadEntry* const> entries, const StepShape& shape);

  const Eagle3LayerOptions options_;
  llm::DecoderSpec spec_;     // vocab_size: of the head's own LM head
  const int32_t vocab_size_;  // of the target
  const std::vector<int32_t> target_ids_;
  const bool norm_before_residual_;
  const int32_t num_processors_;
  StepPlanner planner_;
  Stream stream_;
  GpuWeights weights_;
  std::optional<Decoder> decoder_;
  // Shared with the caches, which may live longer.
  std::shared_ptr<llm::BlockPool> blocks_;
  DeviceMemory words_, features_, own_;
  PinnedMemory host_words_, staged_;
  PinnedMemory host_hidden_, host_logits_;  // results of a launch
  llm::StepBatch batch_;                    // scratch memory
};

}  // namespace nereid::gpu
