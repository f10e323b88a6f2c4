#include "host/core/memory/gpu_devices.h"

#include <algorithm>

#include "base/cuda_driver.h"

namespace nereid {

std::vector<int32_t> GpuDevices(double min_capability) {
  const CudaDriver* const driver = CudaDriver::Get();
  if (driver == nullptr) return {};
  std::vector<int32_t> devices = driver->devices();
  if (min_capability <= 0) return devices;
  std::erase_if(devices, [&](int32_t device) {
    const auto [major, minor] = driver->CapabilityOf(device);
    return major * 10 + minor < static_cast<int32_t>(min_capability * 10 + 0.5);
  });
  return devices;
}

bool HasGpuOfCapability(int32_t major, int32_t minor) {
  const CudaDriver* const driver = CudaDriver::Get();
  if (driver == nullptr) return false;
  return std::any_of(driver->devices().begin(), driver->devices().end(), [&](int32_t device) {
    const CudaDriver::Capability found = driver->CapabilityOf(device);
    return found.major == major && found.minor == minor;
  });
}

}  // namespace nereid
