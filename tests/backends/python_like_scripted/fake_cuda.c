// A CUDA driver without a GPU, for tests of what passes between processes: an allocation is a file
// in the folder that NEREID_FAKE_CUDA names, and its address can neither be read nor written, so
// that only the driver's own copies reach it. As the real one it opens no handle of its own
// process, and makes none for memory that it opened.
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { kOk = 0, kInvalid = 1, kNoMemory = 2, kNoDevice = 100, kWrongContext = 201 };
enum { kMaxAllocations = 256 };

typedef unsigned long long DevicePointer;
typedef struct {
  int32_t pid;
  int32_t number;
  uint64_t size;
  char rest[48];
} Handle;
typedef struct {
  char* address;  // what callers know
  char* shadow;   // the bytes
  Handle handle;
} Allocation;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;  // guards what follows
static Allocation allocations[kMaxAllocations];
static int32_t next_number;

static Allocation* Find(DevicePointer pointer) {
  for (int i = 0; i < kMaxAllocations; ++i) {
    Allocation* each = &allocations[i];
    const DevicePointer begin = (DevicePointer)(uintptr_t)each->address;
    if (each->address != NULL && pointer >= begin && pointer < begin + each->handle.size)
      return each;
  }
  return NULL;
}

static int Map(Handle handle, int flags, Allocation** made) {
  char path[512];
  snprintf(path, sizeof path, "%s/%d-%d", getenv("NEREID_FAKE_CUDA"), handle.pid, handle.number);
  const int fd = open(path, O_RDWR | O_CLOEXEC | flags, 0600);
  if (fd < 0) return kInvalid;
  Allocation* place = NULL;
  for (int i = 0; i < kMaxAllocations && place == NULL; ++i) {
    if (allocations[i].address == NULL) place = &allocations[i];
  }
  if (place == NULL || ftruncate(fd, (off_t)handle.size) != 0) {
    close(fd);
    return kNoMemory;
  }
  place->shadow = mmap(NULL, handle.size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  place->address = mmap(NULL, handle.size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  place->handle = handle;
  close(fd);
  *made = place;
  return kOk;
}

static void Unmap(Allocation* place) {
  munmap(place->shadow, place->handle.size);
  munmap(place->address, place->handle.size);
  memset(place, 0, sizeof *place);
}

static char* Bytes(DevicePointer pointer) {
  const Allocation* place = Find(pointer);
  if (place == NULL) return (char*)(uintptr_t)pointer;
  return place->shadow + (pointer - (DevicePointer)(uintptr_t)place->address);
}

int cuInit(unsigned flags) {
  (void)flags;
  return getenv("NEREID_FAKE_CUDA") == NULL ? kNoDevice : kOk;
}
int cuDeviceGetCount(int* count) {
  *count = 1;
  return kOk;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? kOk : kInvalid;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  (void)device;
  *value = attribute == 75 ? 9 : 0;  // its compute capability is 9.0
  return kOk;
}
int cuGetErrorName(int code, const char** name) {
  *name = code == kNoMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_INVALID_VALUE";
  return kOk;
}
int cuDevicePrimaryCtxRetain(void** context, int device) {
  *context = &allocations;
  return device == 0 ? kOk : kInvalid;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
  (void)device;
  return kOk;
}
int cuCtxPushCurrent_v2(void* context) {
  return context == &allocations ? kOk : kInvalid;
}
int cuCtxPopCurrent_v2(void** context) {
  *context = &allocations;
  return kOk;
}
int cuCtxSetCurrent(void* context) {
  return context == &allocations ? kOk : kInvalid;
}
int cuCtxSynchronize(void) {
  return kOk;
}

int cuDeviceGetUuid(void* uuid, int device) {
  memset(uuid, device + 1, 16);
  return kOk;
}
int cuMemHostAlloc(void** pointer, size_t size, unsigned flags) {
  (void)flags;
  *pointer = malloc(size);
  return *pointer == NULL ? kNoMemory : kOk;
}
int cuMemFreeHost(void* pointer) {
  free(pointer);
  return kOk;
}
int cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  *free_bytes = *total_bytes = (size_t)1 << 32;
  return kOk;
}
int cuStreamCreate(void** stream, unsigned flags) {
  (void)flags;
  *stream = &allocations;
  return kOk;
}
int cuStreamSynchronize(void* stream) {
  return stream == &allocations ? kOk : kInvalid;
}
int cuDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = device == peer;
  return kOk;
}
int cuCtxEnablePeerAccess(void* context, unsigned flags) {
  (void)context;
  (void)flags;
  return kInvalid;
}

int cuMemAlloc_v2(DevicePointer* pointer, size_t size) {
  pthread_mutex_lock(&mutex);
  Handle handle = {.pid = getpid(), .number = next_number++, .size = size};
  Allocation* made = NULL;
  const int code = size == 0 ? kInvalid : Map(handle, O_CREAT | O_EXCL, &made);
  if (code == kOk) *pointer = (DevicePointer)(uintptr_t)made->address;
  pthread_mutex_unlock(&mutex);
  return code;
}
int cuMemFree_v2(DevicePointer pointer) {
  pthread_mutex_lock(&mutex);
  Allocation* place = Find(pointer);
  const int is_own = place != NULL && place->handle.pid == getpid();
  if (is_own) Unmap(place);
  pthread_mutex_unlock(&mutex);
  return is_own ? kOk : kInvalid;
}
int cuMemcpy(DevicePointer target, DevicePointer source, size_t size) {
  pthread_mutex_lock(&mutex);
  memcpy(Bytes(target), Bytes(source), size);
  pthread_mutex_unlock(&mutex);
  return kOk;
}
int cuMemcpyAsync(DevicePointer target, DevicePointer source, size_t size, void* stream) {
  (void)stream;
  return cuMemcpy(target, source, size);
}
int cuMemGetAddressRange_v2(DevicePointer* begin, size_t* size, DevicePointer pointer) {
  pthread_mutex_lock(&mutex);
  const Allocation* place = Find(pointer);
  if (place != NULL) {
    *begin = (DevicePointer)(uintptr_t)place->address;
    *size = place->handle.size;
  }
  pthread_mutex_unlock(&mutex);
  return place == NULL ? kInvalid : kOk;
}

int cuIpcGetMemHandle(Handle* handle, DevicePointer pointer) {
  pthread_mutex_lock(&mutex);
  const Allocation* place = Find(pointer);
  const int is_own = place != NULL && place->handle.pid == getpid();
  if (is_own) *handle = place->handle;
  pthread_mutex_unlock(&mutex);
  return is_own ? kOk : kInvalid;
}
int cuIpcOpenMemHandle_v2(DevicePointer* pointer, Handle handle, unsigned flags) {
  (void)flags;
  if (handle.pid == getpid()) return kWrongContext;
  pthread_mutex_lock(&mutex);
  Allocation* made = NULL;
  const int code = Map(handle, 0, &made);
  if (code == kOk) *pointer = (DevicePointer)(uintptr_t)made->address;
  pthread_mutex_unlock(&mutex);
  return code;
}
int cuIpcCloseMemHandle(DevicePointer pointer) {
  pthread_mutex_lock(&mutex);
  Allocation* place = Find(pointer);
  const int is_opened = place != NULL && place->handle.pid != getpid();
  if (is_opened) Unmap(place);
  pthread_mutex_unlock(&mutex);
  return is_opened ? kOk : kInvalid;
}
