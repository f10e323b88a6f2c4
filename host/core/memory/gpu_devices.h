// Which GPUs this machine has for models. [load threads]
#pragma once

#include <cstdint>
#include <vector>

namespace nereid {

// Device ids, ascending, of those whose compute capability is at least this one, major.minor as a
// number; empty without a driver or a device.
std::vector<int32_t> GpuDevices(double min_capability = 0);

// Whether one of them has this compute capability.
bool HasGpuOfCapability(int32_t major, int32_t minor);

}  // namespace nereid
