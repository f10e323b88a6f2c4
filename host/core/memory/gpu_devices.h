// Which GPUs this machine has, asked of the CUDA driver by dlopen, so that one build serves
// machines with and without. [load threads]
#pragma once

#include <cstdint>
#include <vector>

namespace nereid {

// Device ids, ascending; empty without a driver or a device. Asked once a process.
const std::vector<int32_t>& GpuDevices();

// Whether one of them has this compute capability.
bool HasGpuOfCapability(int32_t major, int32_t minor);

}  // namespace nereid
