#include "backends/gpu_llm/kernel_form.h"

#include <algorithm>
#include <charconv>

namespace nereid::gpu {
namespace {

constexpr int32_t kOldestGpu = 80;

std::string Version(int32_t capability) {
  return StrCat(capability / 10, ".", capability % 10);
}

bool RunsPortable(int32_t capability, const BuiltKernels& built) {
  const auto runs_code = [&](int32_t code) {
    return code / 10 == capability / 10 && code <= capability;
  };
  return std::any_of(built.portable_code.begin(), built.portable_code.end(), runs_code) ||
         std::any_of(built.portable_ptx.begin(), built.portable_ptx.end(),
                     [&](int32_t ptx) { return ptx <= capability; });
}

}  // namespace

Result<KernelFormSetting> ParseKernelFormSetting(const char* text) {
  const std::string_view value = text == nullptr ? "" : text;
  if (value.empty() || value == "auto") return KernelFormSetting::kAuto;
  if (value == "native") return KernelFormSetting::kNative;
  if (value == "portable") return KernelFormSetting::kPortable;
  return InvalidArgError("NEREID_GPU_KERNELS is '", std::string(value),
                         "', expected auto, native or portable");
}

BuiltKernels ParseArchitectures(std::string_view architectures) {
  BuiltKernels built;
  while (!architectures.empty()) {
    const size_t end = std::min(architectures.find(','), architectures.size());
    const std::string_view one = architectures.substr(0, end);
    architectures.remove_prefix(std::min(end + 1, architectures.size()));
    if (one == "90a") {
      built.has_native = true;
      continue;
    }
    int32_t capability = 0;
    const char* const last = one.data() + one.size();
    const auto [rest, error] = std::from_chars(one.data(), last, capability);
    if (error != std::errc()) continue;
    const std::string_view suffix(rest, static_cast<size_t>(last - rest));
    if (suffix != "-virtual") built.portable_code.push_back(capability);
    if (suffix == "-virtual" || (suffix.empty() && (capability == 80 || capability == 120)))
      built.portable_ptx.push_back(capability);
  }
  return built;
}

Result<KernelForm> ChooseKernelForm(const GpuIdentity& gpu, const BuiltKernels& built,
                                    KernelFormSetting setting) {
  const int32_t capability = 10 * gpu.major + gpu.minor;
  const std::string who =
      StrCat("GPU ", gpu.device, " (", gpu.name, ") has compute capability ", Version(capability));
  if (capability < kOldestGpu) {
    return UnsupportedError(who, ", gpu_llm needs ", Version(kOldestGpu),
                            " or newer; backend cpu_reference serves the model without a GPU, and ",
                            "gpu_device_ids selects another GPU");
  }
  const bool is_hopper = capability == 90;
  if (setting == KernelFormSetting::kNative) {
    if (!is_hopper) {
      return UnsupportedError(who,
                              ", but NEREID_GPU_KERNELS is 'native', which needs 9.0; "
                              "'auto' selects the portable kernels");
    }
    if (!built.has_native) {
      return UnsupportedError("NEREID_GPU_KERNELS is 'native', but this build has no native ",
                              "kernels; build with 90a in NEREID_GPU_ARCHITECTURES");
    }
    return KernelForm::kNative;
  }
  if (is_hopper && built.has_native && setting == KernelFormSetting::kAuto)
    return KernelForm::kNative;
  if (!RunsPortable(capability, built)) {
    return UnsupportedError(who, ", for which this build has no kernels; build with ", capability,
                            " or 80 in NEREID_GPU_ARCHITECTURES");
  }
  return KernelForm::kPortable;
}

Status CheckPortableSupport(int32_t num_gpus) {
  if (num_gpus > 1) {
    return UnsupportedError("gpu_device_ids names ", num_gpus,
                            " GPUs, but gpu_llm's portable kernels support one GPU; the native "
                            "kernels of Hopper GPUs (compute capability 9.0) support several");
  }
  return {};
}

std::string DescribeKernels(KernelForm form, int32_t ptx_version, int32_t binary_version) {
  const std::string name = form == KernelForm::kNative ? "native kernels" : "portable kernels";
  if (ptx_version == binary_version) return StrCat(name, ", code for ", Version(binary_version));
  return StrCat(name, ", PTX of ", Version(ptx_version), " compiled by the driver for ",
                Version(binary_version));
}

Status CheckDriverVersion(int32_t driver, int32_t build) {
  if (driver == 0) return UnavailableError("no GPU: no driver of NVIDIA is installed");
  if (driver / 1000 >= build / 1000) return {};
  const auto version = [](int32_t value) { return StrCat(value / 1000, ".", value % 1000 / 10); };
  return UnavailableError("the GPU's driver supports CUDA ", version(driver),
                          ", but gpu_llm is built with CUDA ", version(build),
                          "; install a driver for CUDA ", build / 1000, ".0 or newer");
}

}  // namespace nereid::gpu
