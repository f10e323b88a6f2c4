// TRITONCACHE_*: access to a cache entry during Insert and Lookup. [the thread of that call]
#include "host/core/cache/cache_plugin.h"
#include "host/core/capi/handles.h"

using nereid::Status;
using nereid::core::AtCBoundary;
using nereid::core::CacheEntry;
using nereid::core::FromHandle;
using nereid::core::ToHandle;

namespace {

nereid::Result<CacheEntry::Buffer*> BufferAt(TRITONCACHE_CacheEntry* entry, size_t index) {
  auto& buffers = FromHandle(entry)->buffers;
  if (index < buffers.size()) return &buffers[index];
  return nereid::InvalidArgError("out of bounds index ", index, ": cache entry has ",
                                 buffers.size(), " buffers");
}

}  // namespace

extern "C" {

TRITONSERVER_Error* TRITONCACHE_CacheEntryNew(TRITONCACHE_CacheEntry** entry) {
  NEREID_RETURN_IF_NULL(entry);
  return AtCBoundary([&] {
    *entry = ToHandle(new CacheEntry);
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONCACHE_CacheEntryDelete(TRITONCACHE_CacheEntry* entry) {
  NEREID_RETURN_IF_NULL(entry);
  delete FromHandle(entry);
  return nullptr;
}

TRITONSERVER_Error* TRITONCACHE_CacheEntryBufferCount(TRITONCACHE_CacheEntry* entry,
                                                      size_t* count) {
  NEREID_RETURN_IF_NULL(entry);
  NEREID_RETURN_IF_NULL(count);
  *count = FromHandle(entry)->buffers.size();
  return nullptr;
}

TRITONSERVER_Error* TRITONCACHE_CacheEntryAddBuffer(
    TRITONCACHE_CacheEntry* entry, void* base, TRITONSERVER_BufferAttributes* buffer_attributes) {
  NEREID_RETURN_IF_NULL(entry);
  NEREID_RETURN_IF_NULL(base);
  NEREID_RETURN_IF_NULL(buffer_attributes);
  return AtCBoundary([&] {
    FromHandle(entry)->buffers.push_back({base, *FromHandle(buffer_attributes)});
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONCACHE_CacheEntryGetBuffer(
    TRITONCACHE_CacheEntry* entry, size_t index, void** base,
    TRITONSERVER_BufferAttributes* buffer_attributes) {
  NEREID_RETURN_IF_NULL(entry);
  NEREID_RETURN_IF_NULL(base);
  NEREID_RETURN_IF_NULL(buffer_attributes);
  return AtCBoundary([&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(const CacheEntry::Buffer* buffer, BufferAt(entry, index));
    *base = buffer->base;
    *FromHandle(buffer_attributes) = buffer->attributes;
    return Status::Ok();
  });
}

// A null base or null attributes leave the previous value.
TRITONSERVER_Error* TRITONCACHE_CacheEntrySetBuffer(
    TRITONCACHE_CacheEntry* entry, size_t index, void* new_base,
    TRITONSERVER_BufferAttributes* buffer_attributes) {
  NEREID_RETURN_IF_NULL(entry);
  return AtCBoundary([&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(CacheEntry::Buffer * buffer, BufferAt(entry, index));
    if (new_base != nullptr) buffer->base = new_base;
    if (buffer_attributes != nullptr) buffer->attributes = *FromHandle(buffer_attributes);
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONCACHE_Copy(TRITONCACHE_Allocator* allocator,
                                     TRITONCACHE_CacheEntry* entry) {
  NEREID_RETURN_IF_NULL(allocator);
  NEREID_RETURN_IF_NULL(entry);
  return AtCBoundary([&] { return FromHandle(allocator)->Copy(*FromHandle(entry)); });
}

}  // extern "C"
