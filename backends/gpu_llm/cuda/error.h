// CUDA's return codes as Status. A sticky error (an illegal access, a launch failure) shows up at
// the next call, whichever that is: the message names the call that reported it. [any thread]
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
