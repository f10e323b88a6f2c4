// The response cache `local`: keeps responses in the memory of this process. Its setting `size` is
// the maximum number of bytes. [any thread]
#include <charconv>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "caches/local/cache_metrics.h"
#include "caches/local/lru_cache.h"
#include "nereid/error.h"
#include "nereid/json.h"
#include "triton/core/tritoncache.h"

namespace {

using nereid::Result;
using nereid::Status;
using nereid::ToError;
using nereid::ToStatus;
using nereid::local_cache::CacheMetrics;
using nereid::local_cache::EntryBuffers;
using nereid::local_cache::LruCache;

struct AttributesDeleter {
  void operator()(TRITONSERVER_BufferAttributes* attributes) const {
    (void)ToStatus(TRITONSERVER_BufferAttributesDelete(attributes));
  }
};
using Attributes = std::unique_ptr<TRITONSERVER_BufferAttributes, AttributesDeleter>;

Result<Attributes> NewAttributes() {
  TRITONSERVER_BufferAttributes* attributes = nullptr;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONSERVER_BufferAttributesNew(&attributes)));
  return Attributes(attributes);
}

struct LocalCache {
  explicit LocalCache(size_t max_bytes) : entries(max_bytes) {}
  LruCache entries;
  CacheMetrics metrics;
};

LocalCache* FromHandle(TRITONCACHE_Cache* cache) {
  return reinterpret_cast<LocalCache*>(cache);
}

uint64_t NowNs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

Result<size_t> ReadSize(const char* config) {
  NEREID_ASSIGN_OR_RETURN(const nereid::Json json, nereid::Json::Parse(config));
  const std::string text(json["size"].AsString());
  size_t size = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), size);
  if (error != std::errc() || end != text.data() + text.size() || size == 0) {
    return nereid::InvalidArgError(
        "cache 'local': setting 'size': expected a number of bytes, got '", text, "'");
  }
  return size;
}

// Allocates memory for every buffer of the entry and lets the host copy the buffers into it.
Result<std::shared_ptr<EntryBuffers>> CopyIntoCache(TRITONCACHE_CacheEntry* entry,
                                                    TRITONCACHE_Allocator* allocator) {
  size_t count = 0;
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONCACHE_CacheEntryBufferCount(entry, &count)));
  auto content = std::make_shared<EntryBuffers>(count);
  NEREID_ASSIGN_OR_RETURN(const Attributes attributes, NewAttributes());
  for (size_t i = 0; i < count; ++i) {
    void* base = nullptr;
    size_t byte_size = 0;
    NEREID_RETURN_IF_ERROR(
        ToStatus(TRITONCACHE_CacheEntryGetBuffer(entry, i, &base, attributes.get())));
    NEREID_RETURN_IF_ERROR(
        ToStatus(TRITONSERVER_BufferAttributesByteSize(attributes.get(), &byte_size)));
    (*content)[i].resize(byte_size);
    NEREID_RETURN_IF_ERROR(ToStatus(
        TRITONCACHE_CacheEntrySetBuffer(entry, i, (*content)[i].data(), attributes.get())));
  }
  NEREID_RETURN_IF_ERROR(ToStatus(TRITONCACHE_Copy(allocator, entry)));
  return content;
}

Status CopyFromCache(const EntryBuffers& content, TRITONCACHE_CacheEntry* entry,
                     TRITONCACHE_Allocator* allocator) {
  NEREID_ASSIGN_OR_RETURN(const Attributes attributes, NewAttributes());
  for (const auto& buffer : content) {
    NEREID_RETURN_IF_ERROR(
        ToStatus(TRITONSERVER_BufferAttributesSetByteSize(attributes.get(), buffer.size())));
    // The host only reads the buffer.
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONCACHE_CacheEntryAddBuffer(
        entry, const_cast<std::byte*>(buffer.data()), attributes.get())));
  }
  return ToStatus(TRITONCACHE_Copy(allocator, entry));
}

Status InsertEntry(LruCache& cache, const char* key, TRITONCACHE_CacheEntry* entry,
                   TRITONCACHE_Allocator* allocator) {
  if (cache.Find(key) != nullptr) {
    return nereid::AlreadyExistsError("cache 'local': key '", key, "' is taken");
  }
  NEREID_ASSIGN_OR_RETURN(auto content, CopyIntoCache(entry, allocator));
  const size_t bytes = LruCache::SizeOf(key, *content);
  switch (cache.Insert(key, std::move(content))) {
    case LruCache::Outcome::kKeyExists:
      return nereid::AlreadyExistsError("cache 'local': key '", key, "' is taken");
    case LruCache::Outcome::kTooLarge:
      return nereid::InvalidArgError("cache 'local': a response takes ", bytes,
                                     " bytes, the whole cache has ", cache.max_bytes());
    case LruCache::Outcome::kInserted:
      break;
  }
  return {};
}

Status Insert(LocalCache& cache, const char* key, TRITONCACHE_CacheEntry* entry,
              TRITONCACHE_Allocator* allocator) {
  const uint64_t start_ns = NowNs();
  NEREID_RETURN_IF_ERROR(InsertEntry(cache.entries, key, entry, allocator));
  cache.metrics.OnInsertion(NowNs() - start_ns);
  const LruCache::Stats stats = cache.entries.stats();
  cache.metrics.OnChange(
      static_cast<double>(stats.bytes) / static_cast<double>(cache.entries.max_bytes()),
      stats.num_entries, stats.num_evictions);
  return {};
}

Status Lookup(LocalCache& cache, const char* key, TRITONCACHE_CacheEntry* entry,
              TRITONCACHE_Allocator* allocator) {
  const uint64_t start_ns = NowNs();
  const auto content = cache.entries.Find(key);
  const Status status = content == nullptr
                            ? nereid::NotFoundError("cache 'local': no entry '", key, "'")
                            : CopyFromCache(*content, entry, allocator);
  cache.metrics.OnLookup(content != nullptr, NowNs() - start_ns);
  return status;
}

}  // namespace

extern "C" {

TRITONCACHE_ISPEC TRITONSERVER_Error* TRITONCACHE_CacheInitialize(TRITONCACHE_Cache** cache,
                                                                  const char* config) {
  return nereid::GuardCBoundary("local", [&]() -> Status {
    if (cache == nullptr || config == nullptr) {
      return nereid::InvalidArgError("cache 'local': initialised with a null pointer");
    }
    NEREID_ASSIGN_OR_RETURN(const size_t size, ReadSize(config));
    *cache = reinterpret_cast<TRITONCACHE_Cache*>(new LocalCache(size));
    return {};
  });
}

TRITONCACHE_ISPEC TRITONSERVER_Error* TRITONCACHE_CacheFinalize(TRITONCACHE_Cache* cache) {
  delete FromHandle(cache);
  return nullptr;
}

TRITONCACHE_ISPEC TRITONSERVER_Error* TRITONCACHE_CacheInsert(TRITONCACHE_Cache* cache,
                                                              const char* key,
                                                              TRITONCACHE_CacheEntry* entry,
                                                              TRITONCACHE_Allocator* allocator) {
  return nereid::GuardCBoundary("local",
                                [&] { return Insert(*FromHandle(cache), key, entry, allocator); });
}

TRITONCACHE_ISPEC TRITONSERVER_Error* TRITONCACHE_CacheLookup(TRITONCACHE_Cache* cache,
                                                              const char* key,
                                                              TRITONCACHE_CacheEntry* entry,
                                                              TRITONCACHE_Allocator* allocator) {
  return nereid::GuardCBoundary(
      "local", [&]() -> Status { return Lookup(*FromHandle(cache), key, entry, allocator); });
}

}  // extern "C"
