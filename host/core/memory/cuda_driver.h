// The CUDA driver, opened by dlopen when it is first asked for, so that one build serves machines
// with and without it. A device's primary context is entered for each call and kept until the
// process ends. [any thread]
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "nereid/status.h"

namespace nereid {

class CudaDriver {
 public:
  // Null without a driver or without a device.
  static const CudaDriver* Get();

  // Ids, ascending from 0.
  const std::vector<int32_t>& devices() const { return devices_; }
  // Major and minor compute capability; 0.0 where the driver does not tell.
  struct Capability {
    int32_t major = 0, minor = 0;
  };
  Capability CapabilityOf(int32_t device) const;
  // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"; empty where the driver does not tell.
  std::string UuidOf(int32_t device) const;

  // UNAVAILABLE when there is no room. `device` is one of devices().
  Result<void*> AllocateOnDevice(int32_t device, size_t byte_size) const;
  void FreeOnDevice(int32_t device, void* buffer) const;
  // Page-locked host memory that every device may access.
  Result<void*> AllocatePinned(size_t byte_size) const;
  void FreePinned(void* buffer) const;
  struct MemoryUse {
    uint64_t free_bytes = 0, total_bytes = 0;
  };
  Result<MemoryUse> MemoryUseOf(int32_t device) const;

  // From any memory to any other, `device` being one of those involved; returns when the bytes are
  // there. Work that was put on streams before is not waited for.
  Status Copy(int32_t device, void* to, const void* from, size_t byte_size) const;
  // `device` may use the memory of `peer` directly from now on. UNSUPPORTED where it cannot.
  Status EnablePeerAccess(int32_t device, int32_t peer) const;

 private:
  struct Functions;
  class Entered;
  struct Device;
  CudaDriver();
  ~CudaDriver() = delete;  // drivers end with the process
  Status CheckDevice(int32_t device) const;
  std::string ErrorText(int code) const;

  Functions* functions_ = nullptr;
  std::vector<int32_t> devices_;
  std::vector<std::unique_ptr<Device>> contexts_;  // by device
};

}  // namespace nereid
