// The GPUs that CUDA shows to this process: which ones models may use, and their load for metrics
// and memory limits. Utilization comes from NVML, which is loaded with dlopen on first use.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "host/core/observe/metrics.h"
#include "nereid/status.h"

namespace nereid::core {

// The ids, ascending, of the GPUs that models may use: those with at least this compute capability,
// which is given as the number major.minor. Empty without a driver or a device. [any thread]
std::vector<int32_t> GpuDevices(double min_capability = 0);

// Reads the utilization of the GPUs from NVML. One object per process. [any thread]
class GpuMonitor {
 public:
  // Never fails: without a GPU or NVML, Read() returns nothing.
  static GpuMonitor& Get();

  // One entry for each device that NVML knows.
  std::vector<GpuReading> Read();
  // The share of the device's memory that all processes together use, 0 to 1. It comes from the
  // CUDA driver if NVML does not know it. INVALID_ARG for a device that does not exist.
  Result<double> MemoryUtilization(int32_t device);

 private:
  struct Functions;
  struct Device {
    std::string uuid;
    void* handle = nullptr;
    std::optional<uint64_t> first_energy_mj;  // total energy at the first reading, in millijoules
  };
  GpuMonitor();
  ~GpuMonitor() = delete;  // the object lives until the process ends

  Functions* functions_ = nullptr;  // null: no NVML
  std::mutex mutex_;                // guards devices_
  std::vector<Device> devices_;     // by CUDA device id; handle is null if NVML does not know it
};

}  // namespace nereid::core
