// Device memory of another process, through the CUDA driver, which is opened when the first region
// is registered: one build serves machines with and without it.
#include <dlfcn.h>

#include <array>
#include <cstring>

#include "shared_region.h"

namespace nereid {
namespace {

// The driver's ABI, as far as it is needed.
using DevicePointer = unsigned long long;  // CUdeviceptr
struct IpcHandle {                         // CUipcMemHandle, cudaIpcMemHandle_t
  std::array<char, 64> bytes;
};
constexpr unsigned kLazyPeerAccess = 1;

class Driver {
 public:
  // Null without a driver.
  static const Driver* Get() {
    static const Driver driver;
    return driver.is_usable_ ? &driver : nullptr;
  }

  int (*init)(unsigned) = nullptr;
  int (*device_get)(int*, int) = nullptr;
  int (*context_retain)(void**, int) = nullptr;
  int (*context_release)(int) = nullptr;
  int (*context_push)(void*) = nullptr;
  int (*context_pop)(void**) = nullptr;
  int (*ipc_open)(DevicePointer*, IpcHandle, unsigned) = nullptr;
  int (*ipc_close)(DevicePointer) = nullptr;
  int (*address_range)(DevicePointer*, size_t*, DevicePointer) = nullptr;

 private:
  Driver() {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    is_usable_ = Load(library, "cuInit", init) && Load(library, "cuDeviceGet", device_get) &&
                 Load(library, "cuDevicePrimaryCtxRetain", context_retain) &&
                 Load(library, "cuDevicePrimaryCtxRelease_v2", context_release) &&
                 Load(library, "cuCtxPushCurrent_v2", context_push) &&
                 Load(library, "cuCtxPopCurrent_v2", context_pop) &&
                 Load(library, "cuIpcOpenMemHandle_v2", ipc_open) &&
                 Load(library, "cuIpcCloseMemHandle", ipc_close) &&
                 Load(library, "cuMemGetAddressRange_v2", address_range) && init(0) == 0;
  }
  template <typename Function>
  static bool Load(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
  }

  bool is_usable_ = false;
};

// The device's primary context, current on this thread while the object lives.
class Current {
 public:
  Current(const Driver& driver, void* context)
      : driver_(driver), is_pushed_(driver.context_push(context) == 0) {}
  ~Current() {
    void* popped = nullptr;
    if (is_pushed_) driver_.context_pop(&popped);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  bool is_pushed() const { return is_pushed_; }

 private:
  const Driver& driver_;
  const bool is_pushed_;
};

// Shares one retained context among what is opened in it.
struct Context {
  Context(const Driver& driver, int device) : driver(driver), device(device) {}
  ~Context() {
    if (handle != nullptr) driver.context_release(device);
  }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Driver& driver;
  const int device;
  void* handle = nullptr;
};

class CudaRegion final : public SharedRegion {
 public:
  CudaRegion(SharedRegionInfo info, std::unique_ptr<Context> context, DevicePointer base)
      : SharedRegion(SharedMemoryKind::kCuda, std::move(info)),
        context_(std::move(context)),
        base_(base) {}
  ~CudaRegion() override {
    const Current current(context_->driver, context_->handle);
    if (current.is_pushed()) context_->driver.ipc_close(base_);
  }

  char* base() const override { return reinterpret_cast<char*>(base_); }
  TRITONSERVER_MemoryType memory_type() const override { return TRITONSERVER_MEMORY_GPU; }

 private:
  const std::unique_ptr<Context> context_;
  const DevicePointer base_;
};

Status CudaError(const SharedRegionInfo& info, std::string_view what, int code) {
  return InvalidArgError("failed to register CUDA shared memory region '", info.name, "': ", what,
                         " on device ", info.device_id, " failed with CUDA error ", code);
}

Status CheckSize(const Driver& driver, const SharedRegionInfo& info, DevicePointer base) {
  DevicePointer begin = 0;
  size_t allocated_bytes = 0;
  if (const int code = driver.address_range(&begin, &allocated_bytes, base); code != 0) {
    return CudaError(info, "asking for the memory's size", code);
  }
  const size_t usable_bytes = allocated_bytes - (base - begin);
  if (info.size_bytes <= usable_bytes) return Status::Ok();
  return InvalidArgError("failed to register CUDA shared memory region '", info.name,
                         "': invalid args: the memory has ", usable_bytes, " bytes, got byte_size ",
                         info.size_bytes);
}

}  // namespace

Result<std::shared_ptr<const SharedRegion>> OpenCudaRegion(SharedRegionInfo info,
                                                           std::string_view raw_handle) {
  IpcHandle handle{};
  if (raw_handle.size() != sizeof(handle)) {
    return InvalidArgError("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t");
  }
  std::memcpy(&handle, raw_handle.data(), sizeof(handle));
  const Driver* const driver = Driver::Get();
  if (driver == nullptr) {
    return UnsupportedError("failed to register CUDA shared memory region '", info.name,
                            "': this machine has no CUDA driver");
  }
  int device = 0;
  if (info.device_id < 0 || info.device_id > INT32_MAX) return CudaError(info, "a device", -1);
  if (const int code = driver->device_get(&device, static_cast<int>(info.device_id)); code != 0) {
    return CudaError(info, "finding the device", code);
  }
  auto context = std::make_unique<Context>(*driver, device);
  if (const int code = driver->context_retain(&context->handle, device); code != 0) {
    context->handle = nullptr;
    return CudaError(info, "taking the context", code);
  }
  const Current current(*driver, context->handle);
  if (!current.is_pushed()) return CudaError(info, "entering the context", -1);
  DevicePointer base = 0;
  if (const int code = driver->ipc_open(&base, handle, kLazyPeerAccess); code != 0) {
    return CudaError(info, "opening the handle", code);
  }
  // Closes the handle again when its memory turns out too small.
  const SharedRegionInfo wanted = info;
  auto region = std::make_shared<CudaRegion>(std::move(info), std::move(context), base);
  NEREID_RETURN_IF_ERROR(CheckSize(*driver, wanted, base));
  return std::shared_ptr<const SharedRegion>(std::move(region));
}

}  // namespace nereid
