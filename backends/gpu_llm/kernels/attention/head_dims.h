// The head sizes that the attention kernels are compiled for.
#pragma once

#include <type_traits>

#include "backends/gpu_llm/kernels/device/policy.cuh"

namespace nereid::gpu::NEREID_KERNEL_FORM {

// Calls `launch` with the head size as a constant. Does nothing for another size, which the checks
// of a model refuse.
template <typename LaunchForHeadDim>
void ForHeadDim(int head_dim, const LaunchForHeadDim& launch) {
  switch (head_dim) {
    case 16:
      return launch(std::integral_constant<int, 16>());
    case 32:
      return launch(std::integral_constant<int, 32>());
    case 64:
      return launch(std::integral_constant<int, 64>());
    case 80:
      return launch(std::integral_constant<int, 80>());
    case 96:
      return launch(std::integral_constant<int, 96>());
    case 128:
      return launch(std::integral_constant<int, 128>());
    case 256:
      return launch(std::integral_constant<int, 256>());
  }
}

}  // namespace nereid::gpu::NEREID_KERNEL_FORM
