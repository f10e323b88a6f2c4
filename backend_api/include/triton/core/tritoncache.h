// The response cache API: a shared object `libtritoncache_<name>.so` that keeps responses by
// key. The functions marked ISPEC are the cache's to implement, all four. The rules at the top
// of tritonserver.h hold here too.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "triton/core/tritonserver.h"

#ifdef __cplusplus
extern "C" {
#endif

// On what the host exports, and on what a plug-in exports.
#define TRITONCACHE_DECLSPEC __attribute__((visibility("default")))
#define TRITONCACHE_ISPEC TRITONCACHE_DECLSPEC

// Of this header; see TRITONCACHE_ApiVersion.
#define TRITONCACHE_API_VERSION_MAJOR 0
#define TRITONCACHE_API_VERSION_MINOR 1

// Opaque handles.
struct TRITONCACHE_Cache;
struct TRITONCACHE_CacheEntry;
struct TRITONCACHE_Allocator;

// ---- Types

// The host's version of this API.
//   major, minor  out
TRITONCACHE_DECLSPEC struct TRITONSERVER_Error* TRITONCACHE_ApiVersion(uint32_t* major,
                                                                       uint32_t* minor);

// ---- Entries
//
// The buffers of one response, in order. The host fills an entry before Insert and reads it
// after Lookup.

// An empty entry of the caller's own. An addition to version 0.1, which hosts export beyond the
// declared set.
//   entry  out; the caller's
TRITONCACHE_DECLSPEC struct TRITONSERVER_Error* TRITONCACHE_CacheEntryNew(
    struct TRITONCACHE_CacheEntry** entry);

// Frees what CacheEntryNew made. The buffers stay their owner's. An addition as CacheEntryNew.
TRITONCACHE_DECLSPEC struct TRITONSERVER_Error* TRITONCACHE_CacheEntryDelete(
    struct TRITONCACHE_CacheEntry* entry);

// How many buffers the entry has.
TRITONCACHE_DECLSPEC struct TRITONSERVER_Error* TRITONCACHE_CacheEntryBufferCount(
    struct TRITONCACHE_CacheEntry* entry, size_t* count);

// In Lookup: adds one of the cached buffers.
//   base               referenced until Copy returned
//   buffer_attributes  its size and memory; copied
TRITONCACHE_DECLSPEC struct TRITONSERVER_Error* TRITONCACHE_CacheEntryAddBuffer(
    struct TRITONCACHE_CacheEntry* entry, void* base,
    struct TRITONSERVER_BufferAttributes* buffer_attributes);

// One buffer of the entry.
//   base               out; null in Lookup until it was set
//   buffer_attributes  filled in; the caller's
//   Errors: INVALID_ARG, index out of range.
TRITONCACHE_DECLSPEC struct TRITONSERVER_Error* TRITONCACHE_CacheEntryGetBuffer(
    struct TRITONCACHE_CacheEntry* entry, size_t index, void** base,
    struct TRITONSERVER_BufferAttributes* buffer_attributes);

// In Insert: the place in the cache to which Copy is to copy this buffer.
//   new_base           optional: null leaves the place unchanged
//   buffer_attributes  copied
//   Errors: INVALID_ARG, index out of range.
TRITONCACHE_DECLSPEC struct TRITONSERVER_Error* TRITONCACHE_CacheEntrySetBuffer(
    struct TRITONCACHE_CacheEntry* entry, size_t index, void* new_base,
    struct TRITONSERVER_BufferAttributes* buffer_attributes);

// Lets the host copy all buffers of the entry: to the places set in Insert, from the places
// added in Lookup.
TRITONCACHE_DECLSPEC struct TRITONSERVER_Error* TRITONCACHE_Copy(
    struct TRITONCACHE_Allocator* allocator, struct TRITONCACHE_CacheEntry* entry);

// ---- Entry points of a cache
//
// Insert and Lookup are called by several threads at once.

// Once, when the server starts.
//   cache   out; a pointer of the cache's
//   config  the cache's settings, as a JSON object
TRITONCACHE_ISPEC struct TRITONSERVER_Error* TRITONCACHE_CacheInitialize(
    struct TRITONCACHE_Cache** cache, const char* config);

// When the server ends; frees everything.
TRITONCACHE_ISPEC struct TRITONSERVER_Error* TRITONCACHE_CacheFinalize(
    struct TRITONCACHE_Cache* cache);

// Keeps a response.
//   Errors: ALREADY_EXISTS, the key is taken: the host takes no offence.
TRITONCACHE_ISPEC struct TRITONSERVER_Error* TRITONCACHE_CacheInsert(
    struct TRITONCACHE_Cache* cache, const char* key, struct TRITONCACHE_CacheEntry* entry,
    struct TRITONCACHE_Allocator* allocator);

// Looks a response up.
//   Errors: NOT_FOUND, a miss.
TRITONCACHE_ISPEC struct TRITONSERVER_Error* TRITONCACHE_CacheLookup(
    struct TRITONCACHE_Cache* cache, const char* key, struct TRITONCACHE_CacheEntry* entry,
    struct TRITONCACHE_Allocator* allocator);

#ifdef __cplusplus
}  // extern "C"
#endif
