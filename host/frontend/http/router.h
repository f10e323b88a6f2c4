// Which endpoint a path names. Paths are matched as they are sent, without decoding, as Triton
// does. Pure. [any thread]
#pragma once

#include <string_view>

#include "host/frontend/http/calls/request_builder.h"
#include "host/frontend/http/transport/request.h"
#include "host/frontend/restricted_apis.h"

namespace nereid::http {

enum class Endpoint {
  kUnknown,
  kServerLive,
  kServerReady,
  kServerMetadata,
  kModelMetadata,
  kModelReady,
  kModelConfig,
  kModelStatistics,
  kAllStatistics,
  kRepositoryIndex,
  kModelLoad,
  kModelUnload,
  kInfer,
  kGenerate,
  kGenerateStream,
  kLogSettings,
  kTraceSettings,
  kSystemMemoryStatus,
  kSystemMemoryRegister,
  kSystemMemoryUnregister,
  kCudaMemoryStatus,
  kCudaMemoryRegister,
  kCudaMemoryUnregister,
};

struct Route {
  Endpoint endpoint = Endpoint::kUnknown;
  ModelName model = {};                // of the endpoints that name one
  std::string region = {};             // of shared memory; empty for all
  std::string repository = {};         // of the repository's endpoints; empty: not named
  std::string oversized_version = {};  // of a model; empty: it fits
};

Route FindRoute(std::string_view path);

// The group of endpoints that can be restricted together; not for kUnknown.
ApiGroup GroupOf(Endpoint endpoint);

bool Takes(Endpoint endpoint, Method method);

}  // namespace nereid::http
