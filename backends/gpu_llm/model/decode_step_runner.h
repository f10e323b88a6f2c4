// Steps of few decoding sequences in one launch (kernels/step/decode_step.h), for plain decoders:
// RMS norms, gated SiLU, rope, matrices of one format, one GPU. [engine thread]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/gpu_llm/cuda/memory.h"
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
  // No runner where the kernel is not for this model; where it is, but the device does not start
  // it, `refusal` says why.
  struct Made;
  static Result<Made> Create(const llm::DecoderSpec& spec, const GpuWeights& weights,
                             const RopeTables& rope_tables, CacheFormat cache_format,
                             int num_processors);
  DecodeStepRunner(DecodeStepRunner&&) noexcept = default;
  DecodeStepRunner& operator=(DecodeStepRunner&&) noexcept = default;

  // A decode step of so many rows.
  static bool CanRun(const StepShape& shape);
  // `buffers`: what DecodeStepParams says the step works in.
  Status Run(const StepShape& shape, const int32_t* words, const DecodeStepParams& buffers,
             cudaStream_t stream) const;
  size_t memory_bytes() const {
    return layers_.size_bytes() + exchange_.size_bytes() + state_.size_bytes();
  }

 private:
  DecodeStepRunner() = default;

  DecodeStepParams model_ = {};  // what is the same in all steps
  DeviceMemory layers_, exchange_, state_;
  int num_processors_ = 0;
};

struct DecodeStepRunner::Made {
  std::optional<DecodeStepRunner> runner;
  std::string refusal;
};

}  // namespace nereid::gpu
