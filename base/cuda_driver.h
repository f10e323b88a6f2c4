// The CUDA driver, opened by dlopen when it is first asked for, so that one build serves machines
// with and without it. A device's primary context, which other libraries use too, is entered for
// each call and kept until the process ends. [any thread]
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
  // Null without a driver or without a device.
  static const CudaDriver* Get() {
    static const CudaDriver* const driver = new CudaDriver;  // never destroyed
    return driver->devices_.empty() ? nullptr : driver;
  }

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
  Result<void*> AllocateOnDevice(int64_t device, size_t byte_size) const;
  void FreeOnDevice(int64_t device, void* buffer) const;
  // Page-locked host memory that every device may access.
  Result<void*> AllocatePinned(size_t byte_size) const;
  void FreePinned(void* buffer) const;
  struct MemoryUse {
    uint64_t free_bytes = 0, total_bytes = 0;
  };
  Result<MemoryUse> MemoryUseOf(int64_t device) const;

  // Memory that grows where it is: addresses first, then memory behind them, piece by piece.
  // UNSUPPORTED where the driver cannot do it. Sizes are multiples of the device's granularity.
  Result<size_t> GranularityOf(int64_t device) const;
  Result<void*> ReserveAddresses(int64_t device, size_t byte_size) const;
  void FreeAddresses(int64_t device, void* base, size_t byte_size) const;
  // New memory behind the addresses from `at` on, for the device alone: what UnmapMemory calls it.
  Result<uint64_t> MapMemory(int64_t device, void* at, size_t byte_size) const;
  void UnmapMemory(int64_t device, void* at, size_t byte_size, uint64_t handle) const;

  // From any memory to any other, `device` being one of those involved; returns when the bytes are
  // there. Work that was put on streams before is not waited for.
  Status Copy(int64_t device, void* to, const void* from, size_t byte_size) const;
  // `device` may use the memory of `peer` directly from now on. UNSUPPORTED where it cannot.
  Status EnablePeerAccess(int64_t device, int64_t peer) const;

  // CUipcMemHandle, cudaIpcMemHandle_t: names an allocation to other processes.
  using IpcHandle = std::array<char, 64>;
  // Of an allocation of this process.
  Result<IpcHandle> Export(int64_t device, void* buffer) const;
  struct Opened {
    std::byte* base = nullptr;
    size_t size_bytes = 0;  // to the allocation's end
  };
  // Of another process; Close ends it.
  Result<Opened> Open(int64_t device, const IpcHandle& handle) const;
  void Close(int64_t device, void* base) const;

 private:
  // The driver's ABI, as far as it is needed: CUdeviceptr, and values of its enumerations.
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
  struct AddressFunctions;
  class Entered;
  // What is made of a device when it is first used.
  struct Device {
    std::mutex mutex;  // guards what follows
    void* context = nullptr;
    void* stream = nullptr;  // for copies
  };

  inline CudaDriver();
  ~CudaDriver() = delete;  // drivers end with the process
  Status CheckDevice(int64_t device) const;
  std::string ErrorText(int code) const;
  static DevicePointer ToDevice(const void* pointer) {
    return reinterpret_cast<DevicePointer>(pointer);
  }

  Functions* functions_ = nullptr;
  AddressFunctions* addresses_ = nullptr;  // null: the driver does not have them
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

// Of CUDA 10.2 and later.
struct CudaDriver::AddressFunctions {
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

// A device's primary context, current on this thread while the object lives.
class CudaDriver::Entered {
 public:
  Entered(const CudaDriver& driver, int64_t device)
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
  ~Entered() {
    void* popped = nullptr;
    if (code_ == 0) functions_.pop(&popped);
  }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

  // 0, or why the context was not entered.
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
  addresses_ = new AddressFunctions;
  if (!addresses_->Load(library)) {
    delete addresses_;
    addresses_ = nullptr;
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
  return InvalidArgError("GPU ", device, ": this machine has ", devices_.size());
}

inline Result<void*> CudaDriver::AllocateOnDevice(int64_t device, size_t byte_size) const {
  NEREID_RETURN_IF_ERROR(CheckDevice(device));
  const Entered entered(*this, device);
  DevicePointer buffer = 0;
  int code = entered.code();
  if (code == 0) code = functions_->allocate(&buffer, byte_size);
  if (code == 0) return reinterpret_cast<void*>(buffer);
  return UnavailableError("failed to allocate ", byte_size, " bytes on GPU ", device, ": ",
                          ErrorText(code));
}

inline void CudaDriver::FreeOnDevice(int64_t device, void* buffer) const {
  const Entered entered(*this, device);
  if (entered.code() == 0) functions_->free(ToDevice(buffer));
}

inline Result<void*> CudaDriver::AllocatePinned(size_t byte_size) const {
  const Entered entered(*this, devices_.front());
  void* buffer = nullptr;
  int code = entered.code();
  if (code == 0) code = functions_->allocate_host(&buffer, byte_size, kPortable);
  if (code == 0) return buffer;
  return UnavailableError("failed to allocate ", byte_size,
                          " bytes of pinned memory: ", ErrorText(code));
}

inline void CudaDriver::FreePinned(void* buffer) const {
  const Entered entered(*this, devices_.front());
  if (entered.code() == 0) functions_->free_host(buffer);
}

inline Result<CudaDriver::MemoryUse> CudaDriver::MemoryUseOf(int64_t device) const {
  NEREID_RETURN_IF_ERROR(CheckDevice(device));
  const Entered entered(*this, device);
  size_t free_bytes = 0, total_bytes = 0;
  int code = entered.code();
  if (code == 0) code = functions_->memory_info(&free_bytes, &total_bytes);
  if (code == 0) return MemoryUse{free_bytes, total_bytes};
  return UnavailableError("the memory of GPU ", device, " is not known: ", ErrorText(code));
}

inline Result<size_t> CudaDriver::GranularityOf(int64_t device) const {
  NEREID_RETURN_IF_ERROR(CheckDevice(device));
  if (addresses_ == nullptr) {
    return UnsupportedError("the driver of GPU ", device, " has no memory that grows in place");
  }
  Allocation allocation;
  allocation.location.id = static_cast<int>(device);
  size_t granularity = 0;
  const int code = addresses_->granularity(&granularity, &allocation, /*option=minimum*/ 0);
  if (code == 0 && granularity > 0) return granularity;
  return UnsupportedError("GPU ", device, " has no memory that grows in place: ", ErrorText(code));
}

inline Result<void*> CudaDriver::ReserveAddresses(int64_t device, size_t byte_size) const {
  const Entered entered(*this, device);
  DevicePointer base = 0;
  int code = entered.code();
  if (code == 0) code = addresses_->reserve(&base, byte_size, 0, 0, 0);
  if (code == 0) return reinterpret_cast<void*>(base);
  return UnavailableError("failed to reserve addresses for ", byte_size, " bytes on GPU ", device,
                          ": ", ErrorText(code));
}

inline void CudaDriver::FreeAddresses(int64_t device, void* base, size_t byte_size) const {
  const Entered entered(*this, device);
  if (entered.code() == 0) addresses_->free(ToDevice(base), byte_size);
}

inline Result<uint64_t> CudaDriver::MapMemory(int64_t device, void* at, size_t byte_size) const {
  const Entered entered(*this, device);
  Allocation allocation;
  allocation.location.id = static_cast<int>(device);
  unsigned long long handle = 0;
  int code = entered.code();
  if (code == 0) code = addresses_->create(&handle, byte_size, &allocation, 0);
  if (code == 0) {
    code = addresses_->map(ToDevice(at), byte_size, 0, handle, 0);
    if (code == 0) {
      const Access access{allocation.location};
      code = addresses_->set_access(ToDevice(at), byte_size, &access, 1);
      if (code != 0) addresses_->unmap(ToDevice(at), byte_size);
    }
    if (code != 0) addresses_->release(handle);
  }
  if (code == 0) return handle;
  return UnavailableError("failed to allocate ", byte_size, " bytes on GPU ", device, ": ",
                          ErrorText(code));
}

inline void CudaDriver::UnmapMemory(int64_t device, void* at, size_t byte_size,
                                    uint64_t handle) const {
  const Entered entered(*this, device);
  if (entered.code() != 0) return;
  addresses_->unmap(ToDevice(at), byte_size);
  addresses_->release(handle);
}

inline Status CudaDriver::Copy(int64_t device, void* to, const void* from, size_t byte_size) const {
  NEREID_RETURN_IF_ERROR(CheckDevice(device));
  if (byte_size == 0) return {};
  Entered entered(*this, device);
  void* stream = nullptr;
  int code = entered.code();
  if (code == 0) code = entered.Stream(&stream);
  // Addresses are unified: the driver sees from them which way the bytes go.
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
    const Entered entered(*this, peer);
    peer_context = entered.context();
    code = entered.code();
  }
  const Entered entered(*this, device);
  if (code == 0) code = entered.code();
  if (code == 0) code = functions_->enable_peer(peer_context, 0);
  if (code == 0 || code == kAlreadyEnabled) return {};
  return InternalError("GPU ", device, " got no access to the memory of GPU ", peer, ": ",
                       ErrorText(code));
}

inline Result<CudaDriver::IpcHandle> CudaDriver::Export(int64_t device, void* buffer) const {
  NEREID_RETURN_IF_ERROR(CheckDevice(device));
  const Entered entered(*this, device);
  IpcHandle handle{};
  int code = entered.code();
  if (code == 0) code = functions_->ipc_export(&handle, ToDevice(buffer));
  if (code == 0) return handle;
  return UnavailableError("memory of GPU ", device, " cannot be shared: ", ErrorText(code));
}

inline Result<CudaDriver::Opened> CudaDriver::Open(int64_t device, const IpcHandle& handle) const {
  NEREID_RETURN_IF_ERROR(CheckDevice(device));
  const Entered entered(*this, device);
  DevicePointer base = 0, begin = 0;
  size_t size_bytes = 0;
  int code = entered.code();
  if (code == 0) code = functions_->ipc_open(&base, handle, kLazyPeerAccess);
  if (code == 0 && (code = functions_->address_range(&begin, &size_bytes, base)) != 0) {
    functions_->ipc_close(base);
  }
  if (code == 0) return Opened{reinterpret_cast<std::byte*>(base), size_bytes - (base - begin)};
  return UnavailableError("memory that another process shares on GPU ", device,
                          " cannot be opened: ", ErrorText(code));
}

inline void CudaDriver::Close(int64_t device, void* base) const {
  const Entered entered(*this, device);
  if (entered.code() == 0) functions_->ipc_close(ToDevice(base));
}

}  // namespace nereid
