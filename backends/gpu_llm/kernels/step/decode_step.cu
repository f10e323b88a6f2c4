// Dispatches to the kernel of the weight format.
#include <algorithm>

#include "backends/gpu_llm/kernels/step/decode_step.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {

bool FitsDecodeStep(const DecodeStepSizes& sizes) {
  int device = 0, cooperates = 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&cooperates, cudaDevAttrCooperativeLaunch, device) != cudaSuccess ||
      cooperates == 0) {
    return false;
  }
  switch (sizes.format) {
    case WeightFormat::kBf16:
      return DecodeStepFitsBf16(sizes);
    case WeightFormat::kFp8:
      return DecodeStepFitsFp8(sizes);
    case WeightFormat::kInt4:
      return DecodeStepFitsInt4(sizes);
  }
  return false;
}

void RunDecodeStep(const DecodeStepParams& params, int num_processors, cudaStream_t stream) {
  switch (params.format) {
    case WeightFormat::kBf16:
      return DecodeStepBf16(params, num_processors, stream);
    case WeightFormat::kFp8:
      return DecodeStepFp8(params, num_processors, stream);
    case WeightFormat::kInt4:
      return DecodeStepInt4(params, num_processors, stream);
  }
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
