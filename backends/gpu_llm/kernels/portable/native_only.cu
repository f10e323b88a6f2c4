// Portable form of the kernels that only Hopper has so far. Callers ask the predicates first or,
// for mixtures of experts and several GPUs, refuse the model when it is loaded
// (model/gpu_weights.cc), so that the other functions are not called.
#include "backends/gpu_llm/kernels/comm/all_reduce.h"
#include "backends/gpu_llm/kernels/gemm/expert_gemm.h"
#include "backends/gpu_llm/kernels/gemm/gemm.h"
#include "backends/gpu_llm/kernels/gemm/stream_experts.h"
#include "backends/gpu_llm/kernels/rows/expert_rows.h"
#include "backends/gpu_llm/kernels/rows/moe.h"
#include "backends/gpu_llm/kernels/step/decode_step.h"

namespace nereid::gpu::NEREID_KERNEL_FORM {

bool CanSplit(const WeightMatrix&) {
  return false;
}
cudaError_t SplitGemm(const SplitGemmParams&, cudaStream_t) {
  return cudaErrorNotSupported;
}

bool CanRunDecodeStep(const DecodeStepParams&, int) {
  return false;
}
void RunDecodeStep(const DecodeStepParams&, int, cudaStream_t) {}
cudaError_t TryDecodeStep(const DecodeStepParams&, int, cudaStream_t) {
  return cudaErrorNotSupported;
}

bool CanRunExpertGemm(const WeightMatrix&) {
  return false;
}
cudaError_t ExpertGemm(const ExpertGemmParams&, int, cudaStream_t) {
  return cudaErrorNotSupported;
}
cudaError_t StreamExperts(const StreamExpertsParams&, int, cudaStream_t) {
  return cudaErrorNotSupported;
}
cudaError_t Route(const RouteParams&, const SortPairsParams&, int32_t*, cudaStream_t) {
  return cudaErrorNotSupported;
}
void SortPairs(const SortPairsParams&, cudaStream_t) {}
void SelectExperts(const RouteParams&, cudaStream_t) {}
void Combine(const CombineParams&, cudaStream_t) {}
void SortExpertRows(const ExpertRowsParams&, cudaStream_t) {}

int64_t MaxOneShotElements() {
  return 0;
}
void AllReduce(const Peers&, int64_t, AllReduceTarget, AllReduceAlgorithm, cudaStream_t) {}
void AllReduceNorm(const Peers&, const AllReduceNormParams&, AllReduceAlgorithm, cudaStream_t) {}
void GatherLogits(const Peers&, const float*, int, int64_t, int64_t, int64_t, cudaStream_t) {}
void BroadcastTokens(const Peers&, int, cudaStream_t) {}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
