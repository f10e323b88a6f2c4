// Matches paths with a few string comparisons per request.
#include "host/frontend/http/router.h"

#include <charconv>

namespace nereid::http {
namespace {

// Removes the text up to the next '/' from `path` and returns it.
std::string_view ConsumeSegment(std::string_view& path) {
  const size_t slash = path.find('/');
  const std::string_view segment = path.substr(0, slash);
  path.remove_prefix(slash == std::string_view::npos ? path.size() : slash + 1);
  return segment;
}

bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

// Removes "versions/<digits>" from `rest` if present. Returns false if it is not a number.
bool ConsumeVersion(std::string_view& rest, Route& route) {
  if (!StartsWith(rest, "versions/")) return true;
  ConsumeSegment(rest);
  const std::string_view text = ConsumeSegment(rest);
  if (text.empty() || text.find_first_not_of("0123456789") != std::string_view::npos) return false;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), route.model.version);
  if (error != std::errc()) route.oversized_version = text;
  return true;
}

Endpoint ModelAction(std::string_view action) {
  if (action.empty()) return Endpoint::kModelMetadata;
  if (action == "infer") return Endpoint::kInfer;
  if (action == "generate") return Endpoint::kGenerate;
  if (action == "generate_stream") return Endpoint::kGenerateStream;
  if (action == "ready") return Endpoint::kModelReady;
  if (action == "config") return Endpoint::kModelConfig;
  if (action == "stats") return Endpoint::kModelStatistics;
  if (action == "trace/setting") return Endpoint::kTraceSettings;
  return Endpoint::kUnknown;
}

// `rest` follows "/v2/models/".
Route FindModelRoute(std::string_view rest) {
  if (rest == "stats") return {Endpoint::kAllStatistics};
  if (rest.empty() || rest.back() == '/') return {};
  Route route;
  route.model.name = ConsumeSegment(rest);
  const bool has_version = StartsWith(rest, "versions/");
  if (route.model.name.empty() || !ConsumeVersion(rest, route)) return {};
  route.endpoint = ModelAction(rest);
  // Trace settings belong to a model, not to a version of it.
  if (has_version && route.endpoint == Endpoint::kTraceSettings) return {};
  return route;
}

// `rest` follows "/v2/repository/". The path may name a repository before the action.
Route FindRepositoryRoute(std::string_view rest) {
  if (rest == "index") return {Endpoint::kRepositoryIndex};
  Route route;
  if (!StartsWith(rest, "models/")) {
    route.repository = ConsumeSegment(rest);
    if (route.repository.empty()) return {};
    if (rest == "index") {
      route.endpoint = Endpoint::kRepositoryIndex;
      return route;
    }
    if (!StartsWith(rest, "models/")) return {};
  }
  ConsumeSegment(rest);
  route.model.name = ConsumeSegment(rest);
  if (route.model.name.empty()) return {};
  if (rest == "load") route.endpoint = Endpoint::kModelLoad;
  if (rest == "unload") route.endpoint = Endpoint::kModelUnload;
  return route;
}

// `rest` follows "/v2/<kind>sharedmemory/". Registration requires a region name; status and
// unregistration may name one.
Route FindMemoryRoute(std::string_view rest, Endpoint status, Endpoint register_endpoint,
                      Endpoint remove) {
  Route route;
  if (StartsWith(rest, "region/")) {
    ConsumeSegment(rest);
    route.region = ConsumeSegment(rest);
    if (route.region.empty()) return {};
  }
  if (rest == "status") route.endpoint = status;
  if (rest == "register") route.endpoint = register_endpoint;
  if (rest == "unregister") route.endpoint = remove;
  return route;
}

}  // namespace

Route FindRoute(std::string_view path) {
  constexpr std::string_view kModels = "/v2/models/";
  constexpr std::string_view kRepository = "/v2/repository/";
  constexpr std::string_view kSystemMemory = "/v2/systemsharedmemory/";
  constexpr std::string_view kCudaMemory = "/v2/cudasharedmemory/";
  if (StartsWith(path, kModels)) return FindModelRoute(path.substr(kModels.size()));
  if (StartsWith(path, kRepository)) return FindRepositoryRoute(path.substr(kRepository.size()));
  if (path == "/v2/health/live") return {Endpoint::kServerLive};
  if (path == "/v2/health/ready") return {Endpoint::kServerReady};
  if (path == "/v2") return {Endpoint::kServerMetadata};
  if (path == "/v2/logging") return {Endpoint::kLogSettings};
  if (path == "/v2/trace/setting") return {Endpoint::kTraceSettings};
  if (StartsWith(path, kSystemMemory)) {
    return FindMemoryRoute(path.substr(kSystemMemory.size()), Endpoint::kSystemMemoryStatus,
                           Endpoint::kSystemMemoryRegister, Endpoint::kSystemMemoryUnregister);
  }
  if (StartsWith(path, kCudaMemory)) {
    return FindMemoryRoute(path.substr(kCudaMemory.size()), Endpoint::kCudaMemoryStatus,
                           Endpoint::kCudaMemoryRegister, Endpoint::kCudaMemoryUnregister);
  }
  return {};
}

ApiOperation OperationOf(Endpoint endpoint, Method method) {
  const bool is_get = method == Method::kGet;
  switch (endpoint) {
    case Endpoint::kServerLive:
    case Endpoint::kServerReady:
      return ApiOperation::kServerHealth;
    case Endpoint::kModelReady:
      return ApiOperation::kModelHealth;
    case Endpoint::kModelMetadata:
      return ApiOperation::kModelMetadata;
    case Endpoint::kModelConfig:
      return ApiOperation::kModelConfig;
    case Endpoint::kModelStatistics:
      return ApiOperation::kModelStatistics;
    case Endpoint::kAllStatistics:
      return ApiOperation::kAllStatistics;
    case Endpoint::kRepositoryIndex:
      return ApiOperation::kRepositoryIndex;
    case Endpoint::kModelLoad:
      return ApiOperation::kLoadModel;
    case Endpoint::kModelUnload:
      return ApiOperation::kUnloadModel;
    case Endpoint::kInfer:
    case Endpoint::kGenerate:
    case Endpoint::kGenerateStream:
      return ApiOperation::kInfer;
    case Endpoint::kLogSettings:
      return is_get ? ApiOperation::kReadLogSettings : ApiOperation::kChangeLogSettings;
    case Endpoint::kTraceSettings:
      return is_get ? ApiOperation::kReadTraceSettings : ApiOperation::kChangeTraceSettings;
    case Endpoint::kSystemMemoryStatus:
    case Endpoint::kCudaMemoryStatus:
      return ApiOperation::kReadSharedMemory;
    case Endpoint::kSystemMemoryRegister:
    case Endpoint::kSystemMemoryUnregister:
    case Endpoint::kCudaMemoryRegister:
    case Endpoint::kCudaMemoryUnregister:
      return ApiOperation::kChangeSharedMemory;
    case Endpoint::kUnknown:
    case Endpoint::kServerMetadata:
      break;
  }
  return ApiOperation::kServerMetadata;
}

bool AcceptsMethod(Endpoint endpoint, Method method) {
  switch (endpoint) {
    case Endpoint::kRepositoryIndex:
    case Endpoint::kModelLoad:
    case Endpoint::kModelUnload:
    case Endpoint::kInfer:
    case Endpoint::kGenerate:
    case Endpoint::kGenerateStream:
    case Endpoint::kSystemMemoryRegister:
    case Endpoint::kSystemMemoryUnregister:
    case Endpoint::kCudaMemoryRegister:
    case Endpoint::kCudaMemoryUnregister:
      return method == Method::kPost;
    case Endpoint::kLogSettings:
    case Endpoint::kTraceSettings:
      return method == Method::kGet || method == Method::kPost;
    default:
      return method == Method::kGet;
  }
}

}  // namespace nereid::http
