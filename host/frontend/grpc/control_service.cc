// See control_service.h. Splits by what the calls ask: health and descriptions, repository, log,
// trace.
#include "control_service.h"

#include <string>
#include <vector>

#include "answer_call.h"
#include "frontend_state.h"
#include "json_to_proto.h"
#include "log_settings_rpc.h"
#include "model_version.h"
#include "restriction.h"
#include "stream_infer.h"
#include "trace_rpc.h"
#include "unary_infer.h"

namespace nereid {
namespace {

using Reactor = ControlService::Reactor;
using Context = ControlService::Context;

Status Describe(const Result<Message>& message, google::protobuf::Message& answer) {
  NEREID_RETURN_IF_ERROR(message.status());
  NEREID_ASSIGN_OR_RETURN(const std::string_view json, message->Json());
  return JsonToProto(json, answer);
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
      parameters.push_back(Parameter::String(key, value.string_param()));
    } else if (key.starts_with("file:")) {
      if (!value.has_bytes_param()) {
        return InvalidArgError("invalid value type for load parameter '", key,
                               "', expected bytes_param.");
      }
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
    if (key != "unload_dependents") {
      return InvalidArgError("unrecognized unload parameter '", key, "'.");
    }
    if (!value.has_bool_param()) {
      return InvalidArgError(
          "invalid value type for 'unload_dependents' parameter, expected bool_param.");
    }
    unload_dependents = value.bool_param();
  }
  return unload_dependents;
}

// Ends at once.
class RefusedStream final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit RefusedStream(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace

Reactor* ControlService::Refuse(Context* call, ApiGroup group) const {
  const RestrictedApis& restricted = context_.options().restricted;
  if (IsAllowed(restricted, group, *call)) return nullptr;
  Reactor* const reactor = call->DefaultReactor();
  reactor->Finish(Restricted(restricted, group));
  return reactor;
}

// ---- inference

Reactor* ControlService::ModelInfer(Context* call, const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) {
  if (Reactor* const refused = Refuse(call, ApiGroup::kInference)) return refused;
  return StartUnaryInfer(context_, *call, *request, *response);
}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ControlService::ModelStreamInfer(
    Context* call) {
  if (IsAllowed(context_.options().restricted, ApiGroup::kInference, *call)) {
    return StartStreamInfer(context_, *call);
  }
  return new RefusedStream(Restricted(context_.options().restricted, ApiGroup::kInference));
}

// ---- health and descriptions

Reactor* ControlService::ServerLive(Context* call, const inference::ServerLiveRequest*,
                                    inference::ServerLiveResponse* response) {
  if (Reactor* const refused = Refuse(call, ApiGroup::kHealth)) return refused;
  return Answer(call, [&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(const bool is_live, server_.IsLive());
    response->set_live(is_live);
    return {};
  });
}

Reactor* ControlService::ServerReady(Context* call, const inference::ServerReadyRequest*,
                                     inference::ServerReadyResponse* response) {
  if (Reactor* const refused = Refuse(call, ApiGroup::kHealth)) return refused;
  return Answer(call, [&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(const bool is_ready, server_.IsReady());
    response->set_ready(is_ready);
    return {};
  });
}

Reactor* ControlService::ModelReady(Context* call, const inference::ModelReadyRequest* request,
                                    inference::ModelReadyResponse* response) {
  if (Reactor* const refused = Refuse(call, ApiGroup::kHealth)) return refused;
  return Answer(call, [&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(const int64_t version, ParseModelVersion(request->version()));
    NEREID_ASSIGN_OR_RETURN(const bool is_ready,
                            server_.IsModelReady(request->name().c_str(), version));
    response->set_ready(is_ready);
    return {};
  });
}

Reactor* ControlService::ServerMetadata(Context* call, const inference::ServerMetadataRequest*,
                                        inference::ServerMetadataResponse* response) {
  if (Reactor* const refused = Refuse(call, ApiGroup::kMetadata)) return refused;
  return Answer(call, [&] { return Describe(server_.Metadata(), *response); });
}

Reactor* ControlService::ModelMetadata(Context* call,
                                       const inference::ModelMetadataRequest* request,
                                       inference::ModelMetadataResponse* response) {
  if (Reactor* const refused = Refuse(call, ApiGroup::kMetadata)) return refused;
  return Answer(call, [&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(const int64_t version, ParseModelVersion(request->version()));
    return Describe(server_.ModelMetadata(request->name().c_str(), version), *response);
  });
}

Reactor* ControlService::ModelConfig(Context* call, const inference::ModelConfigRequest* request,
                                     inference::ModelConfigResponse* response) {
  if (Reactor* const refused = Refuse(call, ApiGroup::kModelConfig)) return refused;
  return Answer(call, [&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(const int64_t version, ParseModelVersion(request->version()));
    return Describe(server_.ModelConfig(request->name().c_str(), version),
                    *response->mutable_config());
  });
}

Reactor* ControlService::ModelStatistics(Context* call,
                                         const inference::ModelStatisticsRequest* request,
                                         inference::ModelStatisticsResponse* response) {
  if (Reactor* const refused = Refuse(call, ApiGroup::kStatistics)) return refused;
  return Answer(call, [&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(const int64_t version, ParseModelVersion(request->version()));
    return Describe(server_.ModelStatistics(request->name().c_str(), version), *response);
  });
}

// ---- repository

Reactor* ControlService::RepositoryIndex(Context* call,
                                         const inference::RepositoryIndexRequest* request,
                                         inference::RepositoryIndexResponse* response) {
  if (Reactor* const refused = Refuse(call, ApiGroup::kModelRepository)) return refused;
  return Answer(call, [&]() -> Status {
    NEREID_RETURN_IF_ERROR(RefuseRepositoryName(request->repository_name()));
    NEREID_ASSIGN_OR_RETURN(const Message message, server_.ModelIndex(request->ready()));
    NEREID_ASSIGN_OR_RETURN(const std::string_view models, message.Json());
    return JsonToProto(StrCat("{\"models\":", models, "}"), *response);
  });
}

Reactor* ControlService::RepositoryModelLoad(Context* call,
                                             const inference::RepositoryModelLoadRequest* request,
                                             inference::RepositoryModelLoadResponse*) {
  if (Reactor* const refused = Refuse(call, ApiGroup::kModelRepository)) return refused;
  return AnswerLater(control_queue_, [this, taken = TakeMessage(request)]() -> Status {
    NEREID_RETURN_IF_ERROR(RefuseRepositoryName(taken.repository_name()));
    NEREID_ASSIGN_OR_RETURN(const std::vector<Parameter> parameters, LoadParameters(taken));
    return server_.LoadModel(taken.model_name().c_str(), parameters);
  });
}

Reactor* ControlService::RepositoryModelUnload(
    Context* call, const inference::RepositoryModelUnloadRequest* request,
    inference::RepositoryModelUnloadResponse*) {
  if (Reactor* const refused = Refuse(call, ApiGroup::kModelRepository)) return refused;
  return AnswerLater(control_queue_, [this, taken = TakeMessage(request)]() -> Status {
    NEREID_RETURN_IF_ERROR(RefuseRepositoryName(taken.repository_name()));
    NEREID_ASSIGN_OR_RETURN(const bool unload_dependents, WantsDependentsUnloaded(taken));
    return server_.UnloadModel(taken.model_name().c_str(), unload_dependents);
  });
}

// ---- log

Reactor* ControlService::LogSettings(Context* call, const inference::LogSettingsRequest* request,
                                     inference::LogSettingsResponse* response) {
  if (Reactor* const refused = Refuse(call, ApiGroup::kLogging)) return refused;
  nereid::LogSettings& settings = context_.options().state->log_settings;
  return Answer(call, [&] { return AnswerLogSettings(settings, *request, *response); });
}

// ---- trace

Reactor* ControlService::TraceSetting(Context* call, const inference::TraceSettingRequest* request,
                                      inference::TraceSettingResponse* response) {
  if (Reactor* const refused = Refuse(call, ApiGroup::kTrace)) return refused;
  return Answer(call, [&] {
    return AnswerTraceSetting(server_, *context_.options().state->tracer, *request, *response);
  });
}

}  // namespace nereid
