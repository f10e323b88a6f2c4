// Memory of GPUs, through the CUDA driver that is found at run time: one build serves machines with
// and without. [any thread]
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "nereid/status.h"

namespace nereid::scripted {

// CUipcMemHandle: names an allocation to other processes.
using GpuHandle = std::array<char, 64>;

class CudaDriver {
 public:
  // Null without a driver or a GPU.
  static const CudaDriver* Get();

  // UNAVAILABLE when it is full.
  Result<std::byte*> Allocate(int64_t device, size_t size_bytes) const;
  void Free(int64_t device, std::byte* base) const;
  // Of an allocation of this process.
  Result<GpuHandle> Export(int64_t device, std::byte* base) const;
  // Of another process; `size_bytes` gets the size of the allocation.
  Result<std::byte*> Open(int64_t device, const GpuHandle& handle, size_t* size_bytes) const;
  void Close(int64_t device, std::byte* base) const;
  // Either may be memory of the host. Returns when it is done.
  Status Copy(int64_t device, void* target, const void* source, size_t size_bytes) const;

 private:
  struct Functions;
  class Entered;
  CudaDriver();
  Status Check(int code, const char* what, int64_t device) const;

  std::unique_ptr<Functions> functions_;
  int num_devices_ = 0;
  mutable std::mutex mutex_;             // guards what follows
  mutable std::vector<void*> contexts_;  // by device; null until it is first used
};

}  // namespace nereid::scripted
