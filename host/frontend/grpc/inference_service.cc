// See inference_service.h. Methods are grouped by purpose; settings_rpc.cc and shared_memory_rpc.cc
// have further groups.
#include "host/frontend/grpc/inference_service.h"

#include <string>
#include <vector>

#include "grpc_service.pb.h"
#include "host/frontend/client_input.h"
#include "host/frontend/grpc/infer_context.h"
#include "host/frontend/grpc/service_calls.h"

namespace nereid {
namespace {

Status Describe(const Result<Message>& message, google::protobuf::Message& answer) {
  NEREID_RETURN_IF_ERROR(message.status());
  NEREID_ASSIGN_OR_RETURN(const std::string_view json, message->Json());
  return JsonToProto(json, answer);
}

// Parses the model version in `request`, which names a model.
template <typename Request>
Result<int64_t> CheckedVersion(const Request& request) {
  NEREID_RETURN_IF_ERROR(RejectZeroByte("name", request.name()));
  return ParseModelVersion(request.version());
}

Status RejectRepositoryName(const std::string& name) {
  if (name.empty()) return {};
  return UnsupportedError("'repository_name' specification is not supported");
}

// The returned parameters reference the bytes of `request`.
Result<std::vector<Parameter>> LoadParameters(
    const inference::RepositoryModelLoadRequest& request) {
  std::vector<Parameter> parameters;
  for (const auto& [key, value] : request.parameters()) {
    if (key == "config") {
      if (!value.has_string_param()) {
        return InvalidArgError(
            "invalid value type for load parameter 'config', expected string_param.");
      }
      NEREID_RETURN_IF_ERROR(RejectZeroByte(key, value.string_param()));
      parameters.push_back(Parameter::String(key, value.string_param()));
    } else if (key.starts_with("file:")) {
      if (!value.has_bytes_param()) {
        return InvalidArgError("invalid value type for load parameter '", key,
                               "', expected bytes_param.");
      }
      NEREID_RETURN_IF_ERROR(RejectZeroByte("file:<path>", key));
      parameters.push_back(Parameter::Bytes(key, value.bytes_param()));
    } else {
      return InvalidArgError("unrecognized load parameter '", key, "'.");
    }
  }
  return parameters;
}

Result<bool> UnloadsDependents(const inference::RepositoryModelUnloadRequest& request) {
  bool unload_dependents = false;
  for (const auto& [key, value] : request.parameters()) {
    if (key != "unload_dependents") continue;
    if (!value.has_bool_param()) {
      return InvalidArgError(
          "invalid value type for 'unload_dependents' parameter, expected bool_param.");
    }
    unload_dependents = value.bool_param();
  }
  return unload_dependents;
}

}  // namespace

ApiOperation OperationOf(ApiOperation, const inference::ModelStatisticsRequest& request) {
  return request.name().empty() ? ApiOperation::kAllStatistics : ApiOperation::kModelStatistics;
}

ApiOperation OperationOf(ApiOperation, const inference::RepositoryModelLoadRequest& request) {
  return request.parameters().empty() ? ApiOperation::kLoadModel : ApiOperation::kLoadInlineModel;
}

void InferenceService::AddTo(MethodTable& table) const {
  AddInference(table);
  AddStatusAndMetadata(table);
  AddRepository(table);
  AddSettings(table);
  AddSharedMemory(table);
}

void InferenceService::AddInference(MethodTable& table) const {
  const auto infer = [this](Call& call, const Slice& bytes) {
    return StartUnaryInfer(context_, call, bytes);
  };
  const auto stream_infer = [this](Call& call) { return StartStreamInfer(context_, call); };
  const auto admit = Admission(ApiOperation::kInfer);
  table.Add(PathOf("ModelInfer"), {.admit = admit, .unary = infer, .stream = nullptr});
  table.Add(PathOf("ModelStreamInfer"), {.admit = admit, .unary = nullptr, .stream = stream_infer});
}

void InferenceService::AddStatusAndMetadata(MethodTable& table) const {
  using namespace inference;
  AddInlineCall<ServerLiveRequest, ServerLiveResponse>(
      table, "ServerLive", ApiOperation::kServerHealth,
      [this](const auto&, auto& response) -> Status {
        NEREID_ASSIGN_OR_RETURN(const bool is_live, server_.IsLive());
        response.set_live(is_live);
        return {};
      });
  AddInlineCall<ServerReadyRequest, ServerReadyResponse>(
      table, "ServerReady", ApiOperation::kServerHealth,
      [this](const auto&, auto& response) -> Status {
        NEREID_ASSIGN_OR_RETURN(const bool is_ready, server_.IsReady());
        response.set_ready(is_ready);
        return {};
      });
  AddInlineCall<ModelReadyRequest, ModelReadyResponse>(
      table, "ModelReady", ApiOperation::kModelHealth,
      [this](const auto& request, auto& response) -> Status {
        NEREID_ASSIGN_OR_RETURN(const int64_t version, CheckedVersion(request));
        NEREID_ASSIGN_OR_RETURN(const bool is_ready,
                                server_.IsModelReady(request.name().c_str(), version));
        response.set_ready(is_ready);
        return {};
      });
  AddInlineCall<ServerMetadataRequest, ServerMetadataResponse>(
      table, "ServerMetadata", ApiOperation::kServerMetadata,
      [this](const auto&, auto& response) { return Describe(server_.Metadata(), response); });
  AddInlineCall<ModelMetadataRequest, ModelMetadataResponse>(
      table, "ModelMetadata", ApiOperation::kModelMetadata,
      [this](const auto& request, auto& response) -> Status {
        NEREID_ASSIGN_OR_RETURN(const int64_t version, CheckedVersion(request));
        return Describe(server_.ModelMetadata(request.name().c_str(), version), response);
      });
  AddInlineCall<ModelConfigRequest, ModelConfigResponse>(
      table, "ModelConfig", ApiOperation::kModelConfig,
      [this](const auto& request, auto& response) -> Status {
        NEREID_ASSIGN_OR_RETURN(const int64_t version, CheckedVersion(request));
        return Describe(server_.ModelConfig(request.name().c_str(), version),
                        *response.mutable_config());
      });
  AddInlineCall<ModelStatisticsRequest, ModelStatisticsResponse>(
      table, "ModelStatistics", ApiOperation::kModelStatistics,
      [this](const auto& request, auto& response) -> Status {
        NEREID_ASSIGN_OR_RETURN(const int64_t version, CheckedVersion(request));
        return Describe(server_.ModelStatistics(request.name().c_str(), version), response);
      });
}

void InferenceService::AddRepository(MethodTable& table) const {
  using namespace inference;
  AddInlineCall<RepositoryIndexRequest, RepositoryIndexResponse>(
      table, "RepositoryIndex", ApiOperation::kRepositoryIndex,
      [this](const auto& request, auto& response) -> Status {
        NEREID_RETURN_IF_ERROR(RejectRepositoryName(request.repository_name()));
        NEREID_ASSIGN_OR_RETURN(const Message message, server_.ModelIndex(request.ready()));
        NEREID_ASSIGN_OR_RETURN(const std::string_view models, message.Json());
        return JsonToProto(StrCat("{\"models\":", models, "}"), response);
      });
  AddQueuedCall<RepositoryModelLoadRequest, RepositoryModelLoadResponse>(
      table, "RepositoryModelLoad", ApiOperation::kLoadModel,
      [this](const auto& request, auto&) -> Status {
        NEREID_RETURN_IF_ERROR(RejectRepositoryName(request.repository_name()));
        NEREID_RETURN_IF_ERROR(RejectZeroByte("model_name", request.model_name()));
        NEREID_ASSIGN_OR_RETURN(const std::vector<Parameter> parameters, LoadParameters(request));
        return server_.LoadModel(request.model_name().c_str(), parameters);
      });
  AddQueuedCall<RepositoryModelUnloadRequest, RepositoryModelUnloadResponse>(
      table, "RepositoryModelUnload", ApiOperation::kUnloadModel,
      [this](const auto& request, auto&) -> Status {
        NEREID_RETURN_IF_ERROR(RejectRepositoryName(request.repository_name()));
        NEREID_RETURN_IF_ERROR(RejectZeroByte("model_name", request.model_name()));
        NEREID_ASSIGN_OR_RETURN(const bool unload_dependents, UnloadsDependents(request));
        return server_.UnloadModel(request.model_name().c_str(), unload_dependents);
      });
}

}  // namespace nereid
