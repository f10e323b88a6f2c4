// The weights of a decoder in device memory. q, k and v are one matrix; gate and up are one matrix
// whose rows alternate in groups of 8 (kernels/rows/activation.h). Matrices keep the checkpoint's
// format bf16, fp8 or int4. All other weights are bf16, norm weights with their offset added.
// Immutable after load. [any thread]
//
// The weights of some layers may stay in pinned host memory: their pointers are those of a device
// buffer, where WeightStream copies them before the layer runs.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/kernels/gemm/weight_format.h"
#include "backends/gpu_llm/model/matrix_source.h"
#include "backends/gpu_llm/model/sharding.h"
#include "backends/gpu_llm/model/weight_stream.h"
#include "backends/llm_core/model/architecture.h"
#include "nereid/status.h"

namespace nereid::gpu {

struct GpuMatrix : WeightMatrix {
  // Applied to the input before the product (kernels/gemm/gemm_input.h): [depth]; null: none.
  const int32_t* column_order = nullptr;
  const float* input_scale = nullptr;

  bool gathers() const { return column_order != nullptr || input_scale != nullptr; }
};

struct GpuNorm {
  const __nv_bfloat16* weight = nullptr;  // [hidden_size]; null: no norm
  const __nv_bfloat16* bias = nullptr;    // [hidden_size]; null: none
};

// The same matrix of every expert, consecutive, in the same format. In fp8 the scales of its rows
// and blocks lie behind each matrix.
struct GpuExperts {
  GpuMatrix first;              // of expert 0
  int64_t stride_bytes = 0;     // from one expert to the next
  int64_t stride_elements = 0;  // the same, of bf16
};

struct GpuLayer {
  GpuNorm input_norm, post_attention_norm, pre_mlp_norm, post_mlp_norm;
  GpuMatrix qkv;                            // [q_size + 2 * kv_size, hidden_size]
  const __nv_bfloat16* qkv_bias = nullptr;  // [q_size + 2 * kv_size]; null: none
  const __nv_bfloat16* q_norm = nullptr;    // [head_dim]; null: none
  const __nv_bfloat16* k_norm = nullptr;
  GpuMatrix attention_out;                            // [hidden_size, q_size]
  const __nv_bfloat16* attention_out_bias = nullptr;  // [hidden_size]; null: none
  // Without experts. Without a gate, `gate_up` is up alone: [intermediate_size, hidden_size].
  GpuMatrix gate_up;                            // [2 * intermediate_size, hidden_size]
  const __nv_bfloat16* gate_up_bias = nullptr;  // one value for each row; null: none
  GpuMatrix down;                               // [hidden_size, intermediate_size]
  const __nv_bfloat16* down_bias = nullptr;     // [hidden_size]; null: none
  // With experts.
  const __nv_bfloat16* router = nullptr;  // [num_experts, hidden_size]
  GpuExperts expert_gate_up, expert_down;
};

struct GpuWeights {
  const __nv_bfloat16* token_embedding = nullptr;     // [vocab_size, hidden_size]
  const __nv_bfloat16* position_embedding = nullptr;  // [max_positions, hidden_size]; null: none
  GpuNorm final_norm;
  // [PaddedVocabulary(vocab_size), hidden_size], padding rows are zero; with several GPUs this
  // GPU's rows
  GpuMatrix lm_head;
  const __nv_bfloat16* lm_head_bias = nullptr;  // [vocab_size]; null: none
  // Of an EAGLE-3 head alone. Its q, k and v have 2 * hidden_size columns.
  GpuMatrix feature_projection;  // [hidden_size, hidden states of the target's layers]
  GpuNorm feature_norm;
  std::vector<GpuLayer> layers;
  DeviceMemory memory;
  std::unique_ptr<WeightStream> stream;  // of layers in host memory; null: there are none

  // The matrices that LinearRunner multiplies by.
  std::vector<const GpuMatrix*> matrices() const;
  // Products with fp8 weights read them converted and do not quantize their input, as the portable
  // kernels need it.
  void KeepInputsInBf16();
};

// Calls visit with each pointer of the layer to weights of any type, by reference.
template <typename Visit>
void VisitPointers(GpuLayer& layer, Visit visit) {
  for (GpuNorm* norm :
       {&layer.input_norm, &layer.post_attention_norm, &layer.pre_mlp_norm, &layer.post_mlp_norm}) {
    visit(norm->weight);
    visit(norm->bias);
  }
  for (const __nv_bfloat16** pointer :
       {&layer.qkv_bias, &layer.q_norm, &layer.k_norm, &layer.attention_out_bias,
        &layer.gate_up_bias, &layer.down_bias, &layer.router}) {
    visit(*pointer);
  }
  for (GpuMatrix* matrix : {&layer.qkv, &layer.attention_out, &layer.gate_up, &layer.down,
                            &layer.expert_gate_up.first, &layer.expert_down.first}) {
    visit(matrix->data);
    visit(matrix->row_scales);
    visit(matrix->block_scales);
    visit(matrix->column_order);
    visit(matrix->input_scale);
  }
}

// UNSUPPORTED names the feature of the decoder that this backend does not support.
Status CheckGpuSupport(const llm::DecoderModel& model);

// Loads to the current device. Several threads read the checkpoint; with `dummy` the device
// generates the weights, and model.weights may be empty. model.spec is this GPU's shard of the
// decoder, and `sharding` locates it in the whole weights. `resident_fraction`: of the layers, that
// stay in device memory; the others are spread evenly among them.
Result<GpuWeights> LoadGpuWeights(const llm::DecoderModel& model, const Sharding& sharding,
                                  const std::optional<DummyWeights>& dummy,
                                  double resident_fraction = 1.0);

// The same for an EAGLE-3 head. head.spec.vocab_size is that of its own LM head; `embedding_rows`:
// of its own embedding, 0: it has none, and token_embedding is null.
Result<GpuWeights> LoadHeadWeights(const llm::DecoderModel& head, int64_t feature_size,
                                   int64_t embedding_rows);

}  // namespace nereid::gpu
