// Runs Medusa heads on the GPU of their model: residual blocks, LM heads and the search for the
// most likely tokens, for all sequences of a step together. The model's hidden states stay on the
// device. [engine thread]
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backends/gpu_llm/companion_memory.h"
#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/cuda/stream.h"
#include "backends/gpu_llm/kernel_form.h"
#include "backends/gpu_llm/model/gpu_weights.h"
#include "backends/gpu_llm/model/hidden_states.h"
#include "backends/gpu_llm/model/linear.h"
#include "backends/llm_core/model/decoder_spec.h"
#include "backends/llm_core/speculation/medusa_heads.h"
#include "backends/llm_core/speculation/medusa_weights.h"
#include "nereid/status.h"

namespace nereid::gpu {

struct MedusaOptions {
  int32_t device = 0;
  int32_t num_kept_rows = 0;  // sequences
  // --- of the model, all borrowed ---
  llm::NormSpec norm;
  GpuNorm final_norm;
  const GpuMatrix* lm_head = nullptr;  // for heads that share it
  const __nv_bfloat16* lm_head_bias = nullptr;
  // Returns what keeps the output of the last layer alone; null: nothing does yet.
  std::function<const HiddenStates*()> captured;
  cudaStream_t stream = nullptr;
};

// Gives Medusa heads that use the LM head of `target` a copy of the whole matrix, because each GPU
// has only a part of it where the model is divided. UNSUPPORTED: the LM head has a bias.
Status TakeLmHead(const llm::DecoderModel& target, llm::MedusaWeights& heads);

class DeviceMedusaHeads : public llm::MedusaHeads {
 public:
  // The checkpoint of the heads is borrowed during the call. MemoryOfMedusaHeads() says what they
  // take. UNAVAILABLE: no memory.
  static Result<std::unique_ptr<DeviceMedusaHeads>> Create(const llm::MedusaWeights& heads,
                                                           const MedusaOptions& options);
  ~DeviceMedusaHeads() override;
  int32_t num_heads() const override { return num_heads_; }
  llm::HiddenStatePlace place() const override { return llm::HiddenStatePlace::kDevice; }
  void Keep(const llm::HiddenRows& rows, std::span<const int32_t> kept) override {
    kept_.Keep(rows, kept);
  }
  Status FinishKeeping() override;
  Status Run(std::span<const int32_t> rows, int32_t num_heads, int32_t num_tokens,
             std::vector<llm::SampledToken>& tokens) override;

 private:
  DeviceMedusaHeads(const llm::MedusaWeights& heads, const MedusaOptions& options);
  Status Load(const llm::MedusaWeights& heads);
  Status AllocateBuffers();
  // Computes the rows of the store that row_list_ begins with, at most kMedusaRows.
  Status Launch(int32_t num_rows, int32_t num_heads, int32_t num_tokens);
  // Computes the inputs of the LM heads.
  Status RunBlocks(int32_t num_rows, int32_t num_heads);
  Status RunHead(int32_t head, int32_t num_rows, int32_t num_tokens);
  Status Multiply(const GpuMatrix& matrix, const __nv_bfloat16* in, GemmEpilogue output, void* out,
                  int32_t num_rows, const char* name);
  int64_t hidden_size() const { return hidden_size_; }
  const GpuMatrix& lm_head_of(int32_t head) const {
    return shares_lm_head_ ? *options_.lm_head : lm_heads_[static_cast<size_t>(head)];
  }
  __nv_bfloat16* states_of(int32_t head) const {
    return states_.as<__nv_bfloat16>() + head * kMedusaRows * hidden_size();
  }

  const MedusaOptions options_;
  const int32_t num_heads_, num_blocks_;  // num_blocks_: of a head
  const int64_t hidden_size_;
  const int32_t vocab_size_;  // of the heads
  const bool shares_lm_head_;
  const std::vector<int32_t> target_ids_;  // [vocab_size_]; empty: the heads' ids are the target's
  DeviceMemory weights_;
  // The first blocks of all heads, which read the same rows: [num_heads * hidden_size,
  // hidden_size].
  GpuMatrix first_blocks_;
  const __nv_bfloat16* first_biases_ = nullptr;
  struct Block {
    GpuMatrix matrix;
    const __nv_bfloat16* bias = nullptr;  // null: none
  };
  std::vector<std::vector<Block>> later_blocks_;  // of each head
  std::vector<GpuMatrix> lm_heads_;               // with padding rows
  std::optional<LinearRunner> linear_;
  KeptHiddenStates kept_;  // [num_kept_rows, hidden_size]
  DeviceMemory normed_;    // [kMedusaRows, hidden_size]
  DeviceMemory products_;  // [kMedusaRows, num_heads * hidden_size]
  DeviceMemory states_;    // [num_heads, kMedusaRows, hidden_size]
  DeviceMemory logits_;    // [kMedusaRows, padded vocabulary]
  DeviceMemory rank_partials_, rank_tickets_;
  PinnedMemory row_list_;       // [kMedusaRows]
  PinnedMemory ranked_tokens_;  // [num_heads, kMedusaRows, kMaxRankedTokens] ids, then log probs
};

}  // namespace nereid::gpu
