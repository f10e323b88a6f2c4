// RAII owners of device memory and of pinned host memory. Move-only. [any thread]
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "backends/gpu_llm/cuda/runtime.h"
#include "nereid/status.h"

namespace nereid::gpu {

// Device memory, aligned to 256 bytes.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  // `what` names the buffer in the out-of-memory error.
  static Result<DeviceMemory> Allocate(size_t size_bytes, const char* what) {
    DeviceMemory memory;
    if (size_bytes == 0) return memory;
    if (cudaMalloc(&memory.data_, size_bytes) != cudaSuccess) {
      (void)cudaGetLastError();
      memory.data_ = nullptr;
      size_t free_bytes = 0, total_bytes = 0;
      (void)cudaMemGetInfo(&free_bytes, &total_bytes);
      return UnavailableError("out of GPU memory: ", what, " needs ", size_bytes, " bytes, ",
                              free_bytes, " of ", total_bytes, " are free");
    }
    memory.size_bytes_ = size_bytes;
    return memory;
  }
  DeviceMemory(DeviceMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }
  ~DeviceMemory() {
    if (data_ != nullptr) (void)cudaFree(data_);
  }

  void* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  size_t size_bytes_ = 0;
};

// Pinned host memory that the device can access directly.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  static Result<PinnedMemory> Allocate(size_t size_bytes) {
    PinnedMemory memory;
    NEREID_RETURN_IF_CUDA_ERROR(
        cudaHostAlloc(&memory.data_, size_bytes, cudaHostAllocMapped | cudaHostAllocPortable));
    memory.size_bytes_ = size_bytes;
    return memory;
  }
  PinnedMemory(PinnedMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }
  ~PinnedMemory() {
    if (data_ != nullptr) (void)cudaFreeHost(data_);
  }

  size_t size_bytes() const { return size_bytes_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  size_t size_bytes_ = 0;
};

}  // namespace nereid::gpu
