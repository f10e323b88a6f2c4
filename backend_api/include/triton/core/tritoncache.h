// The response cache API: a shared library `libtritoncache_<name>.so` that stores responses by key.
// The cache implements all four functions marked ISPEC. The rules at the top of tritonserver.h
// apply here too.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "triton/core/tritonserver.h"

#ifdef __cplusplus
extern "C" {
#endif

// For functions that the host exports, and for functions that a plug-in exports.
#define TRITONCACHE_DECLSPEC __attribute__((visibility("default")))
#define TRITONCACHE_ISPEC TRITONCACHE_DECLSPEC

// The version of this header; see TRITONCACHE_ApiVersion.
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
// The buffers of one response, in order. The host fills an entry before Insert and reads it after
// Lookup.

// Creates an empty entry. An addition to version 0.1 that hosts export beyond the declared
// functions.
//   entry  out; owned by the caller
TRITONCACHE_DECLSPEC struct TRITONSERVER_Error* TRITONCACHE_CacheEntryNew(
    struct TRITONCACHE_CacheEntry** entry);

// Deletes an entry that CacheEntryNew created. The buffers stay their owner's. An addition like
// CacheEntryNew.
TRITONCACHE_DECLSPEC struct TRITONSERVER_Error* TRITONCACHE_CacheEntryDelete(
    struct TRITONCACHE_CacheEntry* entry);

// Reads the number of buffers of the entry.
TRITONCACHE_DECLSPEC struct TRITONSERVER_Error* TRITONCACHE_CacheEntryBufferCount(
    struct TRITONCACHE_CacheEntry* entry, size_t* count);

// Adds one of the cached buffers, during Lookup.
//   base               referenced until Copy has returned
//   buffer_attributes  its size and memory; copied
TRITONCACHE_DECLSPEC struct TRITONSERVER_Error* TRITONCACHE_CacheEntryAddBuffer(
    struct TRITONCACHE_CacheEntry* entry, void* base,
    struct TRITONSERVER_BufferAttributes* buffer_attributes);

// Reads one buffer of the entry.
//   base               out; in Lookup null until it was set
//   buffer_attributes  filled in; owned by the caller
//   Errors: INVALID_ARG, index out of range.
TRITONCACHE_DECLSPEC struct TRITONSERVER_Error* TRITONCACHE_CacheEntryGetBuffer(
    struct TRITONCACHE_CacheEntry* entry, size_t index, void** base,
    struct TRITONSERVER_BufferAttributes* buffer_attributes);

// Sets the memory of the cache to which Copy copies this buffer, during Insert.
//   new_base           optional: null leaves the buffer unchanged
//   buffer_attributes  copied
//   Errors: INVALID_ARG, index out of range.
TRITONCACHE_DECLSPEC struct TRITONSERVER_Error* TRITONCACHE_CacheEntrySetBuffer(
    struct TRITONCACHE_CacheEntry* entry, size_t index, void* new_base,
    struct TRITONSERVER_BufferAttributes* buffer_attributes);

// Lets the host copy all buffers of the entry: into the memory that was set during Insert, or out
// of the buffers that were added during Lookup.
TRITONCACHE_DECLSPEC struct TRITONSERVER_Error* TRITONCACHE_Copy(
    struct TRITONCACHE_Allocator* allocator, struct TRITONCACHE_CacheEntry* entry);

// ---- Entry points of a cache
//
// Several threads call Insert and Lookup concurrently.

// Called once, when the server starts.
//   cache   out; a pointer of the cache
//   config  the cache's settings, as a JSON object
TRITONCACHE_ISPEC struct TRITONSERVER_Error* TRITONCACHE_CacheInitialize(
    struct TRITONCACHE_Cache** cache, const char* config);

// Called when the server ends; frees everything.
TRITONCACHE_ISPEC struct TRITONSERVER_Error* TRITONCACHE_CacheFinalize(
    struct TRITONCACHE_Cache* cache);

// Stores a response.
//   Errors: ALREADY_EXISTS, the key exists already; the host ignores this error.
TRITONCACHE_ISPEC struct TRITONSERVER_Error* TRITONCACHE_CacheInsert(
    struct TRITONCACHE_Cache* cache, const char* key, struct TRITONCACHE_CacheEntry* entry,
    struct TRITONCACHE_Allocator* allocator);

// Looks up a response.
//   Errors: NOT_FOUND, a miss.
TRITONCACHE_ISPEC struct TRITONSERVER_Error* TRITONCACHE_CacheLookup(
    struct TRITONCACHE_Cache* cache, const char* key, struct TRITONCACHE_CacheEntry* entry,
    struct TRITONCACHE_Allocator* allocator);

#ifdef __cplusplus
}  // extern "C"
#endif
