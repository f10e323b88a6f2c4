#include "memory/gpu_devices.h"

#include <dlfcn.h>

namespace nereid {
namespace {

// Values of CUdevice_attribute.
constexpr int kCapabilityMajor = 75;
constexpr int kCapabilityMinor = 76;

void* Driver() {
  static void* const driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  return driver;
}

std::vector<int32_t> AskDriver() {
  void* driver = Driver();
  if (driver == nullptr) return {};
  using InitFunction = int (*)(unsigned);
  using CountFunction = int (*)(int*);
  const auto init = reinterpret_cast<InitFunction>(dlsym(driver, "cuInit"));
  const auto count = reinterpret_cast<CountFunction>(dlsym(driver, "cuDeviceGetCount"));
  int num_devices = 0;
  if (init == nullptr || count == nullptr || init(0) != 0 || count(&num_devices) != 0) return {};
  std::vector<int32_t> ids;
  for (int id = 0; id < num_devices; ++id) ids.push_back(id);
  return ids;
}

}  // namespace

const std::vector<int32_t>& GpuDevices() {
  static const std::vector<int32_t> devices = AskDriver();
  return devices;
}

bool HasGpuOfCapability(int32_t major, int32_t minor) {
  if (GpuDevices().empty()) return false;
  using AttributeFunction = int (*)(int*, int, int);
  const auto attribute =
      reinterpret_cast<AttributeFunction>(dlsym(Driver(), "cuDeviceGetAttribute"));
  if (attribute == nullptr) return false;
  for (const int32_t device : GpuDevices()) {  // a device's handle is its number
    int found_major = 0, found_minor = 0;
    if (attribute(&found_major, kCapabilityMajor, device) == 0 &&
        attribute(&found_minor, kCapabilityMinor, device) == 0 && found_major == major &&
        found_minor == minor) {
      return true;
    }
  }
  return false;
}

}  // namespace nereid
