// The weights of a decoder in device memory: q, k and v as one matrix, gate and up as one whose
// rows alternate in groups of 8 (silu_gate.h); matrices as the checkpoint has them, bf16, fp8 or
// int4, all else bf16. Immutable after load. [any thread]
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "gpu_llm/cuda/memory.h"
#include "gpu_llm/kernels/weight_format.h"
#include "llm_core/model/architecture.h"
#include "nereid/status.h"

namespace nereid::gpu {

struct GpuMatrix : WeightMatrix {
  // Of the input, before the product (gather_columns.h): [depth]; null: as it is.
  const int32_t* column_order = nullptr;
  const float* input_scale = nullptr;

  bool gathers() const { return column_order != nullptr || input_scale != nullptr; }
};

struct GpuLayer {
  const __nv_bfloat16* input_norm = nullptr;  // [hidden_size]
  GpuMatrix qkv;                              // [q_size + 2 * kv_size, hidden_size]
  const __nv_bfloat16* qkv_bias = nullptr;    // [q_size + 2 * kv_size]; null: none
  const __nv_bfloat16* q_norm = nullptr;      // [head_dim]; null: none
  const __nv_bfloat16* k_norm = nullptr;
  GpuMatrix attention_out;                      // [hidden_size, q_size]
  const __nv_bfloat16* pre_mlp_norm = nullptr;  // [hidden_size]
  GpuMatrix gate_up;                            // [2 * intermediate_size, hidden_size]
  GpuMatrix down;                               // [hidden_size, intermediate_size]
};

struct GpuWeights {
  const __nv_bfloat16* token_embedding = nullptr;  // [vocab_size, hidden_size]
  const __nv_bfloat16* final_norm = nullptr;
  GpuMatrix lm_head;  // [vocab_size, hidden_size]
  std::vector<GpuLayer> layers;
  DeviceMemory memory;

  std::vector<const GpuMatrix*> matrices() const;
};

// Weights that are made up: matrices of the layers in this format.
struct DummyWeights {
  uint64_t seed = 1;
  WeightFormat format = WeightFormat::kBf16;
};

// UNSUPPORTED names what of the decoder this backend does not run.
Status CheckGpuSupport(const llm::DecoderModel& model);

// Reads the checkpoint's bytes with several threads; or, with `dummy`, makes weights up on the
// device, and model.weights may be empty. To the current device.
Result<GpuWeights> LoadGpuWeights(const llm::DecoderModel& model,
                                  const std::optional<DummyWeights>& dummy);

}  // namespace nereid::gpu
