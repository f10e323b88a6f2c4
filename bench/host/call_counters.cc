// See call_counters.h.
#include "bench/host/call_counters.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstddef>

// Makes a function take precedence over glibc's in every library of the process.
#define EXPORTED __attribute__((visibility("default")))

namespace {

std::atomic<uint64_t> g_allocations{0};
std::atomic<uint64_t> g_locks{0};
std::atomic<uint64_t> g_signals{0};

void Count(std::atomic<uint64_t>* counter) {
  counter->fetch_add(1, std::memory_order_relaxed);
}

template <typename Function>
Function* Next(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

CallCounts ReadCallCounts() {
  return {g_allocations.load(), g_locks.load(), g_signals.load()};
}

extern "C" {

void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* block, size_t size);
void* __libc_memalign(size_t alignment, size_t size);

void* malloc(size_t size) {
  Count(&g_allocations);
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  Count(&g_allocations);
  return __libc_calloc(count, size);
}
void* realloc(void* block, size_t size) {
  Count(&g_allocations);
  return __libc_realloc(block, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  Count(&g_allocations);
  return __libc_memalign(alignment, size);
}

EXPORTED int pthread_mutex_lock(pthread_mutex_t* mutex) {
  static auto* const next = Next(&pthread_mutex_lock, "pthread_mutex_lock");
  Count(&g_locks);
  return next(mutex);
}
EXPORTED int pthread_cond_signal(pthread_cond_t* condition) {
  static auto* const next = Next(&pthread_cond_signal, "pthread_cond_signal");
  Count(&g_signals);
  return next(condition);
}
EXPORTED int pthread_cond_broadcast(pthread_cond_t* condition) {
  static auto* const next = Next(&pthread_cond_broadcast, "pthread_cond_broadcast");
  Count(&g_signals);
  return next(condition);
}

}  // extern "C"
