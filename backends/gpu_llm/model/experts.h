// A mixture of experts in place of a layer's MLP: routes rows to experts, multiplies the rows by
// the experts' matrices, and combines the outputs. [engine thread]
#pragma once

#include <cstdint>

#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/kernel_registry.h"
#include "backends/gpu_llm/kernels/rows/moe.h"
#include "backends/gpu_llm/model/gpu_weights.h"
#include "backends/gpu_llm/operator_timer.h"
#include "backends/llm_core/model/decoder_spec.h"
#include "nereid/status.h"

namespace nereid::gpu {

struct ExpertsCall {
  const GpuLayer* weights = nullptr;
  const __nv_bfloat16* in = nullptr;           // [num_tokens, hidden_size]
  const __nv_bfloat16* norm_weight = nullptr;  // RMS norm of `in` first; null: none
  __nv_bfloat16* normed = nullptr;             // [num_tokens, hidden_size], with a norm
  // Scratch buffers of the decoder: gate_up has Experts::GateUpBytes(), gated has [pairs of token
  // and expert, moe.intermediate_size].
  const DeviceMemory* gate_up = nullptr;
  const DeviceMemory* gated = nullptr;
  int32_t* ticket = nullptr;     // counter of finished blocks, 0 before and after
  __nv_bfloat16* out = nullptr;  // [num_tokens, hidden_size]: combined outputs; may be `gate_up`
  bool accumulates = false;      // out += outputs
  // The norm that follows, whose rows are written to `normed` with `out`; null: none.
  const __nv_bfloat16* next_norm_weight = nullptr;
  int num_tokens = 0;
  OperatorTimer* timer = nullptr;  // null: no profile
};

class Experts {
 public:
  Experts() = default;
  // Allocates nothing for a model without experts. `spec` is borrowed. `is_batch_invariant`: a
  // row's result does not depend on the number of rows.
  static Result<Experts> Create(const llm::DecoderSpec& spec, const GpuWeights& weights,
                                int32_t max_num_tokens, int num_processors,
                                bool is_batch_invariant);
  // Elements of the experts' inner rows in a step of `num_tokens` tokens.
  static int64_t InnerElements(const llm::DecoderSpec& spec, int64_t num_tokens);
  static int64_t GateUpBytes(const llm::DecoderSpec& spec, int64_t num_tokens);

  Status Run(const ExpertsCall& call, cudaStream_t stream) const;
  int64_t memory_bytes() const {
    return static_cast<int64_t>(expert_outputs_.size_bytes() + routes_.size_bytes() +
                                counts_.size_bytes() + fp8_rows_.size_bytes() +
                                fp8_scales_.size_bytes());
  }

 private:
  struct RouteBufferLayout;
  // Norms the rows, selects their experts and router weights, and sorts the pairs by expert.
  Status Route(const ExpertsCall& call, const RouteBufferLayout& layout, cudaStream_t stream) const;
  // Norm, scores and selection in a kernel each, without the sort.
  Status RouteManyRows(const RouteParams& route, cudaStream_t stream) const;
  // Copies the rows of the pairs to sorted order, for ExpertKernel::kExpertGemm.
  void SortRows(const ExpertsCall& call, const RouteBufferLayout& layout,
                cudaStream_t stream) const;
  // Multiplies the rows of the pairs by their experts' matrices.
  Status Multiply(const char* name, const ExpertsCall& call, const RouteBufferLayout& layout,
                  const GpuExperts& matrices, bool is_down, cudaStream_t stream) const;
  // The same with ExpertKernel::kExpertGemm.
  Status MultiplySorted(const ExpertsCall& call, const RouteBufferLayout& layout,
                        const GpuExperts& matrices, bool is_down, void* out,
                        cudaStream_t stream) const;
  bool Gates() const;
  // ExpertRowsParams::first_rows
  int32_t* first_rows() const { return counts_.as<int32_t>() + counts_.size_bytes() / 8; }

  const llm::DecoderSpec* spec_ = nullptr;
  int num_processors_ = 0;
  KernelForm form_ = KernelForm::kNative;
  KernelMode mode_ = KernelMode::kFastest;
  // [pairs, hidden_size], in sorted order. Before the down product, sorted input rows.
  DeviceMemory expert_outputs_;
  // RouteBufferLayout: experts, router_weights, pairs, sorted_index: [pairs] words each; then
  // tiles.
  DeviceMemory routes_;
  // [2, num_experts + 1]: ExpertRowsParams::counts, then first_rows.
  DeviceMemory counts_;
  DeviceMemory fp8_rows_;    // [tokens, hidden_size], if matrices are fp8
  DeviceMemory fp8_scales_;  // of rows: [tokens], then [pairs] in sorted order
};

}  // namespace nereid::gpu
