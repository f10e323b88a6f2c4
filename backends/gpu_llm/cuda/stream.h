// RAII owners of streams, events and executable graphs. Move-only. [any thread]
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include "backends/gpu_llm/cuda/runtime.h"
#include "nereid/status.h"

namespace nereid::gpu {

template <typename Handle, cudaError_t (*Destroy)(Handle)>
class CudaHandle {
 public:
  CudaHandle() = default;
  explicit CudaHandle(Handle handle) : handle_(handle) {}
  CudaHandle(CudaHandle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  CudaHandle& operator=(CudaHandle&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~CudaHandle() {
    if (handle_ != nullptr) (void)Destroy(handle_);
  }
  Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  Handle handle_ = nullptr;
};

using Stream = CudaHandle<cudaStream_t, cudaStreamDestroy>;
using Event = CudaHandle<cudaEvent_t, cudaEventDestroy>;
using Graph = CudaHandle<cudaGraphExec_t, cudaGraphExecDestroy>;

// `is_urgent`: highest priority, so that its kernels start before pending kernels of other streams.
inline Result<Stream> MakeStream(bool is_urgent = false) {
  int least = 0, greatest = 0;
  NEREID_RETURN_IF_CUDA_ERROR(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t stream = nullptr;
  NEREID_RETURN_IF_CUDA_ERROR(
      cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, is_urgent ? greatest : least));
  return Stream(stream);
}

inline Result<Event> MakeEvent(unsigned flags = cudaEventDisableTiming) {
  cudaEvent_t event = nullptr;
  NEREID_RETURN_IF_CUDA_ERROR(cudaEventCreateWithFlags(&event, flags));
  return Event(event);
}

}  // namespace nereid::gpu
