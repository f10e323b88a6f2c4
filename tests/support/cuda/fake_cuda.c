// A fake CUDA driver for machines without a GPU. It implements the part of libcuda.so.1 that the
// host, the worker processes of Python models and their tests use. Device memory has inaccessible
// addresses. Its bytes are stored elsewhere, and copies translate the address. A host that reads
// device memory directly therefore crashes, as it would with a GPU. Like the real driver it opens
// no IPC handle of its own process, and it creates none for memory that it opened. Settings:
//   NEREID_FAKE_CUDA_DEVICES   number of devices (1)
//   NEREID_FAKE_CUDA_BYTES     memory of each device (1 GiB); more is out of memory
//   NEREID_FAKE_CUDA_PINNED    limit of pinned memory
//   NEREID_FAKE_CUDA_DIR       folder for memory that other processes may open by its handle;
//   without it there are no handles
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNoContext = 201,
  kInvalidDevice = 101,
  kNotSupported = 801,
  kPeerEnabled = 704
};
enum { kMaxDevices = 8, kMaxBlocks = 4096, kMaxDepth = 16 };

typedef unsigned long long DevicePointer;
typedef struct {
  char bytes[64];
} IpcHandle;
typedef struct {
  unsigned char bytes[16];
} Uuid;
typedef struct {
  int device;
} Context;
typedef struct {
  char* address;  // address for users; null in a free entry
  char* bytes;    // address of the bytes
  size_t size;
  int device;
  int is_opened;  // opened from another process
  // Reserved address range, of which the first `size` bytes are mapped; 0 for an allocation.
  size_t reserved;
  char file[64];  // file name in the folder; empty if there is no file
} Block;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static Block blocks[kMaxBlocks];
static Context contexts[kMaxDevices];
static size_t used[kMaxDevices];
static size_t pinned_used;
static int peers[kMaxDevices][kMaxDevices];
static unsigned next_file;
static __thread Context* stack[kMaxDepth];
static __thread int depth;

static size_t Setting(const char* name, size_t default_value) {
  const char* text = getenv(name);
  return text == NULL ? default_value : strtoull(text, NULL, 10);
}
static int Current(void) {
  return depth == 0 ? -1 : stack[depth - 1]->device;
}
static size_t Limit(void) {
  return Setting("NEREID_FAKE_CUDA_BYTES", (size_t)1 << 30);
}

int cuInit(unsigned flags) {
  return flags == 0 ? kSuccess : kInvalidValue;
}
int cuDeviceGetCount(int* count) {
  *count = (int)Setting("NEREID_FAKE_CUDA_DEVICES", 1);
  return kSuccess;
}
static int IsDevice(int device) {
  int count = 0;
  cuDeviceGetCount(&count);
  return device >= 0 && device < count && device < kMaxDevices;
}
int cuDeviceGet(int* device, int ordinal) {
  *device = ordinal;
  return IsDevice(ordinal) ? kSuccess : kInvalidDevice;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (!IsDevice(device) || (attribute != 75 && attribute != 76)) return kInvalidValue;
  // compute capability 7.5: no kernel of this project supports it
  *value = attribute == 75 ? 7 : 5;
  return kSuccess;
}
int cuDeviceGetUuid(Uuid* uuid, int device) {
  if (!IsDevice(device)) return kInvalidDevice;
  memset(uuid->bytes, 0xA0 + device, sizeof(uuid->bytes));
  return kSuccess;
}
int cuGetErrorName(int error, const char** name) {
  *name = error == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OF_THE_TESTS";
  return kSuccess;
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  if (!IsDevice(device)) return kInvalidDevice;
  contexts[device].device = device;
  *context = &contexts[device];
  return kSuccess;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
  return IsDevice(device) ? kSuccess : kInvalidDevice;
}
int cuCtxPushCurrent_v2(void* context) {
  if (depth == kMaxDepth) return kInvalidValue;
  stack[depth++] = context;
  return kSuccess;
}
int cuCtxPopCurrent_v2(void** context) {
  if (depth == 0) return kNoContext;
  *context = stack[--depth];
  return kSuccess;
}

int cuCtxSetCurrent(void* context) {
  if (depth == 0) depth = 1;
  stack[depth - 1] = context;
  return kSuccess;
}
int cuCtxSynchronize(void) {
  return Current() < 0 ? kNoContext : kSuccess;
}

// Maps the file's bytes and reserves addresses for them. The caller holds the mutex.
static Block* Map(int fd, size_t size, int device) {
  for (int i = 0; i < kMaxBlocks; ++i) {
    Block* block = &blocks[i];
    if (block->address != NULL) continue;
    char* bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED) return NULL;
    char* address = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address == MAP_FAILED) {
      munmap(bytes, size);
      return NULL;
    }
    *block = (Block){.address = address, .bytes = bytes, .size = size, .device = device};
    return block;
  }
  return NULL;
}
static Block* Find(DevicePointer pointer) {
  char* const address = (char*)(uintptr_t)pointer;
  for (int i = 0; i < kMaxBlocks; ++i) {
    Block* block = &blocks[i];
    if (block->address != NULL && address >= block->address &&
        address < block->address + block->size)
      return block;
  }
  return NULL;
}
static int FolderFile(char* path, size_t size, const char* file) {
  const char* folder = getenv("NEREID_FAKE_CUDA_DIR");
  return folder != NULL && snprintf(path, size, "%s/%s", folder, file) < (int)size;
}
static void Unmap(Block* block) {
  char path[4096];
  munmap(block->address, block->size);
  munmap(block->bytes, block->size);
  if (!block->is_opened && block->file[0] != 0 && FolderFile(path, sizeof(path), block->file))
    unlink(path);
  memset(block, 0, sizeof(*block));
}

int cuMemAlloc_v2(DevicePointer* pointer, size_t size) {
  const int device = Current();
  if (device < 0) return kNoContext;
  if (size == 0) return kInvalidValue;
  pthread_mutex_lock(&mutex);
  int code = kOutOfMemory;
  if (size <= Limit() - used[device]) {
    char file[64] = "", path[4096];
    int fd = -1;
    snprintf(file, sizeof(file), "fake_cuda.%d.%u", (int)getpid(), next_file++);
    if (FolderFile(path, sizeof(path), file)) {
      fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    } else {
      file[0] = 0;
      fd = memfd_create("fake_cuda", MFD_CLOEXEC);
    }
    Block* block = fd >= 0 && ftruncate(fd, (off_t)size) == 0 ? Map(fd, size, device) : NULL;
    if (fd >= 0) close(fd);
    if (block != NULL) {
      memcpy(block->file, file, sizeof(file));
      used[device] += size;
      *pointer = (uintptr_t)block->address;
      code = kSuccess;
    }
  }
  pthread_mutex_unlock(&mutex);
  return code;
}
int cuMemFree_v2(DevicePointer pointer) {
  pthread_mutex_lock(&mutex);
  Block* block = Find(pointer);
  const int known =
      block != NULL && !block->is_opened && block->address == (char*)(uintptr_t)pointer;
  if (known) {
    used[block->device] -= block->size;
    Unmap(block);
  }
  pthread_mutex_unlock(&mutex);
  return known ? kSuccess : kInvalidValue;
}
int cuMemHostAlloc(void** buffer, size_t size, unsigned flags) {
  (void)flags;
  if (Current() < 0) return kNoContext;
  pthread_mutex_lock(&mutex);
  int code = kOutOfMemory;
  if (size <= Setting("NEREID_FAKE_CUDA_PINNED", (size_t)1 << 40) - pinned_used) {
    char* base = mmap(NULL, size + 4096, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base != MAP_FAILED) {
      memcpy(base, &size, sizeof(size));
      pinned_used += size;
      *buffer = base + 4096;
      code = kSuccess;
    }
  }
  pthread_mutex_unlock(&mutex);
  return code;
}
int cuMemFreeHost(void* buffer) {
  char* base = (char*)buffer - 4096;
  size_t size = 0;
  memcpy(&size, base, sizeof(size));
  pthread_mutex_lock(&mutex);
  pinned_used -= size;
  pthread_mutex_unlock(&mutex);
  return munmap(base, size + 4096) == 0 ? kSuccess : kInvalidValue;
}
int cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  if (Current() < 0) return kNoContext;
  pthread_mutex_lock(&mutex);
  *total_bytes = Limit();
  *free_bytes = Limit() - used[Current()];
  pthread_mutex_unlock(&mutex);
  return kSuccess;
}

int cuStreamCreate(void** stream, unsigned flags) {
  (void)flags;
  if (Current() < 0) return kNoContext;
  *stream = &contexts[Current()];
  return kSuccess;
}
int cuStreamSynchronize(void* stream) {
  (void)stream;
  return Current() < 0 ? kNoContext : kSuccess;
}
// Returns the bytes of a pointer of any kind, or null if `size` exceeds its block.
static char* Bytes(DevicePointer pointer, size_t size) {
  Block* block = Find(pointer);
  char* const address = (char*)(uintptr_t)pointer;
  if (block == NULL) return address;
  const size_t offset = (size_t)(address - block->address);
  return size <= block->size - offset ? block->bytes + offset : NULL;
}
int cuMemcpyAsync(DevicePointer to, DevicePointer from, size_t size, void* stream) {
  (void)stream;
  if (Current() < 0) return kNoContext;
  pthread_mutex_lock(&mutex);
  char* const target = Bytes(to, size);
  char* const source = Bytes(from, size);
  if (target != NULL && source != NULL) memmove(target, source, size);
  pthread_mutex_unlock(&mutex);
  return target != NULL && source != NULL ? kSuccess : kInvalidValue;
}
int cuMemcpy(DevicePointer to, DevicePointer from, size_t size) {
  return cuMemcpyAsync(to, from, size, NULL);
}
int cuMemcpyHtoD_v2(DevicePointer to, const void* from, size_t size) {
  return cuMemcpyAsync(to, (uintptr_t)from, size, NULL);
}
int cuMemcpyDtoH_v2(void* to, DevicePointer from, size_t size) {
  return cuMemcpyAsync((uintptr_t)to, from, size, NULL);
}

int cuDeviceCanAccessPeer(int* can_access, int device, int peer) {
  *can_access = IsDevice(device) && IsDevice(peer) && device != peer;
  return kSuccess;
}
int cuCtxEnablePeerAccess(void* context, unsigned flags) {
  if (Current() < 0 || flags != 0) return kInvalidValue;
  int* const enabled = &peers[Current()][((Context*)context)->device];
  if (*enabled) return kPeerEnabled;
  *enabled = 1;
  return kSuccess;
}
// Reserved addresses that initially have no memory. Memory can only be mapped from the beginning
// on, which suffices for callers that unmap only at the end.
enum { kGranularity = 1 << 16, kMaxHandles = 1024 };
typedef struct {
  int type, id;
} Location;
typedef struct {
  int type, handle_types;
  Location location;
  void* metadata;
  unsigned char flags[8];
} Allocation;
typedef struct {
  Location location;
  int flags;
} Access;
static struct {
  size_t size;
  int device;
} handles[kMaxHandles];

int cuMemGetAllocationGranularity(size_t* granularity, const Allocation* allocation, int option) {
  if (!IsDevice(allocation->location.id) || allocation->type != 1 || option != 0)
    return kInvalidValue;
  *granularity = kGranularity;
  return kSuccess;
}
int cuMemAddressReserve(DevicePointer* pointer, size_t size, size_t alignment, DevicePointer hint,
                        unsigned long long flags) {
  if (size == 0 || size % kGranularity != 0 || alignment != 0 || hint != 0 || flags != 0)
    return kInvalidValue;
  pthread_mutex_lock(&mutex);
  const int fd = memfd_create("fake_cuda", MFD_CLOEXEC);
  Block* block = fd >= 0 && ftruncate(fd, (off_t)size) == 0 ? Map(fd, size, 0) : NULL;
  if (fd >= 0) close(fd);
  if (block != NULL) {
    *pointer = (uintptr_t)block->address;
    block->reserved = size;
    block->size = 0;
  }
  pthread_mutex_unlock(&mutex);
  return block != NULL ? kSuccess : kOutOfMemory;
}
// Returns the reservation that contains an address. The caller holds the mutex.
static Block* Reservation(DevicePointer pointer) {
  char* const address = (char*)(uintptr_t)pointer;
  for (int i = 0; i < kMaxBlocks; ++i) {
    Block* block = &blocks[i];
    if (block->reserved != 0 && address >= block->address &&
        address < block->address + block->reserved)
      return block;
  }
  return NULL;
}
int cuMemAddressFree(DevicePointer pointer, size_t size) {
  pthread_mutex_lock(&mutex);
  Block* block = Reservation(pointer);
  const int known = block != NULL && block->address == (char*)(uintptr_t)pointer &&
                    block->reserved == size && block->size == 0;
  if (known) {
    block->size = size;
    Unmap(block);
  }
  pthread_mutex_unlock(&mutex);
  return known ? kSuccess : kInvalidValue;
}
int cuMemCreate(unsigned long long* handle, size_t size, const Allocation* allocation,
                unsigned long long flags) {
  const int device = allocation->location.id;
  if (!IsDevice(device) || size == 0 || size % kGranularity != 0 || flags != 0)
    return kInvalidValue;
  pthread_mutex_lock(&mutex);
  int code = kOutOfMemory;
  for (int i = 0; i < kMaxHandles && code != kSuccess && size <= Limit() - used[device]; ++i) {
    if (handles[i].size != 0) continue;
    handles[i].size = size;
    handles[i].device = device;
    used[device] += size;
    *handle = (unsigned long long)i + 1;
    code = kSuccess;
  }
  pthread_mutex_unlock(&mutex);
  return code;
}
int cuMemRelease(unsigned long long handle) {
  if (handle == 0 || handle > kMaxHandles || handles[handle - 1].size == 0) return kInvalidValue;
  pthread_mutex_lock(&mutex);
  used[handles[handle - 1].device] -= handles[handle - 1].size;
  handles[handle - 1].size = 0;
  pthread_mutex_unlock(&mutex);
  return kSuccess;
}
int cuMemMap(DevicePointer pointer, size_t size, size_t offset, unsigned long long handle,
             unsigned long long flags) {
  if (handle == 0 || handle > kMaxHandles || handles[handle - 1].size != size || offset != 0 ||
      flags != 0)
    return kInvalidValue;
  pthread_mutex_lock(&mutex);
  Block* block = Reservation(pointer);
  const int fits = block != NULL && (char*)(uintptr_t)pointer == block->address + block->size &&
                   size <= block->reserved - block->size;
  if (fits) {
    block->device = handles[handle - 1].device;
    block->size += size;
  }
  pthread_mutex_unlock(&mutex);
  return fits ? kSuccess : kInvalidValue;
}
int cuMemSetAccess(DevicePointer pointer, size_t size, const Access* access, size_t count) {
  pthread_mutex_lock(&mutex);
  Block* block = Reservation(pointer);
  const int known = block != NULL &&
                    (char*)(uintptr_t)pointer + size <= block->address + block->size &&
                    count == 1 && access->flags == 3;
  pthread_mutex_unlock(&mutex);
  return known ? kSuccess : kInvalidValue;
}
int cuMemUnmap(DevicePointer pointer, size_t size) {
  pthread_mutex_lock(&mutex);
  Block* block = Reservation(pointer);
  const int known = block != NULL && size <= block->size;
  if (known) block->size -= size;
  pthread_mutex_unlock(&mutex);
  return known ? kSuccess : kInvalidValue;
}
// Not part of CUDA: queries for tests.
int FakeCudaPeer(int device, int peer) {
  return peers[device][peer];
}
size_t FakeCudaUsed(int device) {
  return used[device];
}

int cuIpcGetMemHandle(IpcHandle* handle, DevicePointer pointer) {
  memset(handle, 0, sizeof(*handle));
  pthread_mutex_lock(&mutex);
  Block* block = Find(pointer);
  const int known = block != NULL && block->file[0] != 0;
  if (known) memcpy(handle->bytes, block->file, sizeof(handle->bytes));
  pthread_mutex_unlock(&mutex);
  return known ? kSuccess : kNotSupported;
}
int cuIpcOpenMemHandle_v2(DevicePointer* pointer, IpcHandle handle, unsigned flags) {
  (void)flags;
  char path[4096];
  struct stat status;
  if (Current() < 0) return kNoContext;
  handle.bytes[sizeof(handle.bytes) - 1] = 0;
  if (strncmp(handle.bytes, "fake_cuda.", 10) != 0 || strchr(handle.bytes, '/') != NULL)
    return kInvalidValue;
  if (atoi(handle.bytes + 10) == (int)getpid()) return kNoContext;
  if (!FolderFile(path, sizeof(path), handle.bytes)) return kNotSupported;
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return kInvalidValue;
  pthread_mutex_lock(&mutex);
  Block* block = fstat(fd, &status) == 0 ? Map(fd, (size_t)status.st_size, Current()) : NULL;
  if (block != NULL) {
    block->is_opened = 1;
    *pointer = (uintptr_t)block->address;
  }
  pthread_mutex_unlock(&mutex);
  close(fd);
  return block != NULL ? kSuccess : kOutOfMemory;
}
int cuIpcCloseMemHandle(DevicePointer pointer) {
  pthread_mutex_lock(&mutex);
  Block* block = Find(pointer);
  const int known = block != NULL && block->is_opened;
  if (known) Unmap(block);
  pthread_mutex_unlock(&mutex);
  return known ? kSuccess : kInvalidValue;
}
int cuMemGetAddressRange_v2(DevicePointer* base, size_t* size, DevicePointer pointer) {
  pthread_mutex_lock(&mutex);
  Block* block = Find(pointer);
  if (block != NULL) {
    *base = (uintptr_t)block->address;
    *size = block->size;
  }
  pthread_mutex_unlock(&mutex);
  return block != NULL ? kSuccess : kInvalidValue;
}
