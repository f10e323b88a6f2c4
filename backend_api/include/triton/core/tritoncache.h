#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "triton/core/tritonserver.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TRITONCACHE_DECLSPEC __attribute__((visibility("default")))
#define TRITONCACHE_ISPEC TRITONCACHE_DECLSPEC

struct TRITONCACHE_Cache;
struct TRITONCACHE_CacheEntry;
struct TRITONCACHE_Allocator;

#define TRITONCACHE_API_VERSION_MAJOR 0
#define TRITONCACHE_API_VERSION_MINOR 1

TRITONCACHE_DECLSPEC struct TRITONSERVER_Error* TRITONCACHE_ApiVersion(uint32_t* major,
                                                                       uint32_t* minor);
TRITONCACHE_DECLSPEC struct TRITONSERVER_Error* TRITONCACHE_CacheEntryBufferCount(
    struct TRITONCACHE_CacheEntry* entry, size_t* count);
TRITONCACHE_DECLSPEC struct TRITONSERVER_Error* TRITONCACHE_CacheEntryAddBuffer(
    struct TRITONCACHE_CacheEntry* entry, void* base,
    struct TRITONSERVER_BufferAttributes* buffer_attributes);
TRITONCACHE_DECLSPEC struct TRITONSERVER_Error* TRITONCACHE_CacheEntryGetBuffer(
    struct TRITONCACHE_CacheEntry* entry, size_t index, void** base,
    struct TRITONSERVER_BufferAttributes* buffer_attributes);
TRITONCACHE_DECLSPEC struct TRITONSERVER_Error* TRITONCACHE_CacheEntrySetBuffer(
    struct TRITONCACHE_CacheEntry* entry, size_t index, void* new_base,
    struct TRITONSERVER_BufferAttributes* buffer_attributes);
TRITONCACHE_DECLSPEC struct TRITONSERVER_Error* TRITONCACHE_Copy(
    struct TRITONCACHE_Allocator* allocator, struct TRITONCACHE_CacheEntry* entry);
TRITONCACHE_ISPEC struct TRITONSERVER_Error* TRITONCACHE_CacheInitialize(
    struct TRITONCACHE_Cache** cache, const char* config);
TRITONCACHE_ISPEC struct TRITONSERVER_Error* TRITONCACHE_CacheFinalize(
    struct TRITONCACHE_Cache* cache);
TRITONCACHE_ISPEC struct TRITONSERVER_Error* TRITONCACHE_CacheInsert(
    struct TRITONCACHE_Cache* cache, const char* key, struct TRITONCACHE_CacheEntry* entry,
    struct TRITONCACHE_Allocator* allocator);
TRITONCACHE_ISPEC struct TRITONSERVER_Error* TRITONCACHE_CacheLookup(
    struct TRITONCACHE_Cache* cache, const char* key, struct TRITONCACHE_CacheEntry* entry,
    struct TRITONCACHE_Allocator* allocator);

#ifdef __cplusplus
}
#endif
