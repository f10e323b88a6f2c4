// Which form of the kernels (kernels/device/form.h) a GPU runs, and what a model must not have with
// the portable form. Free of CUDA.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nereid/status.h"

namespace nereid::gpu {

enum class KernelForm : int32_t { kNative, kPortable };

// The value of the environment variable NEREID_GPU_KERNELS; null or empty: kAuto.
enum class KernelFormSetting : int32_t { kAuto, kNative, kPortable };
Result<KernelFormSetting> ParseKernelFormSetting(const char* text);

// What the build contains. Compute capabilities are times ten: 8.9 is 89.
struct BuiltKernels {
  bool has_native = false;
  std::vector<int32_t> portable_code;  // GPUs of the same major and at least this minor version
  std::vector<int32_t> portable_ptx;   // any GPU of at least this version
};
// Parses the build's NEREID_GPU_ARCHITECTURES: "80", "89" and so on, with "-real" only code, with
// "-virtual" only PTX; "90a": the native form. 80 and 120 have both code and PTX.
BuiltKernels ParseArchitectures(std::string_view architectures);

struct GpuIdentity {
  int32_t device = 0;
  std::string name;
  int32_t major = 0, minor = 0;  // compute capability
};

// The native form on 9.0 if it is built, unless the setting says otherwise; else the portable one.
// Errors name the GPU, its capability and what would serve it.
Result<KernelForm> ChooseKernelForm(const GpuIdentity& gpu, const BuiltKernels& built,
                                    KernelFormSetting setting);

// Refuses by name what the portable form does not have: several GPUs.
Status CheckPortableSupport(int32_t num_gpus);

// "portable kernels, code for 9.0" or "portable kernels, PTX of 8.0 compiled by the driver
// for 9.0".
std::string DescribeKernels(KernelForm form, int32_t ptx_version, int32_t binary_version);

// The driver's and the build's CUDA versions as the runtime gives them: 13000 is 13.0, and 0 of a
// driver says that there is none. A driver of an older major version cannot load the build.
Status CheckDriverVersion(int32_t driver, int32_t build);

}  // namespace nereid::gpu
