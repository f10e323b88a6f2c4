// A mixture of experts in place of the MLP of a layer: routes rows to experts, multiplies them by
// those, and sums what they make. [engine thread]
#pragma once

#include <cstdint>

#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/model/gpu_weights.h"
#include "backends/gpu_llm/operator_timer.h"
#include "backends/llm_core/model/decoder_spec.h"
#include "nereid/status.h"

namespace nereid::gpu {

struct ExpertsCall {
  const GpuLayer* weights = nullptr;
  const __nv_bfloat16* in = nullptr;  // [num_tokens, hidden_size], normed
  // Room of the decoder, which it uses at other times: of Experts::GateUpBytes(), and of pairs of
  // token and expert x moe.intermediate_size.
  const DeviceMemory* gate_up = nullptr;
  const DeviceMemory* gated = nullptr;
  int32_t* ticket = nullptr;     // 0, before and after
  __nv_bfloat16* out = nullptr;  // [num_tokens, hidden_size]: the sums; `gate_up` may be it
  bool accumulates = false;      // they are added to what is there
  int num_tokens = 0;
  OperatorTimer* timer = nullptr;  // null: nothing is timed
};

class Experts {
 public:
  Experts() = default;
  // Nothing where the model has none. `spec` is borrowed. `is_invariant`: a row's result does not
  // depend on how many there are.
  static Result<Experts> Create(const llm::DecoderSpec& spec, int32_t max_num_tokens,
                                bool is_invariant);
  // Elements of the inner rows of experts in a step of so many tokens.
  static int64_t InnerElements(const llm::DecoderSpec& spec, int64_t num_tokens);
  static int64_t GateUpBytes(const llm::DecoderSpec& spec, int64_t num_tokens);

  void Run(const ExpertsCall& call, cudaStream_t stream) const;
  int64_t memory_bytes() const {
    return static_cast<int64_t>(made_.size_bytes() + routes_.size_bytes());
  }

 private:
  struct Layout;
  // Which experts the rows go to, their shares, and the pairs by expert.
  void Route(const ExpertsCall& call, const Layout& layout, cudaStream_t stream) const;
  // The product of rows of pairs with each one's expert.
  void Multiply(const char* name, const ExpertsCall& call, const Layout& layout,
                const GpuExperts& matrices, bool is_down, cudaStream_t stream) const;
  bool Gates() const;

  const llm::DecoderSpec* spec_ = nullptr;
  bool is_invariant_ = false;
  DeviceMemory made_;    // [pairs, hidden_size]: what experts make, by place
  DeviceMemory routes_;  // Layout: experts, shares, pairs, places: [pairs] words each; tiles
};

}  // namespace nereid::gpu
