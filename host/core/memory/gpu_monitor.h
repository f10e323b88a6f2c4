// What the GPUs that CUDA shows this process are doing, asked of NVML, which is opened by dlopen
// when it is first needed. One a process. [any thread]
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "host/core/observe/metrics.h"
#include "nereid/status.h"

namespace nereid {

class GpuMonitor {
 public:
  // Never fails: without a GPU or NVML it has nothing to tell.
  static GpuMonitor& Get();

  // One entry a device that NVML knows.
  std::vector<GpuReading> Read();
  // The share of the device's memory that is in use, by whomever, 0 to 1; asked of the driver where
  // NVML does not tell. INVALID_ARG for a device that is not there.
  Result<double> MemoryShare(int32_t device);

 private:
  struct Functions;
  struct Device {
    std::string uuid;
    void* handle = nullptr;
    std::optional<uint64_t> first_energy_mj;  // of the first reading
  };
  GpuMonitor();
  ~GpuMonitor() = delete;  // ends with the process

  Functions* functions_ = nullptr;  // null: no NVML
  std::mutex mutex_;                // guards devices_
  std::vector<Device> devices_;     // by CUDA's device id; handle null: NVML does not know it
};

}  // namespace nereid
