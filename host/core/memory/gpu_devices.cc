#include "memory/gpu_devices.h"

#include <dlfcn.h>

namespace nereid {
namespace {

std::vector<int32_t> AskDriver() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
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

}  // namespace nereid
