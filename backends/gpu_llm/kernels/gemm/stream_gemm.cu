// Dispatches to the kernel of the weight format.
#include "backends/gpu_llm/kernels/gemm/stream_gemm.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {

bool CanStream(const WeightMatrix& weights, int num_rows, bool norms) {
  using namespace stream_gemm;
  const int step = weights.format == WeightFormat::kInt4 ? 8 : 32;
  if (num_rows > kStreamMaxRows || weights.num_outputs % kTileOutputs != 0 ||
      weights.depth % step != 0) {
    return false;
  }
  const StreamGemmPlan plan = weights.format == WeightFormat::kBf16
                                  ? PlanFor<WeightFormat::kBf16>(weights, num_rows, norms)
                              : weights.format == WeightFormat::kFp8
                                  ? PlanFor<WeightFormat::kFp8>(weights, num_rows, norms)
                                  : PlanFor<WeightFormat::kInt4>(weights, num_rows, norms);
  // For bf16 weights, an input that does not fit is left to cuBLASLt, which is as fast then.
  return plan.num_stages >= 2 && (plan.in_shared || weights.format != WeightFormat::kBf16);
}

void StreamGemm(const StreamGemmParams& params, int num_processors, cudaStream_t stream) {
  switch (params.weights.format) {
    case WeightFormat::kBf16:
      return StreamGemmBf16(params, num_processors, stream);
    case WeightFormat::kFp8:
      return StreamGemmFp8(params, num_processors, stream);
    case WeightFormat::kInt4:
      return StreamGemmInt4(params, num_processors, stream);
  }
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
