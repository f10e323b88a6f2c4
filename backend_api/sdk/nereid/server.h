/// \file
/// Calls models through the C API. Frontends, the ensemble backend and programs that embed the
/// server use it. Everything here is a thin RAII wrapper: it copies no tensor bytes and allocates
/// nothing beyond what the C API allocates.
///
///   NEREID_ASSIGN_OR_RETURN(Server server, Server::Start(options));  // or Server::Borrow(handle)
///   NEREID_ASSIGN_OR_RETURN(InferRequest request, server.NewRequest("model"));
///   ... request.AddInput(...), request.AppendInputData(...), request.SetCallbacks(...)
///   NEREID_RETURN_IF_ERROR(server.InferAsync(std::move(request)));  // InferObserver gets the
///   events
///
/// [any thread] All const functions may be called concurrently.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nereid/error.h"
#include "nereid/handles.h"
#include "nereid/infer_request.h"
#include "nereid/infer_response.h"
#include "nereid/response_allocator.h"
#include "triton/core/tritonserver.h"

namespace nereid {

/// Options of a server to start. The setters are those of the C API. [one thread]
class ServerOptions {
 public:
  static Result<ServerOptions> Create() {
    TRITONSERVER_ServerOptions* options = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONSERVER_ServerOptionsNew(&options)));
    return ServerOptions(options);
  }

  TRITONSERVER_ServerOptions* get() const { return options_.get(); }

  /// Calls any setter of the C API: options.Set(TRITONSERVER_ServerOptionsSetExitOnError, true).
  template <typename... Params, typename... Args>
  Status Set(TRITONSERVER_Error* (*setter)(TRITONSERVER_ServerOptions*, Params...),
             const Args&... args) {
    return ToStatus(setter(get(), Pass(args)...));
  }

  /// Call it once for each repository.
  Status AddModelRepository(const std::string& path) {
    return Set(TRITONSERVER_ServerOptionsSetModelRepositoryPath, path);
  }
  Status SetBackendDirectory(const std::string& path) {
    return Set(TRITONSERVER_ServerOptionsSetBackendDirectory, path);
  }
  Status SetBackendConfig(const std::string& backend, const std::string& key,
                          const std::string& value) {
    return Set(TRITONSERVER_ServerOptionsSetBackendConfig, backend, key, value);
  }
  Status SetModelControlMode(TRITONSERVER_ModelControlMode mode) {
    return Set(TRITONSERVER_ServerOptionsSetModelControlMode, mode);
  }
  /// Only in explicit model control mode; "*" alone means every model.
  Status AddStartupModel(const std::string& name) {
    return Set(TRITONSERVER_ServerOptionsSetStartupModel, name);
  }

 private:
  explicit ServerOptions(TRITONSERVER_ServerOptions* options) : options_(options) {}

  static const char* Pass(const std::string& text) { return text.c_str(); }
  template <typename T>
  static const T& Pass(const T& value) {
    return value;
  }

  struct Deleter {
    void operator()(TRITONSERVER_ServerOptions* options) const {
      (void)ToStatus(TRITONSERVER_ServerOptionsDelete(options));
    }
  };
  std::unique_ptr<TRITONSERVER_ServerOptions, Deleter> options_;
};

/// A running server, owned or borrowed.
class Server {
 public:
  /// Returns when every start-up model is loaded or failed. If a model failed, the server still
  /// starts, unless exit-on-error is set.
  static Result<Server> Start(const ServerOptions& options) {
    TRITONSERVER_Server* server = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONSERVER_ServerNew(&server, options.get())));
    return Server(server, /*is_owned=*/true);
  }
  /// A server that another object owns and that outlives this one, for example the result of
  /// TRITONBACKEND_ModelServer in a backend.
  static Server Borrow(TRITONSERVER_Server* server) { return Server(server, /*is_owned=*/false); }

  TRITONSERVER_Server* get() const { return server_.get(); }

  /// Rejects new requests, waits for those in flight up to the exit timeout, and unloads every
  /// model.
  Status Stop() const { return ToStatus(TRITONSERVER_ServerStop(get())); }
  Status SetExitTimeout(unsigned timeout_s) const {
    return ToStatus(TRITONSERVER_ServerSetExitTimeout(get(), timeout_s));
  }

  // ---- health
  Result<bool> IsLive() const {
    bool live = false;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONSERVER_ServerIsLive(get(), &live)));
    return live;
  }
  Result<bool> IsReady() const {
    bool ready = false;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONSERVER_ServerIsReady(get(), &ready)));
    return ready;
  }
  Result<bool> IsModelReady(const char* name, int64_t version = -1) const {
    bool ready = false;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONSERVER_ServerModelIsReady(get(), name, version, &ready)));
    return ready;
  }

  // ---- descriptions, as JSON
  Result<Message> Metadata() const {
    return Query([&](auto** out) { return TRITONSERVER_ServerMetadata(get(), out); });
  }
  Result<Message> ModelMetadata(const char* name, int64_t version = -1) const {
    return Query(
        [&](auto** out) { return TRITONSERVER_ServerModelMetadata(get(), name, version, out); });
  }
  Result<Message> ModelConfig(const char* name, int64_t version = -1) const {
    return Query([&](auto** out) {
      return TRITONSERVER_ServerModelConfig(get(), name, version, /*config_version=*/1, out);
    });
  }
  /// An empty name means every model.
  Result<Message> ModelStatistics(const char* name, int64_t version = -1) const {
    return Query(
        [&](auto** out) { return TRITONSERVER_ServerModelStatistics(get(), name, version, out); });
  }
  Result<Message> ModelIndex(bool ready_only) const {
    const uint32_t flags = ready_only ? TRITONSERVER_INDEX_FLAG_READY : 0;
    return Query([&](auto** out) { return TRITONSERVER_ServerModelIndex(get(), flags, out); });
  }
  Result<MetricsPage> Metrics() const {
    TRITONSERVER_Metrics* metrics = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(TRITONSERVER_ServerMetrics(get(), &metrics)));
    return MetricsPage(metrics);
  }

  // ---- properties of a model
  /// True if one request may have any number of responses.
  Result<bool> IsDecoupled(const char* name, int64_t version = -1) const {
    uint32_t flags = 0;
    NEREID_RETURN_IF_ERROR(ToStatus(
        TRITONSERVER_ServerModelTransactionProperties(get(), name, version, &flags, nullptr)));
    return (flags & TRITONSERVER_TXN_DECOUPLED) != 0;
  }
  /// True if the first dimension of the model's tensors is the batch.
  Result<bool> IsBatched(const char* name, int64_t version = -1) const {
    uint32_t flags = 0;
    NEREID_RETURN_IF_ERROR(
        ToStatus(TRITONSERVER_ServerModelBatchProperties(get(), name, version, &flags, nullptr)));
    return (flags & TRITONSERVER_BATCH_FIRST_DIM) != 0;
  }

  // ---- repository
  /// These functions return when the model is loaded, its load has failed, or its unload has begun.
  Status LoadModel(const char* name, std::span<const Parameter> parameters = {}) const {
    if (parameters.empty()) return ToStatus(TRITONSERVER_ServerLoadModel(get(), name));
    std::vector<const TRITONSERVER_Parameter*> handles;
    for (const Parameter& parameter : parameters) handles.push_back(parameter.get());
    return ToStatus(
        TRITONSERVER_ServerLoadModelWithParameters(get(), name, handles.data(), handles.size()));
  }
  Status UnloadModel(const char* name, bool unload_dependents = false) const {
    return ToStatus(unload_dependents ? TRITONSERVER_ServerUnloadModelAndDependents(get(), name)
                                      : TRITONSERVER_ServerUnloadModel(get(), name));
  }
  Status PollModelRepository() const {
    return ToStatus(TRITONSERVER_ServerPollModelRepository(get()));
  }
  /// `names`: parameters <folder> = <model name>, for models whose name is not that of their
  /// folder.
  Status RegisterModelRepository(const char* path, std::span<const Parameter> names = {}) const {
    std::vector<const TRITONSERVER_Parameter*> handles;
    for (const Parameter& name : names) handles.push_back(name.get());
    return ToStatus(TRITONSERVER_ServerRegisterModelRepository(
        get(), path, handles.empty() ? nullptr : handles.data(), handles.size()));
  }
  Status UnregisterModelRepository(const char* path) const {
    return ToStatus(TRITONSERVER_ServerUnregisterModelRepository(get(), path));
  }

  /// Does what the destructor does, and returns the outcome. With an error, code of a model or a
  /// backend still runs: the process must then exit without running static destructors.
  Status Delete() && { return ToStatus(TRITONSERVER_ServerDelete(server_.release())); }

  // ---- inference
  /// Fails if the model is unknown or not ready.
  Result<InferRequest> NewRequest(const char* model_name, int64_t model_version = -1) const {
    return InferRequest::Create(get(), model_name, model_version);
  }
  /// On success the request is in flight and returns through InferObserver::OnRelease. On an error
  /// it still belongs to the caller, and no callback runs. `trace` may be null. The server owns the
  /// trace from the call on until its release callback, even if the call fails.
  Status InferAsync(InferRequest&& request, TRITONSERVER_InferenceTrace* trace = nullptr) const {
    // Released first: on success the request may be deleted before the call returns.
    TRITONSERVER_InferenceRequest* handle = request.release();
    Status status = ToStatus(TRITONSERVER_ServerInferAsync(get(), handle, trace));
    if (!status.ok()) request = InferRequest(handle);
    return status;
  }

 private:
  Server(TRITONSERVER_Server* server, bool is_owned) : server_(server, Deleter{is_owned}) {}

  template <typename Call>
  static Result<Message> Query(const Call& call) {
    TRITONSERVER_Message* message = nullptr;
    NEREID_RETURN_IF_ERROR(ToStatus(call(&message)));
    return Message(message);
  }

  struct Deleter {
    bool is_owned;
    void operator()(TRITONSERVER_Server* server) const {
      if (is_owned) (void)ToStatus(TRITONSERVER_ServerDelete(server));
    }
  };
  std::unique_ptr<TRITONSERVER_Server, Deleter> server_;
};

}  // namespace nereid
