#include "host/frontend/api_operation.h"

#include <algorithm>
#include <iterator>

namespace nereid {
namespace {

using enum ApiOperation;

constexpr ApiOperationRule kRules[] = {
    {kServerHealth, ApiGroup::kHealth, std::nullopt, ApiScope::kServer, false,
     "read the server's health"},
    {kModelHealth, ApiGroup::kHealth, ApiRight::kMetadata, ApiScope::kModel, false,
     "read a model's health"},
    {kServerMetadata, ApiGroup::kMetadata, ApiRight::kMetadata, ApiScope::kServer, false,
     "read the server's metadata"},
    {kModelMetadata, ApiGroup::kMetadata, ApiRight::kMetadata, ApiScope::kModel, false,
     "read a model's metadata"},
    {kModelConfig, ApiGroup::kModelConfig, ApiRight::kMetadata, ApiScope::kModel, false,
     "read a model's configuration"},
    {kModelStatistics, ApiGroup::kStatistics, ApiRight::kStatistics, ApiScope::kModel, false,
     "read a model's statistics"},
    {kAllStatistics, ApiGroup::kStatistics, ApiRight::kStatistics, ApiScope::kAllModels, false,
     "read the statistics of all models"},
    {kRepositoryIndex, ApiGroup::kModelRepository, ApiRight::kMetadata, ApiScope::kAllModels, false,
     "list the models"},
    {kInfer, ApiGroup::kInference, ApiRight::kInfer, ApiScope::kModel, false, "infer"},
    {kLoadModel, ApiGroup::kModelRepository, ApiRight::kModelControl, ApiScope::kModel, true,
     "load models"},
    {kLoadInlineModel, ApiGroup::kModelRepository, ApiRight::kModelControl, ApiScope::kModel, true,
     "load models"},
    {kUnloadModel, ApiGroup::kModelRepository, ApiRight::kModelControl, ApiScope::kModel, true,
     "unload models"},
    {kReadLogSettings, ApiGroup::kLogging, ApiRight::kLog, ApiScope::kServer, false,
     "read the log settings"},
    {kChangeLogSettings, ApiGroup::kLogging, ApiRight::kLog, ApiScope::kServer, true,
     "change the log settings"},
    {kReadTraceSettings, ApiGroup::kTrace, ApiRight::kTrace, ApiScope::kServer, false,
     "read the trace settings"},
    {kChangeTraceSettings, ApiGroup::kTrace, ApiRight::kTrace, ApiScope::kServer, true,
     "change the trace settings"},
    {kReadSharedMemory, ApiGroup::kSharedMemory, ApiRight::kSharedMemory, ApiScope::kServer, false,
     "list the shared-memory regions"},
    {kChangeSharedMemory, ApiGroup::kSharedMemory, ApiRight::kSharedMemory, ApiScope::kServer, true,
     "register and unregister shared memory"},
    {kReadMetrics, std::nullopt, ApiRight::kMetrics, ApiScope::kServer, false, "read the metrics"},
    {kDescribeApi, std::nullopt, ApiRight::kMetadata, ApiScope::kServer, false,
     "read the description of the API"},
    {kListRequests, ApiGroup::kStatistics, ApiRight::kStatistics, ApiScope::kAllModels, false,
     "list the requests in flight"},
    {kCancelRequest, ApiGroup::kModelRepository, ApiRight::kModelControl, ApiScope::kAllModels,
     true, "cancel requests of other clients"},
};

// RuleOf finds a rule by its index.
constexpr bool IsInOrder() {
  for (size_t i = 0; i < std::size(kRules); ++i) {
    if (static_cast<size_t>(kRules[i].operation) != i) return false;
  }
  return std::size(kRules) == static_cast<size_t>(kCancelRequest) + 1;
}
static_assert(IsInOrder());

}  // namespace

const ApiOperationRule& RuleOf(ApiOperation operation) {
  return kRules[static_cast<size_t>(operation)];
}

}  // namespace nereid
