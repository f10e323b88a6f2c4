// Runs steps of few decoding sequences in one launch (kernels/step/decode_step.h), for the models
// of which kernel_registry.h says so. [engine thread]
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/gpu_llm/cuda/memory.h"
#include "backends/gpu_llm/kernel_registry.h"
#include "backends/gpu_llm/kernels/attention/cache_layout.h"
#include "backends/gpu_llm/kernels/step/decode_step.h"
#include "backends/gpu_llm/model/gpu_weights.h"
#include "backends/gpu_llm/model/rope_tables.h"
#include "backends/gpu_llm/step_plan.h"
#include "backends/llm_core/model/decoder_spec.h"
#include "nereid/status.h"

namespace nereid::gpu {

class DecodeStepRunner {
 public:
  // No runner if the model is not supported. If the model is supported but the device cannot start
  // the kernel, `refusal` is the reason.
  struct CreateResult;
  static Result<CreateResult> Create(const llm::DecoderSpec& spec, const GpuWeights& weights,
                                     const RopeTables& rope_tables, KernelMode mode,
                                     CacheFormat cache_format, int num_processors);
  DecodeStepRunner(DecodeStepRunner&&) noexcept = default;
  DecodeStepRunner& operator=(DecodeStepRunner&&) noexcept = default;

  // Which decode steps it runs.
  const FusedSteps& steps() const { return steps_; }
  // Whether the step is one of steps(), and only decodes and samples a token for each row.
  bool CanRun(const StepShape& shape) const;
  // `buffers` has the fields "Buffers of the step" of DecodeStepParams.
  Status Run(const StepShape& shape, const int32_t* words, const DecodeStepParams& buffers,
             cudaStream_t stream) const;
  // Copies the hidden states that the last Run, which had this shape and these buffers, gave to
  // each of `layers` as input. Those of one token lie side by side in a row of `out`, in their
  // order.
  Status CopyHiddenStates(std::span<const int32_t> layers, const StepShape& shape,
                          const DecodeStepParams& buffers, __nv_bfloat16* out,
                          cudaStream_t stream) const;
  size_t memory_bytes() const {
    return layers_.size_bytes() + exchange_.size_bytes() + state_.size_bytes();
  }

 private:
  DecodeStepRunner() = default;

  DecodeStepParams model_ = {};  // the fields that are equal in all steps
  DeviceMemory layers_, exchange_, state_;
  FusedSteps steps_;
  int num_processors_ = 0;
};

struct DecodeStepRunner::CreateResult {
  std::optional<DecodeStepRunner> runner;
  std::string refusal;
};

}  // namespace nereid::gpu
