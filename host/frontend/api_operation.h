// Everything that a client can ask of the server, whatever the protocol, and the rule of each: who
// may ask for it. This table is the only place that says so; access_control.h applies it. Constant.
// [any thread]
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "host/frontend/restricted_apis.h"

namespace nereid {

enum class ApiOperation {
  kServerHealth,
  kModelHealth,
  kServerMetadata,
  kModelMetadata,
  kModelConfig,
  kModelStatistics,
  kAllStatistics,
  kRepositoryIndex,
  kInfer,
  kLoadModel,
  kLoadInlineModel,  // with a configuration or files in the request
  kUnloadModel,
  kReadLogSettings,
  kChangeLogSettings,
  kReadTraceSettings,
  kChangeTraceSettings,
  kReadSharedMemory,
  kChangeSharedMemory,
  kReadMetrics,
  kDescribeApi,
  kListRequests,
  kCancelRequest,  // of any client
};

// What an API key can permit.
enum class ApiRight {
  kInfer,
  kMetadata,
  kStatistics,
  kModelControl,
  kLog,
  kTrace,
  kSharedMemory,
  kMetrics,
};
inline constexpr std::array<std::string_view, 8> kApiRightNames = {
    "infer", "metadata", "statistics", "model-control", "log", "trace", "shared-memory", "metrics"};
constexpr std::string_view NameOf(ApiRight right) {
  return kApiRightNames[static_cast<size_t>(right)];
}

// The models for which a key must have the right.
enum class ApiScope {
  kServer,     // any model: the operation concerns the server
  kModel,      // the model that the operation names
  kAllModels,  // every model: the answer lists them
};

struct ApiOperationRule {
  ApiOperation operation;
  // The group that --http-restricted-api and --grpc-restricted-protocol restrict.
  std::optional<ApiGroup> group;
  std::optional<ApiRight> right;  // nullopt: needs no key, also where a key file is given
  ApiScope scope;
  // Without a key, only local clients may ask for it, unless --remote-admin is set.
  bool changes_server;
  std::string_view action;  // completes the sentence "the client may not ..."
};

const ApiOperationRule& RuleOf(ApiOperation operation);

}  // namespace nereid
