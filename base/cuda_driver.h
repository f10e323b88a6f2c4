// The CUDA driver API, loaded with dlopen on first use, so that one build runs on machines with and
// without a driver. Each call makes the device's primary context current, which other libraries use
// too. The context is retained until the process ends. [any thread]
#pragma once

#include <dlfcn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <vector>

#include "nereid/status.h"

namespace nereid {

class CudaDriver {
 public:
  // Null if this machine has no driver or no device.
  static const CudaDriver* Get() {
    static const CudaDriver* const driver = new CudaDriver;  // never destroyed
    return driver->devices_.empty() ? nullptr : driver;
  }

  // Device ids, ascending from 0.
  const std::vector<int32_t>& devices() const { return devices_; }
  // Major and minor compute capability; 0.0 if the driver does not return it.
  struct Capability {
    int32_t major = 0, minor = 0;
  };
  Capability CapabilityOf(int32_t device) const;
  // "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"; empty if the driver does not return it.
  std::string UuidOf(int32_t device) const;

  // UNAVAILABLE if there is not enough free memory. `device` is one of devices().
  Result<void*> AllocateOnDevice(int64_t device, size_t byte_size) const;
  void FreeOnDevice(int64_t device, void* buffer) const;
  // Page-locked host memory that every device can access.
  Result<void*> AllocatePinned(size_t byte_size) const;
  void FreePinned(void* buffer) const;
  struct MemoryUse {
    uint64_t free_bytes = 0, total_bytes = 0;
  };
  Result<MemoryUse> MemoryUseOf(int64_t device) const;

  // Memory that grows without moving: a range of virtual addresses is reserved first, then physical
  // memory is mapped into it chunk by chunk. UNSUPPORTED if the driver cannot do that. All sizes
  // are multiples of the device's granularity in bytes.
  Result<size_t> GranularityOf(int64_t device) const;
  Result<void*> ReserveAddresses(int64_t device, size_t byte_size) const;
  void FreeAddresses(int64_t device, void* base, size_t byte_size) const;
  // Allocates memory and maps it at address `at`, with access for this device only. Returns the
  // handle that UnmapMemory takes.
  Result<uint64_t> MapMemory(int64_t device, void* at, size_t byte_size) const;
  void UnmapMemory(int64_t device, void* at, size_t byte_size, uint64_t handle) const;

  // Copies between any two kinds of memory and returns when the copy is complete. `device` is one
  // of the devices involved. The copy does not wait for work that was queued on streams before.
  Status Copy(int64_t device, void* to, const void* from, size_t byte_size) const;
  // Lets `device` access the memory of `peer` directly. UNSUPPORTED if the hardware cannot.
  Status EnablePeerAccess(int64_t device, int64_t peer) const;

  // A CUipcMemHandle or cudaIpcMemHandle_t: identifies an allocation in other processes.
  using IpcHandle = std::array<char, 64>;
  // The handle of an allocation of this process.
  Result<IpcHandle> ExportIpcHandle(int64_t device, void* buffer) const;
  struct IpcMapping {
    std::byte* base = nullptr;
    size_t size_bytes = 0;  // from `base` to the end of the allocation
  };
  // Maps an allocation of another process until CloseIpcHandle.
  Result<IpcMapping> OpenIpcHandle(int64_t device, const IpcHandle& handle) const;
  void CloseIpcHandle(int64_t device, void* base) const;

 private:
  // The part of the driver's ABI that is used here: CUdeviceptr and enumerators.
  using DevicePointer = unsigned long long;
  static constexpr int kCapabilityMajor = 75;
  static constexpr int kCapabilityMinor = 76;
  static constexpr unsigned kPortable = 1;        // CU_MEMHOSTALLOC_PORTABLE
  static constexpr unsigned kNonBlocking = 1;     // CU_STREAM_NON_BLOCKING
  static constexpr unsigned kLazyPeerAccess = 1;  // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
  static constexpr int kAlreadyEnabled = 704;     // CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED
  struct Uuid {
    std::array<unsigned char, 16> bytes;
  };
  struct Location {  // CUmemLocation
    int type = 1;    // CU_MEM_LOCATION_TYPE_DEVICE
    int id = 0;
  };
  struct Allocation {  // CUmemAllocationProp
    int type = 1;      // CU_MEM_ALLOCATION_TYPE_PINNED
    int handle_types = 0;
    Location location;
    void* metadata = nullptr;
    std::array<unsigned char, 8> flags{};
  };
  struct Access {  // CUmemAccessDesc
    Location location;
    int flags = 3;  // CU_MEM_ACCESS_FLAGS_PROT_READWRITE
  };
  struct Functions;
  struct VirtualMemoryFunctions;
  class ScopedContext;
  // Created when the device is first used.
  struct Device {
    std::mutex mutex;  // guards the members below
    void* context = nullptr;
    void* stream = nullptr;  // for copies
  };

  inline CudaDriver();
  ~CudaDriver() = delete;  // the object lives until the process ends
  Status CheckDevice(int64_t device) const;
  std::string ErrorText(int code) const;
  static DevicePointer ToDevice(const void* pointer) {
    return reinterpret_cast<DevicePointer>(pointer);
  }

  Functions* functions_ = nullptr;
  VirtualMemoryFunctions* virtual_memory_ = nullptr;  // null: the driver lacks these functions
  std::vector<int32_t> devices_;
  std::vector<std::unique_ptr<Device>> contexts_;  // by device
};

struct CudaDriver::Functions {
  int (*init)(unsigned);
  int (*count)(int*);
  int (*attribute)(int*, int, int);
  int (*uuid)(Uuid*, int);
  int (*error_name)(int, const char**);
  int (*retain)(void**, int);
  int (*push)(void*);
  int (*pop)(void**);
  int (*allocate)(DevicePointer*, size_t);
  int (*free)(DevicePointer);
  int (*allocate_host)(void**, size_t, unsigned);
  int (*free_host)(void*);
  int (*memory_info)(size_t*, size_t*);
  int (*new_stream)(void**, unsigned);
  int (*copy)(DevicePointer, DevicePointer, size_t, void*);
  int (*wait)(void*);
  int (*can_access)(int*, int, int);
  int (*enable_peer)(void*, unsigned);
  int (*address_range)(DevicePointer*, size_t*, DevicePointer);
  int (*ipc_export)(IpcHandle*, DevicePointer);
  int (*ipc_open)(DevicePointer*, IpcHandle, unsigned);
  int (*ipc_close)(DevicePointer);

  bool Load(void* library) {
    const auto load = [library](const char* name, auto& function) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    return load("cuInit", init) && load("cuDeviceGetCount", count) &&
           load("cuDeviceGetAttribute", attribute) && load("cuDeviceGetUuid", uuid) &&
           load("cuGetErrorName", error_name) && load("cuDevicePrimaryCtxRetain", retain) &&
           load("cuCtxPushCurrent_v2", push) && load("cuCtxPopCurrent_v2", pop) &&
           load("cuMemAlloc_v2", allocate) && load("cuMemFree_v2", free) &&
           load("cuMemHostAlloc", allocate_host) && load("cuMemFreeHost", free_host) &&
           load("cuMemGetInfo_v2", memory_info) && load("cuStreamCreate", new_stream) &&
           load("cuMemcpyAsync", copy) && load("cuStreamSynchronize", wait) &&
           load("cuDeviceCanAccessPeer", can_access) &&
           load("cuCtxEnablePeerAccess", enable_peer) &&
           load("cuMemGetAddressRange_v2", address_range) &&
           load("cuIpcGetMemHandle", ipc_export) && load("cuIpcOpenMemHandle_v2", ipc_open) &&
           load("cuIpcCloseMemHandle", ipc_close);
  }
};

// Functions of CUDA 10.2 and later.
struct CudaDriver::VirtualMemoryFunctions {
  int (*granularity)(size_t*, const Allocation*, int);
  int (*reserve)(DevicePointer*, size_t, size_t, DevicePointer, unsigned long long);
  int (*free)(DevicePointer, size_t);
  int (*create)(unsigned long long*, size_t, const Allocation*, unsigned long long);
  int (*release)(unsigned long long);
  int (*map)(DevicePointer, size_t, size_t, unsigned long long, unsigned long long);
  int (*unmap)(DevicePointer, size_t);
  int (*set_access)(DevicePointer, size_t, const Access*, size_t);

  bool Load(void* library) {
    const auto load = [library](const char* name, auto& function) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    return load("cuMemGetAllocationGranularity", granularity) &&
           load("cuMemAddressReserve", reserve) && load("cuMemAddressFree", free) &&
           load("cuMemCreate", create) && load("cuMemRelease", release) && load("cuMemMap", map) &&
           load("cuMemUnmap", unmap) && load("cuMemSetAccess", set_access);
  }
};

// Makes a device's primary context current on the calling thread while the object lives.
class CudaDriver::ScopedContext {
 public:
  ScopedContext(const CudaDriver& driver, int64_t device)
      : functions_(*driver.functions_), device_(*driver.contexts_[static_cast<size_t>(device)]) {
    {
      const std::lock_guard lock(device_.mutex);
      if (device_.context == nullptr) {
        code_ = functions_.retain(&device_.context, static_cast<int>(device));
      }
      if (code_ != 0) device_.context = nullptr;
    }
    if (code_ == 0) code_ = functions_.push(device_.context);
  }
  ~ScopedContext() {
    void* popped = nullptr;
    if (code_ == 0) functions_.pop(&popped);
  }
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;

  // 0, or the error because of which the context is not current.
  int code() const { return code_; }
  void* context() const { return device_.context; }
  int Stream(void** stream) {
    const std::lock_guard lock(device_.mutex);
    int code = 0;
    if (device_.stream == nullptr) code = functions_.new_stream(&device_.stream, kNonBlocking);
    *stream = device_.stream;
    return code;
  }

 private:
  const Functions& functions_;
  Device& device_;
  int code_ = 0;
};

inline CudaDriver::CudaDriver() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  functions_ = new Functions;
  int num_devices = 0;
  if (!functions_->Load(library) || functions_->init(0) != 0 ||
      functions_->count(&num_devices) != 0) {
    return;
  }
  virtual_memory_ = new VirtualMemoryFunctions;
  if (!virtual_memory_->Load(library)) {
    delete virtual_memory_;
    virtual_memory_ = nullptr;
  }
  for (int32_t id = 0; id < num_devices; ++id) {
    devices_.push_back(id);
    contexts_.push_back(std::make_unique<Device>());
  }
}

inline CudaDriver::Capability CudaDriver::CapabilityOf(int32_t device) const {
  Capability capability;
  if (functions_->attribute(&capability.major, kCapabilityMajor, device) != 0 ||
      functions_->attribute(&capability.minor, kCapabilityMinor, device) != 0) {
    return {};
  }
  return capability;
}

inline std::string CudaDriver::UuidOf(int32_t device) const {
  Uuid uuid{};
  if (functions_->uuid(&uuid, device) != 0) return "";
  std::string text = "GPU";
  for (size_t i = 0; i < uuid.bytes.size(); ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", uuid.bytes[i]);
    text += digits;
  }
  return text;
}

inline std::string CudaDriver::ErrorText(int code) const {
  const char* name = nullptr;
  if (functions_->error_name(code, &name) != 0 || name == nullptr) return StrCat("error ", code);
  return name;
}

inline Status CudaDriver::CheckDevice(int64_t device) const {
  if (device >= 0 && static_cast<size_t>(device) < devices_.size()) return {};
  return InvalidArgError("GPU ", device, ": this machine has ", devices_.size(), " GPUs");
}

inline Result<void*> CudaDriver::AllocateOnDevice(int64_t device, size_t byte_size) const {
  NEREID_RETURN_IF_ERROR(CheckDevice(device));
  const ScopedContext context(*this, device);
  DevicePointer buffer = 0;
  int code = context.code();
  if (code == 0) code = functions_->allocate(&buffer, byte_size);
  if (code == 0) return reinterpret_cast<void*>(buffer);
  return UnavailableError("failed to allocate ", byte_size, " bytes on GPU ", device, ": ",
                          ErrorText(code));
}

inline void CudaDriver::FreeOnDevice(int64_t device, void* buffer) const {
  const ScopedContext context(*this, device);
  if (context.code() == 0) functions_->free(ToDevice(buffer));
}

inline Result<void*> CudaDriver::AllocatePinned(size_t byte_size) const {
  const ScopedContext context(*this, devices_.front());
  void* buffer = nullptr;
  int code = context.code();
  if (code == 0) code = functions_->allocate_host(&buffer, byte_size, kPortable);
  if (code == 0) return buffer;
  return UnavailableError("failed to allocate ", byte_size,
                          " bytes of pinned memory: ", ErrorText(code));
}

inline void CudaDriver::FreePinned(void* buffer) const {
  const ScopedContext context(*this, devices_.front());
  if (context.code() == 0) functions_->free_host(buffer);
}

inline Result<CudaDriver::MemoryUse> CudaDriver::MemoryUseOf(int64_t device) const {
  NEREID_RETURN_IF_ERROR(CheckDevice(device));
  const ScopedContext context(*this, device);
  size_t free_bytes = 0, total_bytes = 0;
  int code = context.code();
  if (code == 0) code = functions_->memory_info(&free_bytes, &total_bytes);
  if (code == 0) return MemoryUse{free_bytes, total_bytes};
  return UnavailableError("the memory of GPU ", device, " is not known: ", ErrorText(code));
}

inline Result<size_t> CudaDriver::GranularityOf(int64_t device) const {
  NEREID_RETURN_IF_ERROR(CheckDevice(device));
  if (virtual_memory_ == nullptr) {
    return UnsupportedError("the driver of GPU ", device, " has no memory that grows in place");
  }
  Allocation allocation;
  allocation.location.id = static_cast<int>(device);
  size_t granularity = 0;
  const int code = virtual_memory_->granularity(&granularity, &allocation, /*option=minimum*/ 0);
  if (code == 0 && granularity > 0) return granularity;
  return UnsupportedError("GPU ", device, " has no memory that grows in place: ", ErrorText(code));
}

inline Result<void*> CudaDriver::ReserveAddresses(int64_t device, size_t byte_size) const {
  const ScopedContext context(*this, device);
  DevicePointer base = 0;
  int code = context.code();
  if (code == 0) code = virtual_memory_->reserve(&base, byte_size, 0, 0, 0);
  if (code == 0) return reinterpret_cast<void*>(base);
  return UnavailableError("failed to reserve addresses for ", byte_size, " bytes on GPU ", device,
                          ": ", ErrorText(code));
}

inline void CudaDriver::FreeAddresses(int64_t device, void* base, size_t byte_size) const {
  const ScopedContext context(*this, device);
  if (context.code() == 0) virtual_memory_->free(ToDevice(base), byte_size);
}

inline Result<uint64_t> CudaDriver::MapMemory(int64_t device, void* at, size_t byte_size) const {
  const ScopedContext context(*this, device);
  Allocation allocation;
  allocation.location.id = static_cast<int>(device);
  unsigned long long handle = 0;
  int code = context.code();
  if (code == 0) code = virtual_memory_->create(&handle, byte_size, &allocation, 0);
  if (code == 0) {
    code = virtual_memory_->map(ToDevice(at), byte_size, 0, handle, 0);
    if (code == 0) {
      const Access access{allocation.location};
      code = virtual_memory_->set_access(ToDevice(at), byte_size, &access, 1);
      if (code != 0) virtual_memory_->unmap(ToDevice(at), byte_size);
    }
    if (code != 0) virtual_memory_->release(handle);
  }
  if (code == 0) return handle;
  return UnavailableError("failed to allocate ", byte_size, " bytes on GPU ", device, ": ",
                          ErrorText(code));
}

inline void CudaDriver::UnmapMemory(int64_t device, void* at, size_t byte_size,
                                    uint64_t handle) const {
  const ScopedContext context(*this, device);
  if (context.code() != 0) return;
  virtual_memory_->unmap(ToDevice(at), byte_size);
  virtual_memory_->release(handle);
}

inline Status CudaDriver::Copy(int64_t device, void* to, const void* from, size_t byte_size) const {
  NEREID_RETURN_IF_ERROR(CheckDevice(device));
  if (byte_size == 0) return {};
  ScopedContext context(*this, device);
  void* stream = nullptr;
  int code = context.code();
  if (code == 0) code = context.Stream(&stream);
  // Addresses are unified: the driver derives the direction of the copy from them.
  if (code == 0) code = functions_->copy(ToDevice(to), ToDevice(from), byte_size, stream);
  if (code == 0) code = functions_->wait(stream);
  if (code == 0) return {};
  return InternalError("failed to copy ", byte_size, " bytes with GPU ", device, ": ",
                       ErrorText(code));
}

inline Status CudaDriver::EnablePeerAccess(int64_t device, int64_t peer) const {
  NEREID_RETURN_IF_ERROR(CheckDevice(device));
  NEREID_RETURN_IF_ERROR(CheckDevice(peer));
  int can_access = 0;
  if (functions_->can_access(&can_access, static_cast<int>(device), static_cast<int>(peer)) != 0 ||
      can_access == 0) {
    return UnsupportedError("GPU ", device, " cannot access the memory of GPU ", peer);
  }
  void* peer_context = nullptr;
  int code = 0;
  {
    const ScopedContext context(*this, peer);
    peer_context = context.context();
    code = context.code();
  }
  const ScopedContext context(*this, device);
  if (code == 0) code = context.code();
  if (code == 0) code = functions_->enable_peer(peer_context, 0);
  if (code == 0 || code == kAlreadyEnabled) return {};
  return InternalError("GPU ", device, " got no access to the memory of GPU ", peer, ": ",
                       ErrorText(code));
}

inline Result<CudaDriver::IpcHandle> CudaDriver::ExportIpcHandle(int64_t device,
                                                                 void* buffer) const {
  NEREID_RETURN_IF_ERROR(CheckDevice(device));
  const ScopedContext context(*this, device);
  IpcHandle handle{};
  int code = context.code();
  if (code == 0) code = functions_->ipc_export(&handle, ToDevice(buffer));
  if (code == 0) return handle;
  return UnavailableError("memory of GPU ", device, " cannot be shared: ", ErrorText(code));
}

inline Result<CudaDriver::IpcMapping> CudaDriver::OpenIpcHandle(int64_t device,
                                                                const IpcHandle& handle) const {
  NEREID_RETURN_IF_ERROR(CheckDevice(device));
  const ScopedContext context(*this, device);
  DevicePointer base = 0, begin = 0;
  size_t size_bytes = 0;
  int code = context.code();
  if (code == 0) code = functions_->ipc_open(&base, handle, kLazyPeerAccess);
  if (code == 0 && (code = functions_->address_range(&begin, &size_bytes, base)) != 0) {
    functions_->ipc_close(base);
  }
  if (code == 0) return IpcMapping{reinterpret_cast<std::byte*>(base), size_bytes - (base - begin)};
  return UnavailableError("memory that another process shares on GPU ", device,
                          " cannot be opened: ", ErrorText(code));
}

inline void CudaDriver::CloseIpcHandle(int64_t device, void* base) const {
  const ScopedContext context(*this, device);
  if (context.code() == 0) functions_->ipc_close(ToDevice(base));
}

}  // namespace nereid
