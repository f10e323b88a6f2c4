// Dispatches to the kernel of the weight format.
#include <algorithm>

#include "backends/gpu_llm/kernels/step/decode_step.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {

bool CanRunDecodeStep(const DecodeStepParams& p, int num_processors) {
  using namespace decode_step;
  const int q_size = p.num_heads * p.head_dim, kv_size = p.num_kv_heads * p.head_dim;
  int device = 0, cooperates = 0;
  if ((p.format == WeightFormat::kInt4 && p.scales_per_block != 1) || num_processors < 1 ||
      p.num_heads / p.num_kv_heads > kMaxGroup || (q_size + 2 * kv_size) % kTileOutputs != 0 ||
      p.hidden_size % 32 != 0 || p.inner_size % 32 != 0 || q_size % 32 != 0 ||
      p.head_outputs % kTileOutputs != 0 || p.num_experts > kDecodeStepMaxExperts ||
      p.experts_per_token > kDecodeStepRowExperts || p.experts_per_token > p.num_experts ||
      p.expert_inner_size % 32 != 0 || cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&cooperates, cudaDevAttrCooperativeLaunch, device) != cudaSuccess ||
      cooperates == 0) {
    return false;
  }
  switch (p.format) {
    case WeightFormat::kBf16:
      return DecodeStepFitsBf16(p);
    case WeightFormat::kFp8:
      return DecodeStepFitsFp8(p);
    case WeightFormat::kInt4:
      return DecodeStepFitsInt4(p);
  }
  return false;
}

int DecodeStepRows(const DecodeStepParams& p) {
  return p.num_experts > 0 && p.format == WeightFormat::kBf16 ? decode_step::kMaxBf16ExpertRows
                                                              : kDecodeStepRows;
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
  trial.head_outputs = std::min(trial.head_outputs, decode_step::kTileOutputs);
  (void)cudaGetLastError();
  RunDecodeStep(trial, num_processors, stream);
  return cudaGetLastError();
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
