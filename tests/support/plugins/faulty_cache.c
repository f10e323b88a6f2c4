// A cache that misbehaves as its setting `fault` tells it, on the raw C API:
//   initialize   an error from TRITONCACHE_CacheInitialize
//   lookup       an error from every look-up
//   insert       an error from every insertion
//   garbage      finds every key, with bytes that nobody cached
//   no_copy      finds every key and copies nothing
//   many         finds every key, in three buffers
// Insertions of the others are forgotten.
#include <stdlib.h>
#include <string.h>

#include "triton/core/tritoncache.h"

struct State {
  char fault[256];
};

static struct TRITONSERVER_Error* Fail(const char* message) {
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_INTERNAL, message);
}

static int Is(struct TRITONCACHE_Cache* cache, const char* fault) {
  return strstr(((struct State*)cache)->fault, fault) != NULL;
}

static struct TRITONSERVER_Error* AddBuffer(struct TRITONCACHE_CacheEntry* entry) {
  static char bytes[100];
  struct TRITONSERVER_BufferAttributes* attributes = NULL;
  struct TRITONSERVER_Error* error = TRITONSERVER_BufferAttributesNew(&attributes);
  if (error != NULL) return error;
  error = TRITONSERVER_BufferAttributesSetByteSize(attributes, sizeof(bytes));
  if (error == NULL) error = TRITONCACHE_CacheEntryAddBuffer(entry, bytes, attributes);
  TRITONSERVER_BufferAttributesDelete(attributes);
  return error;
}

TRITONCACHE_ISPEC struct TRITONSERVER_Error* TRITONCACHE_CacheInitialize(
    struct TRITONCACHE_Cache** cache, const char* config) {
  struct State* state = calloc(1, sizeof(struct State));
  if (state == NULL) return Fail("faulty: no memory");
  strncpy(state->fault, config, sizeof(state->fault) - 1);
  *cache = (struct TRITONCACHE_Cache*)state;
  if (!Is(*cache, "initialize")) return NULL;
  free(state);
  return Fail("faulty: initialize fails as told");
}

TRITONCACHE_ISPEC struct TRITONSERVER_Error* TRITONCACHE_CacheFinalize(
    struct TRITONCACHE_Cache* cache) {
  free(cache);
  return NULL;
}

TRITONCACHE_ISPEC struct TRITONSERVER_Error* TRITONCACHE_CacheInsert(
    struct TRITONCACHE_Cache* cache, const char* key, struct TRITONCACHE_CacheEntry* entry,
    struct TRITONCACHE_Allocator* allocator) {
  (void)key;
  if (Is(cache, "insert")) return Fail("faulty: insert fails as told");
  // No buffer was set: the host must refuse to copy into nowhere.
  TRITONSERVER_ErrorDelete(TRITONCACHE_Copy(allocator, entry));
  return NULL;
}

TRITONCACHE_ISPEC struct TRITONSERVER_Error* TRITONCACHE_CacheLookup(
    struct TRITONCACHE_Cache* cache, const char* key, struct TRITONCACHE_CacheEntry* entry,
    struct TRITONCACHE_Allocator* allocator) {
  (void)key;
  if (Is(cache, "lookup")) return Fail("faulty: lookup fails as told");
  if (Is(cache, "no_copy")) return NULL;
  const int count = Is(cache, "garbage") ? 1 : Is(cache, "many") ? 3 : 0;
  if (count == 0) return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_NOT_FOUND, "faulty: a miss");
  for (int i = 0; i < count; ++i) {
    struct TRITONSERVER_Error* error = AddBuffer(entry);
    if (error != NULL) return error;
  }
  return TRITONCACHE_Copy(allocator, entry);
}
