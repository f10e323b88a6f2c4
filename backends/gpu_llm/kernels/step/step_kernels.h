// The kernels of fused decode steps for one format of weights and one of the cache. Each pair is
// compiled in a file of its own.
#pragma once

#include "backends/gpu_llm/kernels/step/decode_step.h"

namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step {

template <WeightFormat kFormat, CacheFormat kCache>
struct StepKernels {
  static bool Fit(const DecodeStepSizes& sizes);
  static void Launch(const DecodeStepParams& params, int num_processors, cudaStream_t stream);
};

}  // namespace nereid::gpu::NEREID_KERNEL_FORM::decode_step
