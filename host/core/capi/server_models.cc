// TRITONSERVER_Server, calls about models: readiness, properties, metadata, configuration,
// statistics, index, load and unload. [any thread]
#include "host/core/capi/arguments.h"
#include "host/core/capi/handles.h"
#include "host/core/model/model.h"
#include "host/core/server.h"

using nereid::Result;
using nereid::Status;
using nereid::core::AtCBoundary;
using nereid::core::FromHandle;
using nereid::core::JsonMessage;
using nereid::core::Server;
using nereid::core::ToHandle;

namespace {

// Returns the JSON as a message, or its error.
Status Deliver(Result<std::string> json, TRITONSERVER_Message** message) {
  if (!json.ok()) return std::move(json).status();
  *message = ToHandle(new JsonMessage(std::move(json).value()));
  return Status::Ok();
}

}  // namespace

extern "C" {

TRITONSERVER_Error* TRITONSERVER_ServerModelIsReady(TRITONSERVER_Server* server,
                                                    const char* model_name,
                                                    const int64_t model_version, bool* ready) {
  NEREID_RETURN_IF_NULL(server);
  NEREID_RETURN_IF_NULL(model_name);
  NEREID_RETURN_IF_NULL(ready);
  return AtCBoundary([&]() -> Status {
    *ready = FromHandle(server)->IsModelReady(model_name, model_version);
    return FromHandle(server)->CheckServing(nereid::core::CallerOf(server));
  });
}

TRITONSERVER_Error* TRITONSERVER_ServerModelBatchProperties(TRITONSERVER_Server* server,
                                                            const char* model_name,
                                                            const int64_t model_version,
                                                            uint32_t* flags, void** voidp) {
  NEREID_RETURN_IF_NULL(server);
  NEREID_RETURN_IF_NULL(model_name);
  NEREID_RETURN_IF_NULL(flags);
  return AtCBoundary([&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(const auto model,
                            FromHandle(server)->models().Find(model_name, model_version));
    *flags = model->config().max_batch_size > 0 ? TRITONSERVER_BATCH_FIRST_DIM
                                                : TRITONSERVER_BATCH_UNKNOWN;
    if (voidp != nullptr) *voidp = nullptr;
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_ServerModelTransactionProperties(TRITONSERVER_Server* server,
                                                                  const char* model_name,
                                                                  const int64_t model_version,
                                                                  uint32_t* txn_flags,
                                                                  void** voidp) {
  NEREID_RETURN_IF_NULL(server);
  NEREID_RETURN_IF_NULL(model_name);
  NEREID_RETURN_IF_NULL(txn_flags);
  return AtCBoundary([&]() -> Status {
    NEREID_ASSIGN_OR_RETURN(const auto model,
                            FromHandle(server)->models().Find(model_name, model_version));
    *txn_flags =
        model->config().decoupled ? TRITONSERVER_TXN_DECOUPLED : TRITONSERVER_TXN_ONE_TO_ONE;
    if (voidp != nullptr) *voidp = nullptr;
    return Status::Ok();
  });
}

TRITONSERVER_Error* TRITONSERVER_ServerModelMetadata(TRITONSERVER_Server* server,
                                                     const char* model_name,
                                                     const int64_t model_version,
                                                     TRITONSERVER_Message** model_metadata) {
  NEREID_RETURN_IF_NULL(server);
  NEREID_RETURN_IF_NULL(model_name);
  NEREID_RETURN_IF_NULL(model_metadata);
  return AtCBoundary([&]() -> Status {
    NEREID_RETURN_IF_ERROR(FromHandle(server)->CheckServing());
    return Deliver(FromHandle(server)->ModelMetadataJson(model_name, model_version),
                   model_metadata);
  });
}

TRITONSERVER_Error* TRITONSERVER_ServerModelStatistics(TRITONSERVER_Server* server,
                                                       const char* model_name,
                                                       const int64_t model_version,
                                                       TRITONSERVER_Message** model_stats) {
  NEREID_RETURN_IF_NULL(server);
  NEREID_RETURN_IF_NULL(model_name);
  NEREID_RETURN_IF_NULL(model_stats);
  return AtCBoundary([&]() -> Status {
    NEREID_RETURN_IF_ERROR(FromHandle(server)->CheckServing());
    return Deliver(FromHandle(server)->StatisticsJson(model_name, model_version), model_stats);
  });
}

TRITONSERVER_Error* TRITONSERVER_ServerModelConfig(TRITONSERVER_Server* server,
                                                   const char* model_name,
                                                   const int64_t model_version,
                                                   const uint32_t config_version,
                                                   TRITONSERVER_Message** model_config) {
  NEREID_RETURN_IF_NULL(server);
  NEREID_RETURN_IF_NULL(model_name);
  NEREID_RETURN_IF_NULL(model_config);
  return AtCBoundary([&]() -> Status {
    auto json = FromHandle(server)->ModelConfigJson(model_name, model_version);
    if (json.ok()) NEREID_RETURN_IF_ERROR(nereid::core::CheckConfigVersion(config_version));
    return Deliver(std::move(json), model_config);
  });
}

TRITONSERVER_Error* TRITONSERVER_ServerModelIndex(TRITONSERVER_Server* server, uint32_t flags,
                                                  TRITONSERVER_Message** model_index) {
  NEREID_RETURN_IF_NULL(server);
  NEREID_RETURN_IF_NULL(model_index);
  return AtCBoundary([&]() -> Status {
    NEREID_RETURN_IF_ERROR(FromHandle(server)->CheckServing());
    const bool ready_only = (flags & TRITONSERVER_INDEX_FLAG_READY) != 0;
    return Deliver(FromHandle(server)->IndexJson(ready_only), model_index);
  });
}

TRITONSERVER_Error* TRITONSERVER_ServerLoadModel(TRITONSERVER_Server* server,
                                                 const char* model_name) {
  return TRITONSERVER_ServerLoadModelWithParameters(server, model_name, nullptr, 0);
}

TRITONSERVER_Error* TRITONSERVER_ServerLoadModelWithParameters(
    TRITONSERVER_Server* server, const char* model_name, const TRITONSERVER_Parameter** parameters,
    const uint64_t parameter_count) {
  NEREID_RETURN_IF_NULL(server);
  NEREID_RETURN_IF_NULL(model_name);
  if (parameter_count > 0) NEREID_RETURN_IF_NULL(parameters);
  return AtCBoundary([&] {
    std::vector<const nereid::core::Parameter*> list;
    for (uint64_t i = 0; i < parameter_count; ++i) list.push_back(FromHandle(parameters[i]));
    return FromHandle(server)->LoadModel(model_name, list);
  });
}

TRITONSERVER_Error* TRITONSERVER_ServerUnloadModel(TRITONSERVER_Server* server,
                                                   const char* model_name) {
  NEREID_RETURN_IF_NULL(server);
  NEREID_RETURN_IF_NULL(model_name);
  return AtCBoundary([&] { return FromHandle(server)->UnloadModel(model_name, false); });
}

TRITONSERVER_Error* TRITONSERVER_ServerUnloadModelAndDependents(TRITONSERVER_Server* server,
                                                                const char* model_name) {
  NEREID_RETURN_IF_NULL(server);
  NEREID_RETURN_IF_NULL(model_name);
  return AtCBoundary([&] { return FromHandle(server)->UnloadModel(model_name, true); });
}

}  // extern "C"
