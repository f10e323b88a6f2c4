// A cache on the raw C API that misbehaves according to its setting `fault`:
//   initialize   TRITONCACHE_CacheInitialize fails
//   lookup       every lookup fails
//   insert       every insertion fails
//   garbage      every lookup returns arbitrary bytes
//   no_copy      every lookup succeeds and copies nothing
//   many         every lookup returns three buffers
//   throw        TRITONCACHE_CacheFinalize throws an exception
//   hang:<path>  TRITONCACHE_CacheFinalize does not return before this file exists
// With other settings insertions are dropped.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "triton/core/tritoncache.h"

namespace {

struct State {
  std::string config;
};

TRITONSERVER_Error* Fail(const char* message) {
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, message);
}

bool HasFault(TRITONCACHE_Cache* cache, const char* fault) {
  return reinterpret_cast<State*>(cache)->config.find(fault) != std::string::npos;
}

TRITONSERVER_Error* AddBuffer(TRITONCACHE_CacheEntry* entry) {
  static char bytes[100];
  TRITONSERVER_BufferAttributes* attributes = nullptr;
  TRITONSERVER_Error* error = TRITONSERVER_BufferAttributesNew(&attributes);
  if (error != nullptr) return error;
  error = TRITONSERVER_BufferAttributesSetByteSize(attributes, sizeof(bytes));
  if (error == nullptr) error = TRITONCACHE_CacheEntryAddBuffer(entry, bytes, attributes);
  TRITONSERVER_BufferAttributesDelete(attributes);
  return error;
}

// Returns the text between `key` and the next quotation mark in the configuration.
std::string ValueAfter(const std::string& config, const std::string& key) {
  const size_t begin = config.find(key);
  if (begin == std::string::npos) return "";
  const size_t from = begin + key.size();
  return config.substr(from, config.find('"', from) - from);
}

}  // namespace

extern "C" {

TRITONCACHE_ISPEC TRITONSERVER_Error* TRITONCACHE_CacheInitialize(TRITONCACHE_Cache** cache,
                                                                  const char* config) {
  *cache = reinterpret_cast<TRITONCACHE_Cache*>(new State{config});
  if (!HasFault(*cache, "initialize")) return nullptr;
  delete reinterpret_cast<State*>(*cache);
  return Fail("faulty: initialize fails as told");
}

// After hanging, it writes to another file: the test may still be writing to the first one.
TRITONCACHE_ISPEC TRITONSERVER_Error* TRITONCACHE_CacheFinalize(TRITONCACHE_Cache* cache) {
  const std::string config = reinterpret_cast<State*>(cache)->config;
  delete reinterpret_cast<State*>(cache);
  if (config.find("throw") != std::string::npos) throw std::runtime_error("faulty: as told");
  const std::string path = ValueAfter(config, "hang:");
  if (path.empty()) return nullptr;
  while (!std::filesystem::exists(path)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::ofstream(path + ".ended") << "ended";
  return nullptr;
}

TRITONCACHE_ISPEC TRITONSERVER_Error* TRITONCACHE_CacheInsert(TRITONCACHE_Cache* cache,
                                                              const char* key,
                                                              TRITONCACHE_CacheEntry* entry,
                                                              TRITONCACHE_Allocator* allocator) {
  (void)key;
  if (HasFault(cache, "insert")) return Fail("faulty: insert fails as told");
  // No buffer was set, so the host must reject the copy.
  TRITONSERVER_ErrorDelete(TRITONCACHE_Copy(allocator, entry));
  return nullptr;
}

TRITONCACHE_ISPEC TRITONSERVER_Error* TRITONCACHE_CacheLookup(TRITONCACHE_Cache* cache,
                                                              const char* key,
                                                              TRITONCACHE_CacheEntry* entry,
                                                              TRITONCACHE_Allocator* allocator) {
  (void)key;
  if (HasFault(cache, "lookup")) return Fail("faulty: lookup fails as told");
  if (HasFault(cache, "no_copy")) return nullptr;
  const int count = HasFault(cache, "garbage") ? 1 : HasFault(cache, "many") ? 3 : 0;
  if (count == 0) return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_NOT_FOUND, "faulty: a miss");
  for (int i = 0; i < count; ++i) {
    TRITONSERVER_Error* error = AddBuffer(entry);
    if (error != nullptr) return error;
  }
  return TRITONCACHE_Copy(allocator, entry);
}

}  // extern "C"
