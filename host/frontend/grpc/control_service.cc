// See control_service.h. Splits by what the calls ask: health and descriptions, repository, log,
// trace.
#include "host/frontend/grpc/control_service.h"

#include <string>
#include <vector>

#include "grpc_service.pb.h"
#include "host/frontend/frontend_state.h"
#include "host/frontend/grpc/json_to_proto.h"
#include "host/frontend/grpc/log_settings_rpc.h"
#include "host/frontend/grpc/stream_infer.h"
#include "host/frontend/grpc/trace_rpc.h"
#include "host/frontend/grpc/unary_infer.h"
#include "host/frontend/model_version.h"
#include "host/frontend/zero_byte.h"

namespace nereid {
namespace {

Status Describe(const Result<Message>& message, google::protobuf::Message& answer) {
  NEREID_RETURN_IF_ERROR(message.status());
  NEREID_ASSIGN_OR_RETURN(const std::string_view json, message->Json());
  return JsonToProto(json, answer);
}

// The version of the model that `request` names.
template <typename Request>
Result<int64_t> CheckedVersion(const Request& request) {
  NEREID_RETURN_IF_ERROR(RefuseZeroByte("name", request.name()));
  return ParseModelVersion(request.version());
}

Status RefuseRepositoryName(const std::string& name) {
  if (name.empty()) return {};
  return UnsupportedError("'repository_name' specification is not supported");
}

// Borrows the bytes of `request`.
Result<std::vector<Parameter>> LoadParameters(
    const inference::RepositoryModelLoadRequest& request) {
  std::vector<Parameter> parameters;
  for (const auto& [key, value] : request.parameters()) {
    if (key == "config") {
      if (!value.has_string_param()) {
        return InvalidArgError(
            "invalid value type for load parameter 'config', expected string_param.");
      }
      NEREID_RETURN_IF_ERROR(RefuseZeroByte(key, value.string_param()));
      parameters.push_back(Parameter::String(key, value.string_param()));
    } else if (key.starts_with("file:")) {
      if (!value.has_bytes_param()) {
        return InvalidArgError("invalid value type for load parameter '", key,
                               "', expected bytes_param.");
      }
      NEREID_RETURN_IF_ERROR(RefuseZeroByte("file:<path>", key));
      parameters.push_back(Parameter::Bytes(key, value.bytes_param()));
    } else {
      return InvalidArgError("unrecognized load parameter '", key, "'.");
    }
  }
  return parameters;
}

Result<bool> WantsDependentsUnloaded(const inference::RepositoryModelUnloadRequest& request) {
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

void ControlService::AddTo(MethodTable& table) const {
  AddInference(table);
  AddDescriptions(table);
  AddRepository(table);
  AddSettings(table);
  AddSharedMemory(table);
}

void ControlService::AddInference(MethodTable& table) const {
  const auto infer = [this](Call& call, const Slice& bytes) -> CallHandler* {
    if (!Admit(call, ApiGroup::kInference)) return nullptr;
    return StartUnaryInfer(context_, call, bytes);
  };
  const auto stream_infer = [this](Call& call) -> CallHandler* {
    if (!Admit(call, ApiGroup::kInference)) return nullptr;
    return StartStreamInfer(context_, call);
  };
  table.Add(PathOf("ModelInfer"), {.unary = infer, .stream = nullptr});
  table.Add(PathOf("ModelStreamInfer"), {.unary = nullptr, .stream = stream_infer});
}

void ControlService::AddDescriptions(MethodTable& table) const {
  using namespace inference;
  AddNow<ServerLiveRequest, ServerLiveResponse>(
      table, "ServerLive", ApiGroup::kHealth, [this](const auto&, auto& response) -> Status {
        NEREID_ASSIGN_OR_RETURN(const bool is_live, server_.IsLive());
        response.set_live(is_live);
        return {};
      });
  AddNow<ServerReadyRequest, ServerReadyResponse>(
      table, "ServerReady", ApiGroup::kHealth, [this](const auto&, auto& response) -> Status {
        NEREID_ASSIGN_OR_RETURN(const bool is_ready, server_.IsReady());
        response.set_ready(is_ready);
        return {};
      });
  AddNow<ModelReadyRequest, ModelReadyResponse>(
      table, "ModelReady", ApiGroup::kHealth,
      [this](const auto& request, auto& response) -> Status {
        NEREID_ASSIGN_OR_RETURN(const int64_t version, CheckedVersion(request));
        NEREID_ASSIGN_OR_RETURN(const bool is_ready,
                                server_.IsModelReady(request.name().c_str(), version));
        response.set_ready(is_ready);
        return {};
      });
  AddNow<ServerMetadataRequest, ServerMetadataResponse>(
      table, "ServerMetadata", ApiGroup::kMetadata,
      [this](const auto&, auto& response) { return Describe(server_.Metadata(), response); });
  AddNow<ModelMetadataRequest, ModelMetadataResponse>(
      table, "ModelMetadata", ApiGroup::kMetadata,
      [this](const auto& request, auto& response) -> Status {
        NEREID_ASSIGN_OR_RETURN(const int64_t version, CheckedVersion(request));
        return Describe(server_.ModelMetadata(request.name().c_str(), version), response);
      });
  AddNow<ModelConfigRequest, ModelConfigResponse>(
      table, "ModelConfig", ApiGroup::kModelConfig,
      [this](const auto& request, auto& response) -> Status {
        NEREID_ASSIGN_OR_RETURN(const int64_t version, CheckedVersion(request));
        return Describe(server_.ModelConfig(request.name().c_str(), version),
                        *response.mutable_config());
      });
  AddNow<ModelStatisticsRequest, ModelStatisticsResponse>(
      table, "ModelStatistics", ApiGroup::kStatistics,
      [this](const auto& request, auto& response) -> Status {
        NEREID_ASSIGN_OR_RETURN(const int64_t version, CheckedVersion(request));
        return Describe(server_.ModelStatistics(request.name().c_str(), version), response);
      });
}

void ControlService::AddRepository(MethodTable& table) const {
  using namespace inference;
  AddNow<RepositoryIndexRequest, RepositoryIndexResponse>(
      table, "RepositoryIndex", ApiGroup::kModelRepository,
      [this](const auto& request, auto& response) -> Status {
        NEREID_RETURN_IF_ERROR(RefuseRepositoryName(request.repository_name()));
        NEREID_ASSIGN_OR_RETURN(const Message message, server_.ModelIndex(request.ready()));
        NEREID_ASSIGN_OR_RETURN(const std::string_view models, message.Json());
        return JsonToProto(StrCat("{\"models\":", models, "}"), response);
      });
  AddLate<RepositoryModelLoadRequest, RepositoryModelLoadResponse>(
      table, "RepositoryModelLoad", ApiGroup::kModelRepository,
      [this](const auto& request, auto&) -> Status {
        NEREID_RETURN_IF_ERROR(RefuseRepositoryName(request.repository_name()));
        NEREID_RETURN_IF_ERROR(RefuseZeroByte("model_name", request.model_name()));
        NEREID_ASSIGN_OR_RETURN(const std::vector<Parameter> parameters, LoadParameters(request));
        return server_.LoadModel(request.model_name().c_str(), parameters);
      });
  AddLate<RepositoryModelUnloadRequest, RepositoryModelUnloadResponse>(
      table, "RepositoryModelUnload", ApiGroup::kModelRepository,
      [this](const auto& request, auto&) -> Status {
        NEREID_RETURN_IF_ERROR(RefuseRepositoryName(request.repository_name()));
        NEREID_RETURN_IF_ERROR(RefuseZeroByte("model_name", request.model_name()));
        NEREID_ASSIGN_OR_RETURN(const bool unload_dependents, WantsDependentsUnloaded(request));
        return server_.UnloadModel(request.model_name().c_str(), unload_dependents);
      });
}

void ControlService::AddSettings(MethodTable& table) const {
  AddNow<inference::LogSettingsRequest, inference::LogSettingsResponse>(
      table, "LogSettings", ApiGroup::kLogging, [this](const auto& request, auto& response) {
        return AnswerLogSettings(context_.options().state->log_settings, request, response);
      });
  AddNow<inference::TraceSettingRequest, inference::TraceSettingResponse>(
      table, "TraceSetting", ApiGroup::kTrace, [this](const auto& request, auto& response) {
        return AnswerTraceSetting(server_, *context_.options().state->tracer, request, response);
      });
}

}  // namespace nereid
