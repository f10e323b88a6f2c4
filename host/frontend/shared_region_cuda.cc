// CUDA shared-memory region: device memory of another process, opened through CUDA IPC.
#include <algorithm>

#include "base/cuda_driver.h"
#include "host/frontend/shared_region.h"

namespace nereid {
namespace {

class CudaRegion final : public SharedRegion {
 public:
  CudaRegion(SharedRegionInfo info, const CudaDriver& driver, std::byte* base)
      : SharedRegion(SharedMemoryKind::kCuda, std::move(info)), driver_(driver), base_(base) {}
  ~CudaRegion() override { driver_.CloseIpcHandle(info().device_id, base_); }

  char* base() const override { return reinterpret_cast<char*>(base_); }
  TRITONSERVER_MemoryType memory_type() const override { return TRITONSERVER_MEMORY_GPU; }

 private:
  const CudaDriver& driver_;
  std::byte* const base_;
};

}  // namespace

Result<std::shared_ptr<const SharedRegion>> OpenCudaRegion(SharedRegionInfo info,
                                                           std::string_view raw_handle) {
  CudaDriver::IpcHandle handle{};
  if (raw_handle.size() != handle.size()) {
    return InvalidArgError("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t");
  }
  std::copy(raw_handle.begin(), raw_handle.end(), handle.begin());
  const std::string failed =
      StrCat("failed to register CUDA shared memory region '", info.name, "': ");
  const CudaDriver* const driver = CudaDriver::Get();
  if (driver == nullptr) {
    return UnsupportedError(failed, "this machine has no CUDA driver or no GPU");
  }
  const Result<CudaDriver::IpcMapping> opened = driver->OpenIpcHandle(info.device_id, handle);
  if (!opened.ok()) return InvalidArgError(failed, opened.status().message());
  // `region` closes the handle if the memory turns out to be too small.
  const uint64_t requested_bytes = info.size_bytes;
  auto region = std::make_shared<CudaRegion>(std::move(info), *driver, opened->base);
  if (requested_bytes > opened->size_bytes) {
    return InvalidArgError(failed, "invalid args: the memory has ", opened->size_bytes,
                           " bytes, got byte_size ", requested_bytes);
  }
  return std::shared_ptr<const SharedRegion>(std::move(region));
}

}  // namespace nereid
