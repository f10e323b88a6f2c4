// Launcher of the experts' GEMM for many rows.
#include "backends/gpu_llm/kernels/gemm/expert_gemm.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "backends/gpu_llm/kernel_registry.h"
#include "backends/gpu_llm/kernels/device/tensor_map.h"
#include "backends/gpu_llm/kernels/gemm/expert_gemm.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {
namespace {

using namespace expert_gemm;

static_assert(kStageRowBytes == kTensorMapRowBytes);

template <typename Format, int kMaxRows>
cudaError_t EncodeMaps(TensorMaps<kMaxRows>& maps, const ExpertGemmParams& p) {
  const WeightMatrix& weights = p.weights;
  const int64_t row_bytes = int64_t{weights.depth} * Format::kElementBytes;
  cudaError_t error = cudaSuccess;
  if (!Format::kUnpacks) {
    error = EncodeTensorMap<3>(
        maps.weights, weights.data, Format::kElementBytes,
        {weights.depth, weights.num_outputs, p.num_experts},
        {row_bytes, std::max(p.stride_bytes, row_bytes * weights.num_outputs)}, kOutputs);
  }
  for (int i = 0; error == cudaSuccess && i < kMaxRows / kRowStep; ++i) {
    error = EncodeTensorMap<2>(maps.in[i], p.in, Format::kElementBytes, {weights.depth, p.num_rows},
                               {row_bytes}, (i + 1) * kRowStep / kCluster);
  }
  return error;
}

template <typename Format, int kMaxRows>
cudaError_t LaunchFor(const ExpertGemmParams& p, int num_processors, cudaStream_t stream) {
  constexpr int kShared = StageShape<Format, kMaxRows>::kSharedBytes;
  static_assert(kShared <= 226 * 1024);
  const auto kernel = ExpertGemmKernel<Format, kMaxRows>;
  cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  TensorMaps<kMaxRows> maps = {};
  if (error == cudaSuccess) error = EncodeMaps<Format>(maps, p);
  if (error != cudaSuccess) return error;
  // At most so many items: an expert's last part may be short.
  const int64_t parts = p.num_rows / kMaxRows + std::min(p.num_rows, p.num_experts);
  const int64_t items = parts * ((p.weights.num_outputs + kItemOutputs - 1) / kItemOutputs);
  std::array<cudaLaunchAttribute, 2> attributes = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {kCluster, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = static_cast<unsigned>(num_processors / kCluster * kCluster);
  config.blockDim = kThreads;
  config.dynamicSmemBytes = kShared;
  config.stream = stream;
  config.attrs = attributes.data();
  config.numAttrs = attributes.size();
  // Clusters that run at the same time; a further one would take its items when all others are
  // done. Assumes that all devices of the process are equal.
  static std::atomic<int> active = 0;
  if (active == 0) {
    int count = 0;
    error = cudaOccupancyMaxActiveClusters(&count, kernel, &config);
    if (error != cudaSuccess) return error;
    active = std::max(1, count);
  }
  config.gridDim = static_cast<unsigned>(kCluster * std::min<int64_t>(items, active));
  return cudaLaunchKernelEx(&config, kernel, maps, p);
}

}  // namespace

cudaError_t ExpertGemm(const ExpertGemmParams& params, int num_processors, cudaStream_t stream) {
  if (params.num_rows == 0) return cudaSuccess;
  if (params.output != GemmEpilogue::kFloat &&
      !CanRunExpertGemm(KernelForm::kNative, params.weights)) {
    return cudaErrorInvalidValue;
  }
  const int tile_rows = ExpertGemmTile(KernelForm::kNative, params.num_rows, params.num_experts);
  const bool has_blocks = params.weights.block_scales != nullptr;
  // With block scales, 256 rows of an expert are faster as two items: the kernel for larger ones
  // spills registers.
  const bool is_large =
      tile_rows == 256 && !(has_blocks && params.num_rows <= int64_t{256} * params.num_experts);
  const auto launch = [&]<typename Format>(Format) {
    return is_large ? LaunchFor<Format, 256>(params, num_processors, stream)
                    : LaunchFor<Format, 128>(params, num_processors, stream);
  };
  switch (params.weights.format) {
    case WeightFormat::kBf16:
      return launch(Bf16Format());
    case WeightFormat::kFp8:
      return has_blocks ? launch(Fp8BlocksFormat()) : launch(Fp8Format());
    case WeightFormat::kInt4:
      return launch(Int4Format());
  }
  return cudaErrorInvalidValue;
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
