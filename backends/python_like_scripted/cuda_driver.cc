#include "backends/python_like_scripted/cuda_driver.h"

#include <dlfcn.h>

#include <type_traits>

namespace nereid::scripted {
namespace {

using DevicePointer = unsigned long long;  // CUdeviceptr
constexpr unsigned kLazyPeerAccess = 1;    // CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS

DevicePointer ToDevice(const void* pointer) {
  return reinterpret_cast<DevicePointer>(pointer);
}

std::byte* FromDevice(DevicePointer pointer) {
  return reinterpret_cast<std::byte*>(pointer);
}

}  // namespace

// The driver's ABI, as far as it is needed.
struct CudaDriver::Functions {
  int (*init)(unsigned);
  int (*count)(int*);
  int (*error_name)(int, const char**);
  int (*retain)(void**, int);
  int (*push)(void*);
  int (*pop)(void**);
  int (*synchronize)();
  int (*allocate)(DevicePointer*, size_t);
  int (*free)(DevicePointer);
  int (*copy)(DevicePointer, DevicePointer, size_t);
  int (*address_range)(DevicePointer*, size_t*, DevicePointer);
  int (*ipc_export)(GpuHandle*, DevicePointer);
  int (*ipc_open)(DevicePointer*, GpuHandle, unsigned);
  int (*ipc_close)(DevicePointer);

  bool Load(void* library) {
    const auto load = [library](const char* name, auto& function) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    return load("cuInit", init) && load("cuDeviceGetCount", count) &&
           load("cuGetErrorName", error_name) && load("cuDevicePrimaryCtxRetain", retain) &&
           load("cuCtxPushCurrent_v2", push) && load("cuCtxPopCurrent_v2", pop) &&
           load("cuCtxSynchronize", synchronize) && load("cuMemAlloc_v2", allocate) &&
           load("cuMemFree_v2", free) && load("cuMemcpy", copy) &&
           load("cuMemGetAddressRange_v2", address_range) &&
           load("cuIpcGetMemHandle", ipc_export) && load("cuIpcOpenMemHandle_v2", ipc_open) &&
           load("cuIpcCloseMemHandle", ipc_close);
  }
};

// A device's primary context, current on this thread while the object lives.
class CudaDriver::Entered {
 public:
  Entered(const CudaDriver& driver, int64_t device) : functions_(*driver.functions_) {
    if (device < 0 || device >= driver.num_devices_) {
      status_ = InvalidArgError("GPU ", device, ": this machine has ", driver.num_devices_);
      return;
    }
    std::lock_guard lock(driver.mutex_);
    void*& context = driver.contexts_[static_cast<size_t>(device)];
    int code = context == nullptr ? functions_.retain(&context, static_cast<int>(device)) : 0;
    if (code == 0) code = functions_.push(context);
    is_pushed_ = code == 0;
    status_ = driver.Check(code, "its context", device);
  }
  ~Entered() {
    void* popped = nullptr;
    if (is_pushed_) functions_.pop(&popped);
  }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;
  const Status& status() const { return status_; }

 private:
  const Functions& functions_;
  bool is_pushed_ = false;
  Status status_;
};

CudaDriver::CudaDriver() {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  functions_ = std::make_unique<Functions>();
  if (!functions_->Load(library) || functions_->init(0) != 0 ||
      functions_->count(&num_devices_) != 0) {
    num_devices_ = 0;
  }
  contexts_.resize(static_cast<size_t>(num_devices_));
}

const CudaDriver* CudaDriver::Get() {
  static const auto* const driver = new CudaDriver();  // never destroyed
  return driver->num_devices_ == 0 ? nullptr : driver;
}

Status CudaDriver::Check(int code, const char* what, int64_t device) const {
  if (code == 0) return {};
  const char* name = nullptr;
  const bool is_named = functions_->error_name(code, &name) == 0 && name != nullptr;
  return UnavailableError("GPU ", device, ": ", what, ": ",
                          is_named ? std::string(name) : StrCat("error ", code));
}

Result<std::byte*> CudaDriver::Allocate(int64_t device, size_t size_bytes) const {
  const Entered entered(*this, device);
  NEREID_RETURN_IF_ERROR(entered.status());
  DevicePointer base = 0;
  NEREID_RETURN_IF_ERROR(Check(functions_->allocate(&base, size_bytes),
                               StrCat("memory of ", size_bytes, " bytes").c_str(), device));
  return FromDevice(base);
}

void CudaDriver::Free(int64_t device, std::byte* base) const {
  const Entered entered(*this, device);
  if (entered.status().ok()) functions_->free(ToDevice(base));
}

Result<GpuHandle> CudaDriver::Export(int64_t device, std::byte* base) const {
  const Entered entered(*this, device);
  NEREID_RETURN_IF_ERROR(entered.status());
  GpuHandle handle{};
  NEREID_RETURN_IF_ERROR(
      Check(functions_->ipc_export(&handle, ToDevice(base)), "sharing memory", device));
  return handle;
}

Result<std::byte*> CudaDriver::Open(int64_t device, const GpuHandle& handle,
                                    size_t* size_bytes) const {
  const Entered entered(*this, device);
  NEREID_RETURN_IF_ERROR(entered.status());
  DevicePointer base = 0, begin = 0;
  NEREID_RETURN_IF_ERROR(Check(functions_->ipc_open(&base, handle, kLazyPeerAccess),
                               "opening another process's memory", device));
  const int code = functions_->address_range(&begin, size_bytes, base);
  if (code == 0) return FromDevice(base);
  functions_->ipc_close(base);
  return Check(code, "the size of another process's memory", device);
}

void CudaDriver::Close(int64_t device, std::byte* base) const {
  const Entered entered(*this, device);
  if (entered.status().ok()) functions_->ipc_close(ToDevice(base));
}

Status CudaDriver::Copy(int64_t device, void* target, const void* source, size_t size_bytes) const {
  const Entered entered(*this, device);
  NEREID_RETURN_IF_ERROR(entered.status());
  // Addresses are unified: the driver sees from them which way the bytes go.
  int code = functions_->copy(ToDevice(target), ToDevice(source), size_bytes);
  // Between two places of a GPU it returns before it is done.
  if (code == 0) code = functions_->synchronize();
  return Check(code, StrCat("copying ", size_bytes, " bytes").c_str(), device);
}

}  // namespace nereid::scripted
