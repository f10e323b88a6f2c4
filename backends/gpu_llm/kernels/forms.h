// Chooses the form of the kernels (device/form.h) that a device runs. The launchers of the headers
// beside this one call the form of the current device.
#pragma once

#include <cstdint>
#include <string>

#include "backends/gpu_llm/kernel_form.h"
#include "nereid/status.h"

namespace nereid::gpu {

// By the device's properties, the build and the environment variable NEREID_GPU_KERNELS. Also
// checks the driver. Later launches on this device use the form. [any thread]
Result<KernelForm> SelectKernelForm(int32_t device);

// The form that launches of the calling thread run: that of its device. If no form was selected, as
// in tests of kernels, it is the device's own choice, or the portable form if there is no device.
// [any thread]
KernelForm CurrentForm();

// Whether the kernels were compiled with NEREID_GPU_OPTIMISE (docs/gpu.md). [any thread]
bool HasOptimisedKernels();

// What the driver loaded for the current device, for the log.
std::string DescribeLoadedKernels(KernelForm form);

}  // namespace nereid::gpu
