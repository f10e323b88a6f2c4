// A cache that misbehaves as its setting `fault` tells it, on the raw C API:
//   initialize   an error from TRITONCACHE_CacheInitialize
//   lookup       an error from every look-up
//   insert       an error from every insertion
//   garbage      finds every key, with bytes that nobody cached
//   no_copy      finds every key and copies nothing
//   many         finds every key, in three buffers
//   throw        lets an exception out of TRITONCACHE_CacheFinalize
//   hang:<path>  does not return from TRITONCACHE_CacheFinalize until there is such a file
// Insertions of the others are forgotten.
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

bool Is(TRITONCACHE_Cache* cache, const char* fault) {
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

// What `key` is followed by in the configuration, up to the next quotation mark.
std::string Behind(const std::string& config, const std::string& key) {
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
  if (!Is(*cache, "initialize")) return nullptr;
  delete reinterpret_cast<State*>(*cache);
  return Fail("faulty: initialize fails as told");
}

// One that hung writes to the file when it is let go.
TRITONCACHE_ISPEC TRITONSERVER_Error* TRITONCACHE_CacheFinalize(TRITONCACHE_Cache* cache) {
  const std::string config = reinterpret_cast<State*>(cache)->config;
  delete reinterpret_cast<State*>(cache);
  if (config.find("throw") != std::string::npos) throw std::runtime_error("faulty: as told");
  const std::string path = Behind(config, "hang:");
  if (path.empty()) return nullptr;
  while (!std::filesystem::exists(path)) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::ofstream(path) << "ended";
  return nullptr;
}

TRITONCACHE_ISPEC TRITONSERVER_Error* TRITONCACHE_CacheInsert(TRITONCACHE_Cache* cache,
                                                              const char* key,
                                                              TRITONCACHE_CacheEntry* entry,
                                                              TRITONCACHE_Allocator* allocator) {
  (void)key;
  if (Is(cache, "insert")) return Fail("faulty: insert fails as told");
  // No buffer was set: the host must refuse to copy into nowhere.
  TRITONSERVER_ErrorDelete(TRITONCACHE_Copy(allocator, entry));
  return nullptr;
}

TRITONCACHE_ISPEC TRITONSERVER_Error* TRITONCACHE_CacheLookup(TRITONCACHE_Cache* cache,
                                                              const char* key,
                                                              TRITONCACHE_CacheEntry* entry,
                                                              TRITONCACHE_Allocator* allocator) {
  (void)key;
  if (Is(cache, "lookup")) return Fail("faulty: lookup fails as told");
  if (Is(cache, "no_copy")) return nullptr;
  const int count = Is(cache, "garbage") ? 1 : Is(cache, "many") ? 3 : 0;
  if (count == 0) return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_NOT_FOUND, "faulty: a miss");
  for (int i = 0; i < count; ++i) {
    TRITONSERVER_Error* error = AddBuffer(entry);
    if (error != nullptr) return error;
  }
  return TRITONCACHE_Copy(allocator, entry);
}

}  // extern "C"
