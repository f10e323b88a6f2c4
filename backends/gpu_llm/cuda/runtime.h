// CUDA's return codes as Status, and attributes of a device. A sticky error (illegal access, launch
// failure) is reported by a later, unrelated call; the message names the call that reported it.
// [any thread]
#pragma once

#include <cuda_runtime_api.h>

#include "nereid/status.h"

namespace nereid::gpu {

inline Status CudaStatus(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return {};
  return InternalError("CUDA: ", call, ": ", cudaGetErrorName(error), " (",
                       cudaGetErrorString(error), ")");
}

}  // namespace nereid::gpu

#define NEREID_RETURN_IF_CUDA_ERROR(call) \
  NEREID_RETURN_IF_ERROR(::nereid::gpu::CudaStatus((call), #call))

namespace nereid::gpu {

inline Result<int> DeviceAttribute(cudaDeviceAttr attribute, int device) {
  int value = 0;
  NEREID_RETURN_IF_CUDA_ERROR(cudaDeviceGetAttribute(&value, attribute, device));
  return value;
}

}  // namespace nereid::gpu
