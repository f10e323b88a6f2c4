#include "host/core/memory/gpus.h"

#include <dlfcn.h>

#include <algorithm>

#include "base/cuda_driver.h"
#include "host/core/observe/log.h"

namespace nereid::core {

// The part of NVML's ABI that is used here.
struct GpuMonitor::Functions {
  struct Utilization {
    unsigned gpu = 0, memory = 0;  // percent
  };
  struct Memory {
    unsigned long long total = 0, free = 0, used = 0;  // bytes
  };

  int (*init)();
  int (*by_uuid)(const char*, void**);
  int (*utilization)(void*, Utilization*);
  int (*memory)(void*, Memory*);
  int (*power_usage)(void*, unsigned*);       // mW
  int (*power_limit)(void*, unsigned*);       // mW
  int (*energy)(void*, unsigned long long*);  // mJ

  bool Load(void* library) {
    const auto load = [library](const char* name, auto& function) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    return load("nvmlInit_v2", init) && load("nvmlDeviceGetHandleByUUID", by_uuid) &&
           load("nvmlDeviceGetUtilizationRates", utilization) &&
           load("nvmlDeviceGetMemoryInfo", memory) &&
           load("nvmlDeviceGetPowerUsage", power_usage) &&
           load("nvmlDeviceGetEnforcedPowerLimit", power_limit) &&
           load("nvmlDeviceGetTotalEnergyConsumption", energy);
  }
};

GpuMonitor& GpuMonitor::Get() {
  static GpuMonitor* const monitor = new GpuMonitor;
  return *monitor;
}

GpuMonitor::GpuMonitor() {
  const CudaDriver* const driver = CudaDriver::Get();
  if (driver == nullptr) return;
  for (const int32_t device : driver->devices())
    devices_.emplace_back().uuid = driver->UuidOf(device);
  void* const library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  auto* const functions = new Functions;
  if (library == nullptr || !functions->Load(library) || functions->init() != 0) {
    NEREID_LOG_WARN("libnvidia-ml.so.1 cannot be used: there are no metrics of the GPUs");
    delete functions;
    return;
  }
  functions_ = functions;
  for (Device& device : devices_) {
    if (functions_->by_uuid(device.uuid.c_str(), &device.handle) != 0) device.handle = nullptr;
  }
}

std::vector<GpuReading> GpuMonitor::Read() {
  std::vector<GpuReading> readings;
  const std::lock_guard lock(mutex_);
  for (Device& device : devices_) {
    if (functions_ == nullptr || device.handle == nullptr) continue;
    GpuReading& reading = readings.emplace_back();
    reading.uuid = device.uuid;
    Functions::Utilization utilization;
    if (functions_->utilization(device.handle, &utilization) == 0) {
      reading.utilization = utilization.gpu / 100.0;
    }
    Functions::Memory memory;
    if (functions_->memory(device.handle, &memory) == 0) {
      reading.memory_total_bytes = static_cast<double>(memory.total);
      reading.memory_used_bytes = static_cast<double>(memory.used);
    }
    unsigned milliwatts = 0;
    if (functions_->power_usage(device.handle, &milliwatts) == 0) {
      reading.power_usage_watts = milliwatts / 1000.0;
    }
    if (functions_->power_limit(device.handle, &milliwatts) == 0) {
      reading.power_limit_watts = milliwatts / 1000.0;
    }
    unsigned long long millijoules = 0;
    if (functions_->energy(device.handle, &millijoules) == 0) {
      if (!device.first_energy_mj) device.first_energy_mj = millijoules;
      reading.energy_joules = static_cast<double>(millijoules - *device.first_energy_mj) / 1000.0;
    }
  }
  return readings;
}

Result<double> GpuMonitor::MemoryUtilization(int32_t device) {
  if (device < 0 || static_cast<size_t>(device) >= devices_.size()) {
    return InvalidArgError("GPU ", device, ": this machine has ", devices_.size(), " GPUs");
  }
  Functions::Memory memory;
  void* handle = nullptr;
  {
    const std::lock_guard lock(mutex_);
    handle = devices_[device].handle;
  }
  if (handle != nullptr && functions_->memory(handle, &memory) == 0 && memory.total > 0) {
    return static_cast<double>(memory.used) / static_cast<double>(memory.total);
  }
  NEREID_ASSIGN_OR_RETURN(const CudaDriver::MemoryUse use, CudaDriver::Get()->MemoryUseOf(device));
  if (use.total_bytes == 0) return 0.0;
  return 1.0 - static_cast<double>(use.free_bytes) / static_cast<double>(use.total_bytes);
}

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

}  // namespace nereid::core
