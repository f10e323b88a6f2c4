// The weights of a decoder in device memory, all bf16: q, k and v as one matrix, gate and up as one
// whose rows alternate in groups of 8 (silu_gate.h). Immutable after load. [any thread]
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "gpu_llm/cuda/memory.h"
#include "llm_core/model/architecture.h"
#include "nereid/status.h"

namespace nereid::gpu {

struct GpuLayer {
  const __nv_bfloat16* input_norm = nullptr;  // [hidden_size]
  const __nv_bfloat16* qkv = nullptr;         // [q_size + 2 * kv_size, hidden_size]
  const __nv_bfloat16* qkv_bias = nullptr;    // [q_size + 2 * kv_size]; null: none
  const __nv_bfloat16* q_norm = nullptr;      // [head_dim]; null: none
  const __nv_bfloat16* k_norm = nullptr;
  const __nv_bfloat16* attention_out = nullptr;  // [hidden_size, q_size]
  const __nv_bfloat16* pre_mlp_norm = nullptr;   // [hidden_size]
  const __nv_bfloat16* gate_up = nullptr;        // [2 * intermediate_size, hidden_size]
  const __nv_bfloat16* down = nullptr;           // [hidden_size, intermediate_size]
};

struct GpuWeights {
  const __nv_bfloat16* token_embedding = nullptr;  // [vocab_size, hidden_size]
  const __nv_bfloat16* final_norm = nullptr;
  const __nv_bfloat16* lm_head = nullptr;  // [vocab_size, hidden_size]
  std::vector<GpuLayer> layers;
  DeviceMemory memory;
};

// UNSUPPORTED names what of the decoder this backend does not run.
Status CheckGpuSupport(const llm::DecoderModel& model);

// Reads the checkpoint's bytes with several threads; or, with `dummy_seed`, makes weights up on the
// device, and model.weights may be empty. To the current device.
Result<GpuWeights> LoadGpuWeights(const llm::DecoderModel& model,
                                  std::optional<uint64_t> dummy_seed);

}  // namespace nereid::gpu
