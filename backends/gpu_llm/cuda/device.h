// What CUDA says of a device. [any thread]
#pragma once

#include <cuda_runtime_api.h>

#include "backends/gpu_llm/cuda/error.h"
#include "nereid/status.h"

namespace nereid::gpu {

inline Result<int> DeviceAttribute(cudaDeviceAttr attribute, int device) {
  int value = 0;
  NEREID_RETURN_IF_CUDA_ERROR(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}

}  // namespace nereid::gpu
