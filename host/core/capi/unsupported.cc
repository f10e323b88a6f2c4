// The functions of the table that nothing implements yet: repository agents and response caches.
// They are exported, so that every plug-in resolves, and answer UNSUPPORTED with their own name.
// [any thread]
#include "capi/handles.h"
#include "triton/core/tritoncache.h"
#include "triton/core/tritonrepoagent.h"

#define NEREID_UNSUPPORTED(function, ...)                                            \
  TRITONSERVER_Error* function(__VA_ARGS__) {                                        \
    return nereid::ToError(                                                          \
        nereid::UnsupportedError(#function " is not supported by this server yet")); \
  }

extern "C" {

NEREID_UNSUPPORTED(TRITONREPOAGENT_ModelRepositoryLocation, TRITONREPOAGENT_Agent*,
                   TRITONREPOAGENT_AgentModel*, TRITONREPOAGENT_ArtifactType*, const char**)
NEREID_UNSUPPORTED(TRITONREPOAGENT_ModelRepositoryLocationAcquire, TRITONREPOAGENT_Agent*,
                   TRITONREPOAGENT_AgentModel*, const TRITONREPOAGENT_ArtifactType, const char**)
NEREID_UNSUPPORTED(TRITONREPOAGENT_ModelRepositoryLocationRelease, TRITONREPOAGENT_Agent*,
                   TRITONREPOAGENT_AgentModel*, const char*)
NEREID_UNSUPPORTED(TRITONREPOAGENT_ModelRepositoryUpdate, TRITONREPOAGENT_Agent*,
                   TRITONREPOAGENT_AgentModel*, const TRITONREPOAGENT_ArtifactType, const char*)
NEREID_UNSUPPORTED(TRITONREPOAGENT_ModelParameterCount, TRITONREPOAGENT_Agent*,
                   TRITONREPOAGENT_AgentModel*, uint32_t*)
NEREID_UNSUPPORTED(TRITONREPOAGENT_ModelParameter, TRITONREPOAGENT_Agent*,
                   TRITONREPOAGENT_AgentModel*, const uint32_t, const char**, const char**)
NEREID_UNSUPPORTED(TRITONREPOAGENT_ModelConfig, TRITONREPOAGENT_Agent*, TRITONREPOAGENT_AgentModel*,
                   const uint32_t, TRITONSERVER_Message**)
NEREID_UNSUPPORTED(TRITONREPOAGENT_ModelState, TRITONREPOAGENT_AgentModel*, void**)
NEREID_UNSUPPORTED(TRITONREPOAGENT_ModelSetState, TRITONREPOAGENT_AgentModel*, void*)
NEREID_UNSUPPORTED(TRITONREPOAGENT_State, TRITONREPOAGENT_Agent*, void**)
NEREID_UNSUPPORTED(TRITONREPOAGENT_SetState, TRITONREPOAGENT_Agent*, void*)

NEREID_UNSUPPORTED(TRITONCACHE_CacheEntryNew, TRITONCACHE_CacheEntry**)
NEREID_UNSUPPORTED(TRITONCACHE_CacheEntryDelete, TRITONCACHE_CacheEntry*)
NEREID_UNSUPPORTED(TRITONCACHE_CacheEntryBufferCount, TRITONCACHE_CacheEntry*, size_t*)
NEREID_UNSUPPORTED(TRITONCACHE_CacheEntryAddBuffer, TRITONCACHE_CacheEntry*, void*,
                   TRITONSERVER_BufferAttributes*)
NEREID_UNSUPPORTED(TRITONCACHE_CacheEntryGetBuffer, TRITONCACHE_CacheEntry*, size_t, void**,
                   TRITONSERVER_BufferAttributes*)
NEREID_UNSUPPORTED(TRITONCACHE_CacheEntrySetBuffer, TRITONCACHE_CacheEntry*, size_t, void*,
                   TRITONSERVER_BufferAttributes*)
NEREID_UNSUPPORTED(TRITONCACHE_Copy, TRITONCACHE_Allocator*, TRITONCACHE_CacheEntry*)

}  // extern "C"
