// A fake NVML that accompanies fake_cuda.c. It implements the part of libnvidia-ml.so.1 that the
// host uses, with fixed results.
//   NEREID_FAKE_NVML_USED   bytes in use of the 1,000,000 of each device (250,000)
//   NEREID_FAKE_NVML        "broken": initialization fails
#include <stdlib.h>
#include <string.h>

enum { kSuccess = 0, kNotSupported = 3, kNotFound = 6, kUnknown = 999 };
typedef struct {
  unsigned gpu, memory;
} Utilization;
typedef struct {
  unsigned long long total, free, used;
} Memory;

static char devices[16];
static unsigned long long energy_mj = 5000;

int nvmlInit_v2(void) {
  const char* mode = getenv("NEREID_FAKE_NVML");
  return mode != NULL && strcmp(mode, "broken") == 0 ? kUnknown : kSuccess;
}
// Device n of fake_cuda.c has a UUID of sixteen bytes 0xA0 + n.
int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  if (strlen(uuid) != 40 || strncmp(uuid, "GPU-a", 5) != 0 || uuid[5] < '0' || uuid[5] > '9')
    return kNotFound;
  *device = &devices[uuid[5] - '0'];
  return kSuccess;
}
int nvmlDeviceGetUtilizationRates(void* device, Utilization* utilization) {
  (void)device;
  *utilization = (Utilization){25, 10};
  return kSuccess;
}
int nvmlDeviceGetMemoryInfo(void* device, Memory* memory) {
  (void)device;
  const char* used = getenv("NEREID_FAKE_NVML_USED");
  memory->total = 1000000;
  memory->used = used == NULL ? 250000 : strtoull(used, NULL, 10);
  memory->free = memory->total - memory->used;
  return kSuccess;
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  (void)device;
  *milliwatts = 123500;
  return kSuccess;
}
// The second device does not support the power limit.
int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* milliwatts) {
  *milliwatts = 700000;
  return device == &devices[1] ? kNotSupported : kSuccess;
}
// The energy of the first device grows by two joules per call.
int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* millijoules) {
  if (device == &devices[0]) energy_mj += 2000;
  *millijoules = energy_mj;
  return kSuccess;
}
