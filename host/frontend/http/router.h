// Maps paths to endpoints. Paths are compared as sent, without percent-decoding, as Triton does.
// Pure. [any thread]
#pragma once

#include <string_view>

#include "host/frontend/api_operation.h"
#include "host/frontend/http/calls/request_builder.h"
#include "host/frontend/http/transport/http_request.h"

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
  RequestedModel model = {};           // for endpoints of a model
  std::string region = {};             // shared-memory region; empty means all
  std::string repository = {};         // for repository endpoints; empty if the path names none
  std::string oversized_version = {};  // text of a version that exceeds int64; otherwise empty
};

Route FindRoute(std::string_view path);

// Returns what a request to `endpoint`, which is not kUnknown, asks for. A load request that
// carries a configuration or files asks for more; only its body says so.
ApiOperation OperationOf(Endpoint endpoint, Method method);

bool AcceptsMethod(Endpoint endpoint, Method method);

}  // namespace nereid::http
