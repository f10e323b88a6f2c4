// An NVML of the tests beside fake_cuda.c: as much of libnvidia-ml.so.1 as the host uses, with
// fixed answers.
//   NEREID_FAKE_NVML_USED   bytes in use of the 1,000,000 that each device has (250,000)
//   NEREID_FAKE_NVML        "broken": it cannot be initialised
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
  const char* wish = getenv("NEREID_FAKE_NVML");
  return wish != NULL && strcmp(wish, "broken") == 0 ? kUnknown : kSuccess;
}
// Device n of fake_cuda.c: sixteen bytes 0xA0 + n.
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
// The second device does not know its limit.
int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* milliwatts) {
  *milliwatts = 700000;
  return device == &devices[1] ? kNotSupported : kSuccess;
}
// Two joules more at each call of the first device.
int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* millijoules) {
  if (device == &devices[0]) energy_mj += 2000;
  *millijoules = energy_mj;
  return kSuccess;
}
