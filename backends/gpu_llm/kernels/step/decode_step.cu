// Dispatches to the kernels of the formats of weights and cache.
#include <algorithm>

#include "backends/gpu_llm/kernels/step/step_kernels.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

// Calls `use` with the kernels of the formats.
template <WeightFormat kFormat, typename Use>
auto DispatchCache(CacheFormat cache, const Use& use) {
  using decode_step::StepKernels;
  switch (cache) {
    case CacheFormat::kFp8:
      return use(StepKernels<kFormat, CacheFormat::kFp8>());
    case CacheFormat::kInt8:
      return use(StepKernels<kFormat, CacheFormat::kInt8>());
    case CacheFormat::kBf16:
      break;
  }
  return use(StepKernels<kFormat, CacheFormat::kBf16>());
}
template <typename Use>
auto DispatchFormats(WeightFormat format, CacheFormat cache, const Use& use) {
  switch (format) {
    case WeightFormat::kFp8:
      return DispatchCache<WeightFormat::kFp8>(cache, use);
    case WeightFormat::kInt4:
      return DispatchCache<WeightFormat::kInt4>(cache, use);
    case WeightFormat::kBf16:
      break;
  }
  return DispatchCache<WeightFormat::kBf16>(cache, use);
}

}  // namespace

bool FitsDecodeStep(const DecodeStepSizes& sizes) {
  int device = 0, cooperates = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&cooperates, cudaDevAttrCooperativeLaunch, device) != cudaSuccess ||
      cooperates == 0) {
    return false;
  }
  return DispatchFormats(sizes.format, sizes.cache_format,
                         [&](auto kernels) { return decltype(kernels)::Fit(sizes); });
}

void RunDecodeStep(const DecodeStepParams& params, int num_processors, cudaStream_t stream) {
  DispatchFormats(params.format, params.cache_format,
                  [&](auto kernels) { decltype(kernels)::Launch(params, num_processors, stream); });
}

cudaError_t TryDecodeStep(const DecodeStepParams& params, int num_processors, cudaStream_t stream) {
  DecodeStepParams trial = params;
  trial.num_layers = trial.num_rows = trial.num_items = 0;
  trial.head_outputs = std::min(trial.head_outputs, kDecodeStepTileOutputs);
  (void)cudaGetLastError();
  RunDecodeStep(trial, num_processors, stream);
  return cudaGetLastError();
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
