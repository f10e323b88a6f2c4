// Kernel launches, with programmatic dependent launch where the form has it: the kernel may begin
// while the previous one ends, and calls WaitForPrevious() before it touches memory of other
// kernels. Errors are reported by cudaGetLastError().
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "backends/gpu_llm/kernels/device/policy.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {

template <typename... Parameters, typename... Arguments>
void Launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared_bytes,
            cudaStream_t stream, Arguments&&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = kUsesDependentLaunch ? 1 : 0;
  (void)cudaLaunchKernelEx(&config, kernel,
                           static_cast<Parameters>(std::forward<Arguments>(arguments))...);
}

// Launches a grid of `num_blocks` blocks in clusters of `cluster` blocks.
template <typename... Parameters, typename... Arguments>
void LaunchInClusters(void (*kernel)(Parameters...), int cluster, int num_blocks, int threads,
                      cudaStream_t stream, Arguments&&... arguments) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = static_cast<unsigned>(num_blocks);
  config.blockDim = static_cast<unsigned>(threads);
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = 2;
  (void)cudaLaunchKernelEx(&config, kernel,
                           static_cast<Parameters>(std::forward<Arguments>(arguments))...);
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
