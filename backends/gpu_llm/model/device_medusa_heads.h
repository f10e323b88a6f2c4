// Runs Medusa heads on the GPU of their model: residual blocks, LM heads and the likeliest tokens
// of all sequences of a step together. The model's hidden states stay on the device. [engine
// thread]
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
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
#include "nereid/status.h"

namespace nereid::gpu {

// The weights of a head in the checkpoint, borrowed. MemoryOfMedusaHeads() says what they take.
struct MedusaHeadSource {
  struct Block {
    const llm::ResolvedWeight* weight = nullptr;  // [hidden_size, hidden_size]
    const llm::ResolvedWeight* bias = nullptr;    // [hidden_size]
  };
  std::vector<Block> blocks;                     // as many as every other head has
  const llm::ResolvedWeight* lm_head = nullptr;  // [vocab_size, hidden_size]
};

struct MedusaOptions {
  int32_t device = 0;
  int32_t num_kept_rows = 0;  // sequences
  // --- of the model, all borrowed ---
  const llm::DecoderSpec* spec = nullptr;
  GpuNorm final_norm;
  // Keeps the output of the last layer alone.
  const HiddenStates* captured = nullptr;
  cudaStream_t stream = nullptr;
};

class DeviceMedusaHeads : public llm::MedusaHeads {
 public:
  // The heads' vocabulary and hidden size are those of the model. UNAVAILABLE: no memory.
  static Result<std::unique_ptr<DeviceMedusaHeads>> Create(std::span<const MedusaHeadSource> heads,
                                                           const MedusaOptions& options);
  ~DeviceMedusaHeads() override;
  int32_t num_heads() const override { return static_cast<int32_t>(lm_heads_.size()); }
  llm::HiddenStatePlace place() const override { return llm::HiddenStatePlace::kDevice; }
  void Keep(const llm::HiddenRows& rows, std::span<const int32_t> kept) override;
  Status FinishKeeping() override;
  Status Run(std::span<const int32_t> rows, int32_t num_heads, int32_t num_tokens,
             std::vector<llm::SampledToken>& tokens) override;

 private:
  DeviceMedusaHeads(size_t num_heads, size_t num_blocks, const MedusaOptions& options);
  Status Load(std::span<const MedusaHeadSource> heads);
  Status AllocateBuffers();
  // Computes rows_[0, num_rows) of the store, at most kMedusaRows.
  Status Launch(int32_t num_rows, int32_t num_heads, int32_t num_tokens);
  // The inputs of the LM heads.
  Status RunBlocks(int32_t num_rows, int32_t num_heads);
  Status RunHead(int32_t head, int32_t num_rows, int32_t num_tokens);
  Status Multiply(const GpuMatrix& matrix, const __nv_bfloat16* in, GemmEpilogue output, void* out,
                  int32_t num_rows, const char* name);
  int64_t hidden_size() const { return options_.spec->hidden_size; }
  __nv_bfloat16* states_of(int32_t head) const {
    return states_.as<__nv_bfloat16>() + head * kMedusaRows * hidden_size();
  }

  const MedusaOptions options_;
  DeviceMemory weights_;
  // The first blocks of all heads, which read the same rows: [num_heads * hidden_size,
  // hidden_size].
  GpuMatrix first_blocks_;
  const __nv_bfloat16* first_biases_ = nullptr;
  struct Block {
    GpuMatrix matrix;
    const __nv_bfloat16* bias = nullptr;
  };
  std::vector<std::vector<Block>> later_blocks_;  // of each head
  std::vector<GpuMatrix> lm_heads_;               // with padding rows
  const size_t num_blocks_;                       // of a head
  std::optional<LinearRunner> linear_;
  DeviceMemory kept_;      // [num_kept_rows, hidden_size]
  DeviceMemory normed_;    // [kMedusaRows, hidden_size]
  DeviceMemory products_;  // [kMedusaRows, num_heads * hidden_size]
  DeviceMemory states_;    // [num_heads, kMedusaRows, hidden_size]
  DeviceMemory logits_;    // [kMedusaRows, padded vocabulary]
  DeviceMemory argmax_partials_, argmax_tickets_, log_sums_;
  DeviceMemory argmax_tokens_;  // where ArgMax writes: ids, log probabilities, slots and a 0
  PinnedMemory row_list_;       // [kMedusaRows]
  PinnedMemory top_tokens_;     // [num_heads, kMedusaRows, kMaxTopTokens] ids, then log probs
  std::vector<int32_t> keep_from_, keep_to_;
  PinnedMemory keep_lists_;  // both lists of a copy that runs
  Event kept_done_;
};

}  // namespace nereid::gpu
